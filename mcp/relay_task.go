package mcp

import (
	"cmp"
	"errors"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

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

// dropTask takes out of the params what asks for a task: whether there is one is
// decided, and it is the server's.
func (c *call) dropTask() {
	if c.in.task != nil && !c.rev.TasksExtension {
		c.params = object.New(c.params, "task").End()
	}
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
func (s *Server) taskOutcome(own *call) func(jsonrpc.Raw, *era.Revision, error) (jsonrpc.Raw, error) {
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
	own, err := s.taskCall(c, t, spec.MethodToolsCall, append(jsonrpc.AppendString(jsonrpc.Raw(`{"name":`), t.tool), '}'))
	if err != nil {
		return // it would have failed before
	}
	t.dormant = false
	state, r := t.kept, s.opts.Relay.(relay.Resumer) //nolint:errcheck // a dormant task has one
	own.hold()
	go t.run(own, func(own *call) (jsonrpc.Raw, error) {
		return s.taskOutcome(own)(r.ResumeTask(own, own.rev, state))
	}, t.finish)
}
