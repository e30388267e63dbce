package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// The methods of tasks, of each generation.
var (
	taskMethods = map[string]func(*Server, *call, *task) (jsonrpc.Raw, error){
		spec.MethodTasksGet:    (*Server).getTask,
		spec.MethodTasksUpdate: (*Server).updateTask,
		spec.MethodTasksCancel: (*Server).cancelTask,
	}
	legacyTaskMethods = map[string]func(*Server, *call, *task) (jsonrpc.Raw, error){
		spec.MethodTasksGet:    (*Server).getLegacyTask,
		spec.MethodTasksResult: (*Server).taskResult,
		spec.MethodTasksList:   (*Server).listTasks, // of no task
		spec.MethodTasksCancel: (*Server).cancelLegacyTask,
	}
)

// taskMethod serves the methods tasks/* that the revision of c has.
func (s *Server) taskMethod(c *call) (result jsonrpc.Raw, err error, handled bool) {
	methods := legacyTaskMethods
	if c.rev.TasksExtension {
		methods = taskMethods
	}
	serve := methods[c.method]
	if serve == nil || !s.runsTasks(c) || !c.rev.TasksExtension && !c.rev.LegacyTasks {
		return nil, nil, false
	}
	if c.rev.TasksExtension && !needTasks.met(c) { // ext-tasks, "Protocol Errors"
		return nil, needTasks.refuse(c), true
	}
	var t *task
	if c.method != spec.MethodTasksList {
		t, err = s.theTask(c)
	}
	if err == nil {
		result, err = serve(s, c, t)
	}
	return result, err, true
}

// watchableTask reports whether the caller may hear of a task.
func (s *Server) watchableTask(c *call, id string) bool {
	t, err := s.findTask(c.owner(), id, true)
	if t == nil || err != nil {
		return false
	}
	s.resume(c, t)
	return true
}

// theTask returns the task that the params name, if it is the caller's.
func (s *Server) theTask(c *call) (*task, error) {
	id, err := text("taskId", c.in.taskID)
	if err != nil {
		return nil, err
	}
	t, err := s.findTask(c.owner(), string(id), c.method == spec.MethodTasksResult)
	switch {
	case err != nil:
		return nil, s.unreadable(err)
	case t == nil:
		return nil, errNoTask()
	}
	if err := t.interrupt(); err != nil {
		return nil, t.unreadable(err)
	}
	s.resume(c, t)
	return t, nil
}

func errNoTask() error { return invalidParams("there is no such task, or its time is over") }

// unreadable returns what clients may know of a store that fails.
func (t *task) unreadable(err error) error { return t.srv.unreadable(err) }

func (s *Server) unreadable(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return errNoTask()
	}
	s.logger().Error("mcp: the store of tasks has failed", slog.Any("error", err))
	return &jsonrpc.Error{
		Code:    jsonrpc.InternalError,
		Message: "The state of the task cannot be read now; try again later", Cause: err,
	}
}

func (s *Server) getTask(c *call, t *task) (jsonrpc.Raw, error) {
	state, err := t.detailed()
	if err != nil {
		return nil, err
	}
	return jsonv2.Append(nil,
		&spec.GetTaskResult{ResultType: spec.ResultComplete, DetailedTask: state})
}

// updateTask acknowledges; what came of it is seen in the state.
func (s *Server) updateTask(c *call, t *task) (jsonrpc.Raw, error) {
	var p spec.UpdateTaskParams
	if err := jsonv2.Unmarshal(c.params, &p); err != nil || p.InputResponses == nil {
		return nil, invalidParams("inputResponses must be an object with each key once")
	}
	return jsonrpc.Raw("{}"), t.update(p.InputResponses)
}

// cancelTask acknowledges, also when the task has ended before.
func (s *Server) cancelTask(c *call, t *task) (jsonrpc.Raw, error) {
	_, err := t.stop(cancellation(errTaskCancelled))
	return jsonrpc.Raw("{}"), err
}

func (s *Server) getLegacyTask(c *call, t *task) (jsonrpc.Raw, error) {
	return jsonv2.Append(nil, t.legacy())
}

func (s *Server) cancelLegacyTask(c *call, t *task) (jsonrpc.Raw, error) {
	stopped, err := t.stop(cancellation(errTaskCancelled))
	if err != nil {
		return nil, err
	}
	state := t.legacy()
	if !stopped { // 2025-11-25 basic/utilities/tasks, "Task Cancellation"
		return nil, invalidParams("the task cannot be cancelled: it is %s already", state.Status)
	}
	return jsonv2.Append(nil, state)
}

// taskPage is a spec.ListTasksResult in canonical form.
type taskPage struct {
	Tasks      []spec.Task `json:"tasks"`
	NextCursor string      `json:"nextCursor,omitzero"`
}

func (s *Server) listTasks(c *call, _ *task) (jsonrpc.Raw, error) {
	last, err := cursorNumber("tasks", c.in.cursor)
	if err != nil {
		return nil, err
	}
	var found []*task
	if s.shares(c.owner()) {
		if found, err = s.shared.after(last, c.owner(), s.opts.PageSize+1); err != nil {
			return nil, s.unreadable(err)
		}
	} else {
		found = s.tasks.after(last, c.owner(), s.opts.PageSize+1)
	}
	page := taskPage{Tasks: []spec.Task{}}
	for i, t := range found {
		if i == s.opts.PageSize {
			page.NextCursor = newCursor("tasks", found[i-1].number)
			break
		}
		page.Tasks = append(page.Tasks, t.legacy())
	}
	return jsonv2.Append(nil, &page)
}

// taskResult waits for the end of a task. What the task asks meanwhile, the
// client is asked as part of this request (2025-11-25 basic/utilities/tasks,
// "Input Required Status").
func (s *Server) taskResult(c *call, t *task) (jsonrpc.Raw, error) {
	ctx, cancel := context.WithCancel(c)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for {
		s.resume(c, t)
		p, changed, ended := t.next()
		switch {
		case ended:
			return t.payload()
		case p != nil:
			asking.Go(func() { t.send(ctx, c, p) })
			continue
		}
		select {
		case <-changed:
		case <-c.Done():
			return nil, c.Err()
		}
	}
}

// send asks the client and gives its answer to the task. When the request ends
// that it is part of, the question is left for the next one.
func (t *task) send(ctx context.Context, c *call, p *pending) {
	raw, err := request(ctx, c.client, c.rev, p.question, t.id)
	if err != nil && ctx.Err() != nil {
		t.change(func() bool {
			p.sent = false
			return true
		})
		return
	}
	if err == nil {
		err = p.check(raw)
	}
	if err != nil {
		raw, err = nil, fmt.Errorf("mcp: ask the client %q: %w", p.method, err)
	}
	t.answer(p, raw, err)
}
