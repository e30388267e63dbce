package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/store"
)

// TaskLater makes a tool that runs as a task begin as an ordinary call: it
// becomes a task when its handler calls [StartTask]. What it asks before, the
// client is asked in rounds, as by any other tool; what it returns before, is the
// result. Clients of 2025-11-25 decide for themselves what is a task, from its
// beginning; for them it changes nothing.
//
// It panics when no tool of that name that runs as a task was added to this server before.
func (s *Server) TaskLater(tool string) {
	s.checkMade()
	s.offering.Lock()
	defer s.offering.Unlock()
	number, ok := s.tools.places[place{tool, nil}]
	if ok {
		it, _ := s.tools.now.Load().items.Get(number)
		ok = it.value.taskSupport() != spec.TaskForbidden
	}
	if !ok {
		misuse(
			"TaskLater: %s has no tool %q that runs as a task; add it before, with Execution.TaskSupport",
			s.label(), tool)
	}
	s.tasks.later.Store(tool, true)
}

// StartTask makes the call that is being handled a task; the client gets its
// handle now, while the handler goes on: see [Server.TaskLater]. It does nothing
// when the call is a task already, and when it cannot be one. The handler
// returns its error.
func StartTask(ctx context.Context) error {
	c := callFrom(ctx)
	if c == nil || c.task == nil || c.task.started() {
		return nil
	}
	if asking, err := c.asking(); err != nil {
		return err
	} else if asking {
		return ErrAsked
	}
	c.task.note()
	return c.beginTask()
}

// taskSupport says whether a tool runs as a task.
func (t *tool) taskSupport() string {
	if t.spec.Execution == nil {
		return spec.TaskForbidden
	}
	return cmp.Or(t.spec.Execution.TaskSupport, spec.TaskForbidden)
}

// wantsTask reports whether a tool is to be run as a task. In the legacy era the
// client decides, by the member "task".
func (c *call) wantsTask(tool, support string) (bool, error) {
	switch {
	case c.rev.TasksExtension:
		if support == spec.TaskForbidden || needTasks.met(c) {
			return support != spec.TaskForbidden, nil
		}
		if support == spec.TaskRequired { // ext-tasks, "Capability Negotiation"
			return false, needTasks.refuse(c)
		}
	case c.rev.LegacyTasks && c.srv.runsTasks(c):
		// 2025-11-25 basic/utilities/tasks, "Tool-Level Negotiation"
		wanted := len(c.in.task) > 0 && string(c.in.task) != "null"
		if wanted && support == spec.TaskForbidden {
			return false, jsonrpc.Errorf(jsonrpc.MethodNotFound,
				"Method not found: the tool %s does not run as a task; call it without %q", tool, "task")
		}
		if !wanted && support == spec.TaskRequired {
			return false, jsonrpc.Errorf(jsonrpc.MethodNotFound,
				"Method not found: the tool %s runs as a task only; call it with %q", tool, "task")
		}
		return wanted, nil
	}
	return false, nil // a client that knows no tasks waits for the result
}

// startTask runs a tool in the background and returns the CreateTaskResult. run gets its own call,
// which outlives the request; it returns the result or a protocol error. later: the call becomes a
// task by StartTask only. The task is one of the server that the client is connected to.
func (s *Server) startTask(
	c *call, later bool, run func(*call) (jsonrpc.Raw, error),
) (jsonrpc.Raw, error) {
	t, own, err := c.srv.newTask(c)
	if err != nil {
		return nil, err
	}
	switch {
	case c.rev.LegacyTasks: // the client has decided
	case later:
		return t.startLater(c, own, run, 0)
	case c.srv.opts.TaskAfter > 0:
		t.asks = true
		return t.startLater(c, own, run, c.srv.opts.TaskAfter)
	}
	if err := t.begin(); err != nil {
		t.cancel(err)
		return nil, err
	}
	own.hold()
	go func() { t.run(own, run, t.finish) }()
	return t.creation()
}

// newTask makes a task, which is not published yet, and the call that its handler
// gets.
func (s *Server) newTask(c *call) (*task, *call, error) {
	ttl, err := s.taskTTL(c.in.task)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	t := &task{
		srv: s, id: rand.Text(), owner: c.owner(), created: now, updated: now, ttl: ttl,
		status: spec.TaskWorking, changed: make(chan struct{}),
	}
	if t.shared() {
		t.node = s.shared.node
	}
	if name, err := text("name", c.in.name); err == nil {
		t.tool = string(name)
	}
	// the frame does not last as long as the task
	own, err := s.taskCall(c, t, c.method, slices.Clone(c.params))
	if err == nil && c.sent != nil {
		sent := slices.Clone(*c.sent)
		own.sent = &sent
	}
	return t, own, err
}

// taskCall returns the call that the handler of a task gets, which outlives the request c.
func (s *Server) taskCall(c *call, t *task, method string, params jsonrpc.Raw) (*call, error) {
	own := &call{
		srv: s, mounted: c.mounted, rev: c.rev, session: c.session, who: c.who, method: method,
		logLevel: c.logLevel, task: t,
		client: &taskClient{task: t, session: c.session, client: c.client},
		id:     c.id.Clone(), params: params,
	}
	// Its handler may run beside what ends the observation of the request: it has its own Call.
	if observe.From(c.Parent()) != nil {
		t.seen = new(observe.Call)
	}
	apart := context.WithValue(context.WithoutCancel(c.Parent()), callctx.Observed{}, t.seen)
	ctx, cancel := context.WithCancelCause(apart)
	t.cancel = cancel
	own.derive(ctx)
	if err := own.in.read(own.params); err != nil {
		return nil, err
	}
	return own, s.openAsks(own)
}

// taskTTL returns how long a task is kept: what a legacy client wants, but no
// longer than the server wants.
func (s *Server) taskTTL(taskParam jsonrpc.Raw) (time.Duration, error) {
	var p spec.TaskMetadata
	if len(taskParam) > 0 {
		if err := jsonv2.Unmarshal(taskParam, &p); err != nil {
			return 0, invalidParams("%q must be an object with a ttl that is a number of milliseconds",
				"task")
		}
	}
	if p.TTL == nil || *p.TTL <= 0 || *p.TTL > s.opts.TaskTTL.Milliseconds() {
		return s.opts.TaskTTL, nil
	}
	return time.Duration(*p.TTL) * time.Millisecond, nil
}

// begin makes the task known to clients.
func (t *task) begin() error {
	t.ends.Lock()
	defer t.ends.Unlock()
	t.mu.Lock()
	over := t.over
	t.mu.Unlock()
	if over {
		return errOver
	}
	tt := &t.srv.tasks
	if err := tt.reserve(t, t.srv.opts.MaxTasks); err != nil {
		return err
	}
	err := t.enlist()
	if err == nil {
		if err = t.put(t.record(nil)); err != nil {
			t.delist()
		}
	}
	if err != nil {
		tt.free(t)
		return t.srv.notKept(err)
	}
	if !tt.add(t) {
		t.unstore()
		t.delist()
		return errClosing
	}
	t.mu.Lock()
	t.live = true
	t.first = t.state()
	close(t.changed)
	t.changed = make(chan struct{})
	t.mu.Unlock()
	t.srv.taskEvent(t, spec.TaskWorking)
	return nil
}

// notKept returns what clients may know of a store that did not keep a task.
func (s *Server) notKept(err error) error {
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return wire
	}
	if errors.Is(err, store.ErrFull) {
		return &jsonrpc.Error{
			Code: jsonrpc.Overloaded, Message: "Too much is kept of tasks; try again later", Cause: err,
		}
	}
	s.logger().Error("mcp: a task cannot be stored", slog.Any("error", err))
	return &jsonrpc.Error{
		Code: jsonrpc.InternalError, Message: "The task cannot be kept, and was not started", Cause: err,
	}
}

// startLater runs the handler until it has returned or made itself a task, or
// until it has run for a time, if that is not 0. Until then it ends with the request.
func (t *task) startLater(
	c, own *call, run func(*call) (jsonrpc.Raw, error), after time.Duration,
) (jsonrpc.Raw, error) {
	begun := t.changed // it is not published yet
	cancel := t.cancel
	unbind := context.AfterFunc(c, func() { cancel(context.Cause(c)) })
	ended := make(chan outcome, 1)
	own.hold()
	go func() {
		t.run(own, run, func(o outcome) {
			if !t.returned() {
				t.finish(o)
				return
			}
			ended <- o
		})
	}()
	var late <-chan time.Time
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-late:
			// Without room for one more task the call stays what it is.
			_ = own.beginTask()
			late = nil
		case <-begun:
			unbind()
			t.noteTo(observe.From(c.Parent()))
			return t.creation()
		case o := <-ended:
			t.cancel(nil)
			unbind()
			t.noteTo(observe.From(c.Parent()))
			if raw, asked := own.inputRequired(); asked {
				return raw, nil
			}
			return o.raw, o.err
		}
	}
}

// note keeps what is known of the call so far.
func (t *task) note() {
	if t.seen != nil {
		now := *t.seen
		t.noted.Store(&now)
	}
}

// noteTo writes what is known of the call into the observation of its request.
func (t *task) noteTo(seen *observe.Call) {
	from := t.noted.Load()
	if seen == nil || from == nil {
		return
	}
	seen.Tool, seen.Upstream = cmp.Or(from.Tool, seen.Tool), cmp.Or(from.Upstream, seen.Upstream)
	seen.Principal, seen.Decision = cmp.Or(from.Principal, seen.Principal),
		cmp.Or(from.Decision, seen.Decision)
	seen.Queued, seen.Attempts, seen.UpstreamRevision = from.Queued, from.Attempts,
		from.UpstreamRevision
}

// beginTask makes the call a task. What it notifies from then on does not belong
// to the request any more.
func (c *call) beginTask() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.task.started() {
		return nil
	}
	return c.task.begin()
}

// returned reports whether the handler has returned before there was a task. Then
// there will be none.
func (t *task) returned() bool {
	t.ends.Lock() // what has begun to become a task becomes one
	defer t.ends.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = !t.live
	return t.over
}

// run calls the handler, of a call that is held. end is called in any case, once.
func (t *task) run(c *call, f func(*call) (jsonrpc.Raw, error), end func(outcome)) {
	o := outcome{err: errors.New("the handler has ended its goroutine")} // runtime.Goexit
	defer func() {
		if v := recover(); v != nil {
			o = outcome{err: &panicError{v, debug.Stack()}}
		}
		c.end()
		t.note()
		end(o)
		c.release()
	}()
	o.raw, o.err = f(c)
}

// panicError is what a handler panicked with.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// taskError returns what clients may know of an error; the log gets the rest.
func (s *Server) taskError(err error) *jsonrpc.Error {
	if err == nil {
		return nil
	}
	if wire := remote.Own(err); wire != nil {
		return &jsonrpc.Error{Code: wire.Code, Message: wire.Message, Data: wire.Data}
	}
	if !errors.Is(err, context.Canceled) {
		s.logger().Error("mcp: a task has failed", slog.Any("error", err))
	}
	return &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error"}
}

// taskClient is the way to the client of a call that may become a task. It is
// the request's own until then.
type taskClient struct {
	task    *task
	session *session // nil: modern
	client  farcall.Caller
}

// Call implements farcall.Caller.
func (tc *taskClient) Call(ctx context.Context, method string, params, result any) error {
	return tc.client.Call(ctx, method, params, result)
}

// Done implements farcall.Caller.
func (tc *taskClient) Done() <-chan struct{} { return tc.client.Done() }

// Notify implements farcall.Caller. A modern task sends none (ext-tasks, "Task
// Status Notifications"); those of a legacy one name it, and do not belong to the
// request, which has its answer.
func (tc *taskClient) Notify(ctx context.Context, method string, params any) error {
	switch {
	case !tc.task.started():
		return tc.client.Notify(ctx, method, params)
	case tc.session == nil:
		return nil
	}
	raw, err := jsonv2.Append(nil, params)
	if err != nil {
		return err
	}
	free, cancel := context.WithCancel(tc.session.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return tc.client.Notify(free, method, withRelatedTask(raw, tc.task.id))
}
