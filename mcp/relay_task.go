package mcp

import (
	"cmp"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// runsTasks reports whether there are tasks for the caller. A relay has them when
// it has said so; clients that begin with nothing need no telling.
func (s *Server) runsTasks(c *call) bool {
	switch {
	case !s.relays():
		return s.taskTools.Load()
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
		raw, in, err := s.opts.Relay.Forward(own, own.rev, own.method, own.params)
		if err == nil {
			raw, in, err = s.forwarded(own, raw, in, false)
		}
		if err == nil && !own.rev.ResultTypes {
			raw, err = era.Translate(era.Result, own.method, raw, in, era.Latest())
		}
		if err != nil && own.rev.ReservedCodes {
			err = legacyCode(err, own.rev)
		}
		return raw, err
	})
	if err != nil {
		return nil, nil, err
	}
	if c.rev.ResultTypes && string(scan.Member(raw, "resultType")) != `"`+spec.ResultComplete+`"` {
		raw = s.decorate(raw, false)
	}
	return raw, era.Latest(), nil
}
