package mcp

import (
	"context"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// mayBeTask reports whether the answer to a call may be a task.
func (w *forwarding) mayBeTask(l *link) bool {
	if w.Method != spec.MethodToolsCall {
		return false
	}
	return w.asTask || l.rev.TasksExtension && l.info.Capabilities != nil && l.info.Capabilities.Extensions[spec.ExtensionTasks] != nil
}

// How long the answer to a call that was given up may still come. A server that
// was asked to make a task of it, answers at once.
const (
	taskGrace = closeTimeout
	callGrace = 100 * time.Millisecond
)

// lingering returns a context that ends a moment after ctx: a task that the server
// has just made must be known, to be cancelled.
func (w *forwarding) lingering(ctx context.Context) (inner context.Context, end func()) {
	grace := callGrace
	if w.asTask {
		grace = taskGrace
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-inner.Done():
		}
	})
	return inner, func() {
		stop()
		cancel(nil)
	}
}

// created returns the task that the answer to a call is, or nil. kind is its
// resultType, if it is a modern one.
func (w *forwarding) created(raw jsonrpc.Raw, kind string) (*spec.DetailedTask, error) {
	switch {
	case kind == spec.ResultTask && w.Method == spec.MethodToolsCall:
		return readTask(raw)
	case kind == "" && w.task:
		return createdTask(raw), nil
	}
	return nil, nil //nolint:nilnil // there is none
}

// finish follows the task of a call to its end.
func (w *forwarding) finish(ctx context.Context, t *spec.DetailedTask) (jsonrpc.Raw, *era.Revision, error) {
	f := w.follower()
	if w.Tasks != nil {
		if err := w.Tasks.TaskStarted(t.TaskID, t.CreatedAt); err != nil {
			f.giveUp(ctx, t.TaskID)
			return nil, nil, err
		}
	}
	raw, in, err := f.finish(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	return withoutRelatedTask(raw), in, nil
}

// resume follows a task that an earlier call has made.
func (w *forwarding) resume(ctx context.Context) (jsonrpc.Raw, *era.Revision, error) {
	t, err := w.follower().state(ctx, w.TaskID)
	if err != nil {
		return nil, nil, err
	}
	return w.finish(ctx, t)
}

// follower returns the follower of the task of this call. It may cancel the task after Forward has
// returned, when the bytes of the caller's request are in use again: it has copies of them.
func (w *forwarding) follower() *follower {
	who := &relay.Forward{Info: w.Info, Capabilities: w.Capabilities, Timeout: w.Timeout}
	if w.rev.RequestMeta {
		meta := scan.Member(w.params, "_meta")
		who.Info = orElse(scan.Member(meta, spec.MetaClientInfo), who.Info)
		who.Capabilities = orElse(scan.Member(meta, spec.MetaClientCapabilities), who.Capabilities)
	}
	who.Info, who.Capabilities = slices.Clone(who.Info), slices.Clone(who.Capabilities)
	f := &follower{c: w.c, resumed: w.TaskID != "", created: w.TaskCreated}
	f.call = func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, *era.Revision, error) {
		call := *who
		call.Method, call.Params = method, params
		return w.c.forwardTask(ctx, &call)
	}
	if w.Tasks != nil {
		f.leave = w.Tasks.LeavesTask
	}
	return f
}

// forwardTask makes a call about a task in the name of the caller that has made that. What it
// returns is in the form of the newest revision, but for the result of the tool.
func (c *Client) forwardTask(ctx context.Context, f *relay.Forward) (jsonrpc.Raw, *era.Revision, error) {
	raw, in, err := c.Forward(ctx, f)
	if err != nil || f.Method == spec.MethodTasksResult {
		return raw, in, err
	}
	raw, err = era.Translate(era.Result, f.Method, raw, in, era.Latest())
	return raw, era.Latest(), err
}

// withoutRelatedTask returns a result that does not name the task with the result that it
// is, which is not known any more.
func withoutRelatedTask(raw jsonrpc.Raw) jsonrpc.Raw {
	meta := scan.Member(raw, "_meta")
	if scan.Member(meta, spec.MetaRelatedTask) == nil {
		return raw
	}
	out := object.New(raw, "_meta")
	if kept := object.New(meta, spec.MetaRelatedTask); len(*kept) > 1 {
		out.Add("_meta", kept.End())
	}
	return out.End()
}
