package mcp

import (
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// timeFormat is ISO 8601 with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// state returns the state, in canonical form. t.mu is held.
func (t *task) state() spec.Task {
	ttl, poll := t.ttl.Milliseconds(), t.srv.opts.TaskPoll.Milliseconds()
	return spec.Task{
		TaskID: t.id, Status: t.status, StatusMessage: t.message,
		CreatedAt: t.created.UTC().Format(timeFormat), LastUpdatedAt: t.updated.UTC().Format(timeFormat),
		TTLMS: &ttl, PollIntervalMS: &poll,
	}
}

// detailed returns the state with what belongs to it.
func (t *task) detailed() (spec.DetailedTask, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := spec.DetailedTask{Task: t.state()}
	if t.status == spec.TaskCompleted || t.status == spec.TaskFailed { // which it stays
		t.mu.Unlock()
		r, err := t.ended()
		t.mu.Lock()
		if err != nil {
			return d, err
		}
		d.Result, d.Error = r.result, r.Error
	}
	for _, p := range t.pending {
		setEntry(&d.InputRequests, p.key, spec.InputRequest{Method: p.method, Params: p.params})
	}
	return d, nil
}

// ended returns what the task has come to.
func (t *task) ended() (*taskRecord, error) {
	r, _, err := t.stored()
	if err != nil {
		return nil, t.unreadable(err)
	}
	return r, nil
}

// notification returns the params of notifications/tasks.
func (t *task) notification() (jsonrpc.Raw, error) {
	state, err := t.detailed()
	if err != nil {
		return nil, err
	}
	return jsonv2.Append(nil, &spec.TaskStatusNotificationParams{DetailedTask: state})
}

// legacy returns the state as clients of 2025-11-25 see it: a tool's error is a
// failure there.
func (t *task) legacy() spec.Task {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.state()
	if t.failed {
		s.Status, s.StatusMessage = spec.TaskFailed, "The tool has reported an error"
	}
	return s
}

// creation returns the result of a call that has become a task: the state at its
// beginning, whatever has become of it since.
func (t *task) creation() (jsonrpc.Raw, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return jsonv2.Append(nil, &spec.CreateTaskResult{ResultType: spec.ResultTask, Task: t.first})
}

// payload returns what the task's own request would have been answered.
func (t *task) payload() (jsonrpc.Raw, error) {
	t.mu.Lock()
	status, message := t.status, t.message
	t.mu.Unlock()
	if status == spec.TaskCancelled {
		return nil, &jsonrpc.Error{Code: jsonrpc.Cancelled, Message: "Request cancelled: " + message}
	}
	r, err := t.ended()
	switch {
	case err != nil:
		return nil, err
	case r.Error != nil:
		return nil, r.Error
	}
	return withRelatedTask(r.result, t.id), nil
}
