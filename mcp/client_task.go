package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A task is asked for soon after its beginning, and then at intervals that double
// up to what the server says, or else taskPoll.
const (
	taskPollFirst = 50 * time.Millisecond
	taskPoll      = time.Second
	taskPollMin   = 20 * time.Millisecond
	taskPollMax   = time.Minute
)

// StartTask calls a tool as a task and returns the task; WaitTask returns its result.
// The server keeps it for ttl, or, when that is 0, as long as it likes;
// in modern revisions it always decides on its own, and also whether there is a
// task at all: a result that comes at once is a completed task without an id.
//
// It fails when the server has no tasks, and in modern revisions also without
// ClientOptions.Tasks.
func (c *Client) StartTask(
	ctx context.Context, name string, args any, ttl time.Duration,
) (*spec.DetailedTask, error) {
	p, err := toolParams(name, args)
	if err != nil {
		return nil, err
	}
	l, err := c.link(ctx)
	if err != nil {
		return nil, fmt.Errorf("mcp: start a task: %w", err)
	}
	switch {
	case l.callsTasks():
		p.Task = &spec.TaskMetadata{}
		if ms := ttl.Milliseconds(); ms > 0 {
			p.Task.TTL = &ms
		}
	case !l.rev.TasksExtension || l.info.Capabilities.Extensions[spec.ExtensionTasks] == nil:
		return nil, fmt.Errorf("mcp: start a task: the server has no tasks; CallTool calls the tool %q",
			name)
	case !c.opts.Tasks:
		return nil, errors.New(
			"mcp: start a task: set ClientOptions.Tasks, which lets the server make tasks")
	}
	raw, err := c.callTool(ctx, name, p)
	if err != nil {
		return nil, err
	}
	if t := createdTask(raw); t != nil {
		return t, nil
	}
	return &spec.DetailedTask{Task: spec.Task{Status: spec.TaskCompleted}, Result: raw}, nil
}

// Task returns the state of a task.
func (c *Client) Task(ctx context.Context, id string) (*spec.DetailedTask, error) {
	raw, err := c.taskCall(ctx, spec.MethodTasksGet, id)
	if err != nil {
		return nil, err
	}
	return readTask(raw)
}

// WaitTask waits for the end of a task, answering what it asks for, and returns
// the result of its tool. The end of the context does not cancel the task.
func (c *Client) WaitTask(ctx context.Context, id string) (*spec.CallToolResult, error) {
	t, err := c.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	raw, _, err := c.follower().follow(ctx, t)
	if err != nil {
		return nil, err
	}
	r := new(spec.CallToolResult)
	return r, decodeResult(spec.MethodToolsCall, raw, r)
}

// CancelTask asks the server to give a task up. It may end in another way all
// the same.
func (c *Client) CancelTask(ctx context.Context, id string) error {
	_, err := c.taskCall(ctx, spec.MethodTasksCancel, id)
	return err
}

// Tasks returns the tasks that the server knows of. Only legacy servers say.
func (c *Client) Tasks(ctx context.Context) ([]*spec.DetailedTask, error) {
	l, err := c.link(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("mcp: %q: %w", spec.MethodTasksList, err)
	case !l.rev.LegacyTasks || l.info.Capabilities.Tasks == nil ||
		l.info.Capabilities.Tasks.List == nil:
		return nil, fmt.Errorf("mcp: %q: the server does not list its tasks", spec.MethodTasksList)
	}
	return allPages(ctx, c, spec.MethodTasksList, "tasks", false,
		func(r *spec.ListTasksResult) ([]*spec.DetailedTask, string) {
			all := make([]*spec.DetailedTask, len(r.Tasks))
			for i := range r.Tasks {
				all[i] = modernTask(&r.Tasks[i])
			}
			return all, r.NextCursor
		})
}

func (c *Client) taskCall(ctx context.Context, method, id string) (jsonrpc.Raw, error) {
	return c.call(ctx, &outgoing{method: method, params: paramsOfTask(id)})
}

// paramsOfTask are a spec.TaskParams.
func paramsOfTask(id string) jsonrpc.Raw {
	return append(jsonrpc.AppendString(jsonrpc.Raw(`{"taskId":`), id), '}')
}

// callsTasks reports whether tools can be called as tasks, in the legacy way.
func (l *link) callsTasks() bool {
	caps := l.info.Capabilities.Tasks
	return l.rev.LegacyTasks && caps != nil && caps.Requests != nil && caps.Requests.Tools != nil &&
		caps.Requests.Tools.Call != nil
}

// createdTask returns the task that the answer to a call is, or nil.
func createdTask(raw jsonrpc.Raw) *spec.DetailedTask {
	if headOf(raw).kind != spec.ResultTask {
		old := scan.Member(raw, "task")
		if old == nil || scan.Member(raw, "content") != nil {
			return nil
		}
		raw = old
	}
	t, _ := readTask(raw) // what is no task gives nil
	return t
}

// readTask reads a task of either generation.
func readTask(raw jsonrpc.Raw) (*spec.DetailedTask, error) {
	t := new(spec.DetailedTask)
	err := jsonv2.Unmarshal(raw, t)
	if err == nil && (t.TaskID == "" || t.Status == "") {
		err = errors.New("it has no taskId or no status")
	}
	if err != nil {
		return nil, fmt.Errorf("mcp: %w: the server answered a task that is not valid: %w",
			farcall.ErrProtocol, err)
	}
	if t.TTLMS == nil && t.PollIntervalMS == nil {
		var old spec.LegacyTask
		if jsonv2.Unmarshal(raw, &old) == nil {
			t.TTLMS, t.PollIntervalMS = old.TTL, old.PollInterval
		}
	}
	return t, nil
}

// modernTask returns a legacy task in the form of the newest revision.
func modernTask(t *spec.LegacyTask) *spec.DetailedTask {
	return &spec.DetailedTask{Task: spec.Task{
		TaskID: t.TaskID, Status: t.Status, StatusMessage: t.StatusMessage,
		CreatedAt: t.CreatedAt, LastUpdatedAt: t.LastUpdatedAt, TTLMS: t.TTL,
		PollIntervalMS: t.PollInterval,
	}}
}

// A follower follows tasks.
type follower struct {
	c    *Client
	wait time.Duration // the last one between two questions for the state
	// call makes a call about a task. Its result is in the form of the newest
	// revision; that of spec.MethodTasksResult may be in another one.
	call func(
		ctx context.Context, method string, params jsonrpc.Raw,
	) (raw jsonrpc.Raw, in *era.Revision, err error)
	// leave is that of relay.Forward.
	leave func() bool
	// A resumed task is checked against the createdAt that it had: see relay.Forward.TaskCreated.
	resumed bool
	created string
}

func (c *Client) follower() *follower {
	return &follower{c: c, call: func(
		ctx context.Context, method string, params jsonrpc.Raw,
	) (jsonrpc.Raw, *era.Revision, error) {
		raw, err := c.call(ctx, &outgoing{method: method, params: params})
		return raw, era.Latest(), err
	}}
}

// finish follows a task that is not known elsewhere. It is cancelled when the
// context ends, and when what it asks gets no answer.
func (f *follower) finish(
	ctx context.Context, t *spec.DetailedTask,
) (jsonrpc.Raw, *era.Revision, error) {
	raw, in, err := f.follow(ctx, t)
	if ctx.Err() != nil && f.leave != nil && f.leave() {
		return raw, in, err
	}
	if silent := (*unansweredError)(nil); err != nil && (ctx.Err() != nil || errors.As(err, &silent)) {
		f.giveUp(ctx, t.TaskID)
	}
	return raw, in, err
}

// giveUp cancels a task, unless its id names another task by now. Only Close waits for it.
func (f *follower) giveUp(ctx context.Context, id string) {
	f.c.spawn(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if f.resumed {
			if _, err := f.state(ctx, id); err != nil {
				f.c.warn("the task %q could not be cancelled: %w", id, err)
				return
			}
		}
		// A server with a connection that has ended needs no telling.
		if _, _, err := f.call(ctx, spec.MethodTasksCancel, paramsOfTask(id)); err != nil &&
			!errors.Is(err, farcall.ErrClosed) {
			f.c.warn("the task %q could not be cancelled: %w", id, err)
		}
	})
}

// follow asks for a task until it has ended and returns the result of its call.
func (f *follower) follow(
	ctx context.Context, t *spec.DetailedTask,
) (jsonrpc.Raw, *era.Revision, error) {
	answered := map[string]bool{}
	changed, done := f.c.watched.watch(t.TaskID)
	defer done()
	if spec.TaskEnded(t.Status) && t.Result == nil && t.Error == nil {
		// The answer that makes a task does not tell what it has come to.
		var err error
		if t, err = f.state(ctx, t.TaskID); err != nil {
			return nil, nil, err
		}
	}
	for {
		l, err := f.c.link(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("mcp: the task %q: %w", t.TaskID, err)
		}
		switch {
		case l.rev.LegacyTasks && (spec.TaskEnded(t.Status) || t.Status == spec.TaskInputRequired):
			// The result is its own call, during which the server asks for what
			// it needs (2025, Tasks, "Input Required Status").
			raw, in, err := f.call(ctx, spec.MethodTasksResult, paramsOfTask(t.TaskID))
			if late := (*tooLateError)(nil); !errors.As(err, &late) || ctx.Err() != nil {
				return raw, in, err
			}
		case spec.TaskEnded(t.Status):
			raw, err := ended(t)
			return raw, era.Latest(), err
		case t.Status == spec.TaskInputRequired:
			if err := f.update(ctx, t, answered); err != nil {
				return nil, nil, err
			}
		}
		if !f.await(ctx, t, changed) {
			return nil, nil, fmt.Errorf("mcp: the task %q: %w", t.TaskID, ctx.Err())
		}
		if t, err = f.state(ctx, t.TaskID); err != nil {
			return nil, nil, err
		}
	}
}

// state asks for a task. Its error is jsonrpc.InvalidParams when the id of a resumed task names
// another task.
func (f *follower) state(ctx context.Context, id string) (*spec.DetailedTask, error) {
	raw, _, err := f.call(ctx, spec.MethodTasksGet, paramsOfTask(id))
	if err != nil {
		return nil, err
	}
	t, err := readTask(raw)
	if err == nil && f.resumed && (f.created == "" || t.CreatedAt != f.created) {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams,
			"Invalid params: the server does not know the task any more: the createdAt of the task with "+
				"its taskId differs")
	}
	return t, err
}

// ended returns what a task has come to.
func ended(t *spec.DetailedTask) (jsonrpc.Raw, error) {
	switch {
	case t.Status == spec.TaskCompleted && t.Result != nil:
		return t.Result, nil
	case t.Status == spec.TaskFailed && t.Error != nil:
		return nil, t.Error
	}
	text := ""
	if t.StatusMessage != "" {
		text = ": " + t.StatusMessage
	}
	return nil, fmt.Errorf("mcp: the task %q is %s and has no result%s", t.TaskID, t.Status, text)
}

// unansweredError is that of a task with a question got that no answer.
type unansweredError struct{ error }

func (e *unansweredError) Unwrap() error { return e.error }

// update answers what a task asks for, each thing once.
func (f *follower) update(
	ctx context.Context, t *spec.DetailedTask, answered map[string]bool,
) error {
	requests := map[string]spec.InputRequest{}
	for key, request := range t.InputRequests {
		if !answered[key] {
			requests[key] = request
			answered[key] = true
		}
	}
	if len(requests) == 0 {
		return nil
	}
	responses, err := f.c.answerAll(ctx, requests)
	if err != nil {
		return &unansweredError{fmt.Errorf("mcp: the task %q: %w", t.TaskID, err)}
	}
	params := object.New(nil)
	params.Add("taskId", jsonrpc.AppendString(nil, t.TaskID))
	params.Add("inputResponses", responses)
	_, _, err = f.call(ctx, spec.MethodTasksUpdate, params.End())
	return err
}

// await waits for the next time to ask for a task: until an interval is over, or a
// notification says that its state has changed. It reports whether ctx still lives.
func (f *follower) await(ctx context.Context, t *spec.DetailedTask, changed <-chan struct{}) bool {
	most := taskPoll
	if t.PollIntervalMS != nil {
		most = time.Duration(min(*t.PollIntervalMS, taskPollMax.Milliseconds())) * time.Millisecond
	}
	f.wait = min(max(2*f.wait, taskPollFirst), max(most, taskPollMin))
	timer := time.NewTimer(f.wait)
	defer timer.Stop()
	select {
	case <-changed:
		return true
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// taskChanged takes a notification about a task.
func (c *Client) taskChanged(o *ClientOptions, t *spec.DetailedTask) {
	c.watched.notified(t.TaskID)
	if o.OnTask != nil {
		o.OnTask(t)
	}
}

// watchedTasks are the tasks that are being followed, and those that wait for
// news of them.
type watchedTasks struct {
	mu   sync.Mutex
	byID map[string][]chan struct{} // by the id of the task
}

// watch returns what gets a value when there is news, until done is called.
func (w *watchedTasks) watch(id string) (changed <-chan struct{}, done func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	setEntry(&w.byID, id, append(w.byID[id], c))
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		left := slices.DeleteFunc(w.byID[id], func(o chan struct{}) bool { return o == c })
		if w.byID[id] = left; len(left) == 0 {
			delete(w.byID, id)
		}
	}
}

// notified is called for each notification about a task.
func (w *watchedTasks) notified(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.byID[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
