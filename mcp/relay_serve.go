package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

func (s *Server) relays() bool { return s.opts.Relay != nil }

// forwards reports whether a method is the relay's.
func (s *Server) forwards(method string) bool {
	if !s.relays() {
		return false
	}
	if m := methods[method]; m != nil {
		return m.relayed
	}
	return !reserved(method) && s.extensions.find(method) == nil
}

// reserved reports whether MCP defines a method which is not in the table of the
// methods.
func reserved(method string) bool {
	switch method {
	case spec.MethodInitialize, spec.MethodElicitationCreate, spec.MethodSamplingCreateMessage,
		spec.MethodRootsList,
		spec.NotificationInitialized, spec.NotificationCancelled, spec.NotificationProgress:
		return true
	}
	return strings.HasPrefix(method, "tasks/")
}

// mayAsk reports whether the client may be asked while a method is answered
// (2026-07-28 basic/patterns/mrtr, "Supported Requests").
func mayAsk(method string) bool {
	return method == spec.MethodToolsCall || method == spec.MethodPromptsGet ||
		method == spec.MethodResourcesRead
}

// forward serves what is the relay's.
func (s *Server) forward(
	c *call, cacheable bool,
) (result jsonrpc.Raw, in *era.Revision, err error) {
	if c.method == spec.MethodToolsCall {
		asTask, err := s.forwardsTask(c)
		if err != nil {
			return nil, nil, err
		}
		if c.in.task != nil && !c.rev.TasksExtension { // whether there is a task is decided here
			c.params = object.New(c.params, "task").End()
		}
		if asTask {
			return s.forwardTask(c)
		}
	}
	if mayAsk(c.method) {
		if err := s.openAsks(c); err != nil {
			return nil, nil, err
		}
	}
	result, in, err = s.opts.Relay.Forward(c, c.rev, c.method, c.params)
	asked, ok := c.inputRequired()
	switch {
	case ok && (err == nil || errors.Is(err, ErrAsked)):
		return s.finish(c, answer{raw: asked}, false), era.Latest(), nil
	case err != nil: // another reason counts: the call has been given up, for example
		return nil, nil, err
	}
	return s.forwarded(c, result, in, cacheable)
}

// forwarded makes of a relay's result one for the client. For the legacy era it
// is still to be translated.
func (s *Server) forwarded(
	c *call, raw jsonrpc.Raw, in *era.Revision, cacheable bool,
) (jsonrpc.Raw, *era.Revision, error) {
	if i := scan.Space(raw, 0); i == len(raw) || raw[i] != '{' {
		return nil, nil, errNoResultObject
	}
	if in == nil {
		in = era.Latest()
	}
	if !c.rev.ResultTypes {
		return raw, in, nil
	}
	if in.ResultTypes && scan.Member(raw, "resultType") != nil {
		raw, err := era.Translate(era.Result, c.method, raw, in, c.rev)
		return raw, c.rev, err
	}
	raw, err := era.Translate(era.BareResult, c.method, raw, in, c.rev)
	if err != nil {
		return raw, c.rev, err
	}
	return s.decorate(raw, cacheable), c.rev, nil
}

// describeRelay asks the relay what is offered, and adds what is the server's.
func (s *Server) describeRelay(c *call) (description, error) {
	if c.session != nil {
		c.session.users.told.Store(true)
	}
	d := description{info: s.info}
	said, err := s.opts.Relay.Describe(c)
	if err != nil {
		return d, err
	}
	if said == nil {
		said = &relay.Description{}
	}
	if said.Name != "" {
		d.info.Name, d.info.Version, d.info.Title = said.Name, said.Version, said.Title
	}
	d.instructions = said.Instructions
	if said.Capabilities != nil {
		d.capabilities = *said.Capabilities
	}
	k := &d.capabilities
	k.Extensions = s.extensions.declared(k.Extensions)
	_, tasks := k.Extensions[spec.ExtensionTasks]
	tasks = tasks || k.Tasks != nil || s.taskTools.Load()
	k.Tasks = nil
	delete(k.Extensions, spec.ExtensionTasks)
	switch {
	case !tasks:
	case c.rev.TasksExtension:
		k.Extensions[spec.ExtensionTasks] = spec.JSONObject{}
	case c.rev.LegacyTasks:
		k.Tasks = legacyTasks()
		c.session.tasks.Store(true)
	}
	if len(k.Extensions) == 0 {
		k.Extensions = nil
	}
	return d, nil
}

// relayNotification gives the relay what a session notifies.
func (x *session) relayNotification(ctx context.Context, rev *era.Revision, req *farcall.Request) {
	if !x.srv.relays() || handledBelow(req.Method) {
		return
	}
	params, err := era.Translate(era.Notification, req.Method, req.Params, rev, era.Latest())
	if err != nil {
		params = req.Params
	}
	x.srv.opts.Relay.Notified(x.beginning(ctx, rev, x.who.Load(), req), req.Method, params)
}

// relayStateless gives the relay what a client of the modern era notifies, when
// it says who it is.
func (s *Server) relayStateless(ctx context.Context, req *farcall.Request) {
	if !s.relays() || handledBelow(req.Method) {
		return
	}
	c := (&call{
		srv: s, client: farcall.CallerFrom(ctx), method: req.Method,
		params: req.Params,
	}).derive(ctx)
	if c.open() != nil {
		return
	}
	c.end() // there is no answer that anything could belong to
	s.opts.Relay.Notified(c, req.Method, req.Params)
}

// handledBelow reports whether a notification is about calls: the connection has
// handled it.
func handledBelow(method string) bool {
	return method == spec.NotificationCancelled || method == spec.NotificationProgress
}

// users counts what runs in a session, and the session itself, so that a relay
// learns when all of it has ended.
type users struct {
	n    atomic.Int32
	told atomic.Bool // the relay knows of the session
}

// hold reports whether the session has not ended yet, and keeps the relay from
// learning that it has.
func (x *session) hold() bool {
	for {
		n := x.users.n.Load()
		if n == 0 {
			return false
		}
		if x.users.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (x *session) release() {
	if x.users.n.Add(-1) > 0 {
		return
	}
	if x.users.told.Load() {
		x.srv.opts.Relay.Closed(x.name)
	}
	x.ended()
}

// hold keeps the session of a call that outlives its request.
func (c *call) hold() {
	if c.session != nil {
		c.session.hold() // the request still holds it
	}
}

func (c *call) release() {
	if c.session != nil {
		c.session.release()
	}
}

// ListChanged tells clients that a list has changed, of the server's [relay.Relay] or by
// what ServerOptions.Visible lets them see: kind is "tools", "resources" or
// "prompts". It panics for any other kind.
func (s *Server) ListChanged(kind string) {
	switch kind {
	case "tools":
		s.listChanged(listTools)
	case "resources":
		s.listChanged(listResources)
	case "prompts":
		s.listChanged(listPrompts)
	default:
		misuse(`ListChanged: there is no list %q; the kind must be "tools", "resources" or "prompts"`,
			kind)
	}
}

// Notify is relay.Notify.
func (c *call) Notify(ctx context.Context, method string, params jsonrpc.Raw) error {
	switch method {
	case spec.NotificationMessage:
		level := levelOf(params)
		if level < 0 {
			return fmt.Errorf("mcp: notify %q: the level must be one of %s", method,
				strings.Join(spec.LogLevels(), ", "))
		}
		if !c.logs(level) {
			return nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	if method == spec.NotificationProgress {
		if c.task.started() {
			var p spec.ProgressNotificationParams
			if err := jsonv2.Unmarshal(params, &p); err != nil {
				return fmt.Errorf("mcp: notify %q: %w", method, err)
			}
			c.task.report(statusMessage(&p))
		}
		token := c.progressToken()
		if token == nil {
			return nil
		}
		params = object.With(params, "progressToken", token)
	}
	return notify(ctx, c.client, c.rev, method, params)
}

// TaskState is relay.TaskOf.
func (c *call) TaskState() (can, is bool) {
	return c.task != nil, c.task.started()
}

func levelOf(params jsonrpc.Raw) int {
	raw := scan.Member(params, "level")
	if len(raw) == 0 || raw[0] != '"' {
		return -1
	}
	return spec.LogSeverity(string(scan.Unquote(raw)))
}

// runsTasks reports whether there are tasks for the caller. A relay has them when
// it has said so; clients that begin with nothing need no telling.
func (s *Server) runsTasks(c *call) bool {
	switch {
	case s.taskTools.Load(): // of a relay: there are stored ones
		return true
	case !s.relays():
		return false
	case c.session == nil:
		return true
	}
	return c.session.tasks.Load()
}

// forwardsTask reports whether a tool of the relay is to be run as a task.
func (s *Server) forwardsTask(c *call) (bool, error) {
	if !c.rev.TasksExtension && !c.rev.LegacyTasks || !s.runsTasks(c) {
		return false, nil
	}
	name, err := text("name", c.in.name)
	if err != nil {
		return false, err
	}
	tool := string(name)
	return c.wantsTask(tool, cmp.Or(s.opts.Relay.TaskSupport(c, tool), spec.TaskForbidden))
}

// forwardTask forwards a call in the background, or until it becomes a task.
func (s *Server) forwardTask(c *call) (jsonrpc.Raw, *era.Revision, error) {
	raw, err := s.startTask(c, true, func(own *call) (jsonrpc.Raw, error) {
		return s.taskOutcome(own)(s.opts.Relay.Forward(own, own.rev, own.method, own.params))
	})
	if err != nil {
		return nil, nil, err
	}
	if c.rev.ResultTypes && string(scan.Member(raw, "resultType")) != `"`+spec.ResultComplete+`"` {
		raw = s.decorate(raw, false)
	}
	return raw, era.Latest(), nil
}

// taskOutcome returns what makes of a relay's result the one of a task.
func (s *Server) taskOutcome(
	own *call,
) func(jsonrpc.Raw, *era.Revision, error) (jsonrpc.Raw, error) {
	return func(raw jsonrpc.Raw, in *era.Revision, err error) (jsonrpc.Raw, error) {
		if err == nil {
			raw, in, err = s.forwarded(own, raw, in, false)
		}
		if err == nil && !own.rev.ResultTypes {
			raw, err = era.Translate(era.Result, own.method, raw, in, era.Latest())
		}
		if err != nil && own.rev.ReservedCodes && !errors.Is(err, relay.ErrTaskLeft) {
			err = legacyCode(err, own.rev)
		}
		return raw, err
	}
}

// KeepTask is relay.KeepTask.
func (c *call) KeepTask(state []byte) error {
	if c.task == nil || c.srv.records(c.task.owner) == store.Records(c.srv.memory) {
		return nil
	}
	return c.task.keep(slices.Clone(state))
}

func (t *task) keep(state []byte) error {
	t.ends.Lock()
	defer t.ends.Unlock()
	t.kept = state
	t.mu.Lock()
	known := t.live && !spec.TaskEnded(t.status)
	t.mu.Unlock()
	if !known {
		return nil // begin stores it, if there is a beginning
	}
	if err := t.persistLocked(); err != nil {
		return t.srv.notKept(err)
	}
	return nil
}

// leave lets go of a task that goes on at another server, for good when this server is closed. It
// reports false for one that has ended or cannot be resumed.
func (t *task) leave(forGood bool) bool {
	t.ends.Lock()
	defer t.ends.Unlock()
	t.mu.Lock()
	ended := spec.TaskEnded(t.status)
	t.mu.Unlock()
	if ended || len(t.kept) == 0 {
		return false
	}
	t.dormant, t.left = true, t.left || forGood
	if t.shared() && !t.remote {
		t.node = noNode // any server that is asked goes on with it
		if err := t.persistLocked(); err != nil {
			t.node = t.srv.shared.node
			t.srv.shared.logged(err)
		}
	}
	t.cancel(errTaskClosed)
	return true
}

// asleep reports whether nothing here follows the task.
func (t *task) asleep() bool {
	t.ends.Lock()
	defer t.ends.Unlock()
	return t.dormant
}

// resume goes on with a task that is dormant, in the name of its owner, who asks for it.
func (s *Server) resume(c *call, t *task) {
	t.ends.Lock()
	defer t.ends.Unlock()
	t.mu.Lock()
	ended := spec.TaskEnded(t.status)
	t.mu.Unlock()
	if !t.dormant || t.left || ended {
		return
	}
	own, err := s.taskCall(c, t, spec.MethodToolsCall,
		append(jsonrpc.AppendString(jsonrpc.Raw(`{"name":`), t.tool), '}'))
	if err != nil {
		return // it would have failed before
	}
	if t.node == noNode {
		t.node = s.shared.node
		if err := t.persistLocked(); err != nil || t.remote {
			if s.shared.logged(err); !t.remote {
				t.node = noNode
			}
			return
		}
	}
	t.dormant = false
	state, r := t.kept, s.opts.Relay.(relay.Resumer) //nolint:errcheck // a dormant task has one
	own.hold()
	go t.run(own, func(own *call) (jsonrpc.Raw, error) {
		return s.taskOutcome(own)(r.ResumeTask(own, own.rev, state))
	}, t.finish)
}
