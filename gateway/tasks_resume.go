package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

var _ relay.Resumer = (*endpoint)(nil)

// cancelTimeout bounds the cancellation of a task that nothing follows.
const cancelTimeout = 5 * time.Second

// A taskState is what the gateway stores of a task of an upstream, with the task of its client.
type taskState struct {
	Upstream string `json:"upstream"`
	Task     string `json:"task"`
}

// keptTask is the task that an upstream may have made of a call.
type keptTask struct {
	g        *Gateway
	upstream string      // "": its tasks end with the gateway
	known    atomic.Bool // it has made one, which is stored
}

// keepTask prepares a call at a server that may make a task of it.
func (w *calling) keepTask(s *server) {
	w.kept = &keptTask{g: s.g}
	if s.target != nil { // a child ends with the gateway
		w.kept.upstream = s.cfg.Name
	}
	w.OnTask = func(id string) error { return w.kept.start(w, id) }
	w.LeaveTask = w.kept.leave
}

// start makes the client's call a task, where the upstream's is one.
func (k *keptTask) start(ctx context.Context, id string) error {
	if k.upstream != "" {
		state, err := jsonv2.Append(nil, taskState{Upstream: k.upstream, Task: id})
		if err == nil {
			err = relay.KeepTask(ctx, state)
		}
		if err != nil {
			return err
		}
	}
	err := mcp.StartTask(ctx)
	k.known.Store(err == nil && k.upstream != "" && relay.TaskOf(ctx) == relay.IsTask)
	return err
}

// leave reports whether the task is to go on at the upstream: the gateway ends, and the next one will
// look for it.
func (k *keptTask) leave() bool {
	return k.known.Load() && k.g.draining.Load() && k.g.tasks.dir != ""
}

// left returns the error of a call whose task may still run at the upstream. A nil keptTask has none.
func (k *keptTask) left(err error) error {
	if err != nil && k != nil && k.leave() {
		return fmt.Errorf("%w: %w", relay.ErrTaskLeft, err)
	}
	return err
}

// ResumeTask implements relay.Resumer.
func (e *endpoint) ResumeTask(ctx context.Context, rev *era.Revision, state []byte) (jsonrpc.Raw, *era.Revision, error) {
	if e.g.draining.Load() {
		return nil, nil, fmt.Errorf("%w: %w", relay.ErrTaskLeft, errDraining())
	}
	var of taskState
	if err := jsonv2.Unmarshal(state, &of); err != nil {
		return nil, nil, fmt.Errorf("gateway: the stored state of a task cannot be read: %w", err)
	}
	defer farcall.Waiting(ctx)()
	w := e.g.newCalling(ctx)
	w.Method, w.Revision, w.TaskID = spec.MethodToolsCall, rev, of.Task
	r, err := e.forward(w, of.Upstream)
	if err == nil || w.kept == nil || w.kept.known.Load() {
		return r.Raw, r.Revision, w.kept.left(err)
	}
	wire, _ := errors.AsType[*jsonrpc.Error](err)
	switch {
	case ctx.Err() != nil:
		e.cancelTask(w, of)
	case wire != nil && string(scan.Member(wire.Data, "retryable")) == "true":
		e.g.opts.Logger.Warn("a task cannot be resumed now; it is tried again when its client asks", "upstream", of.Upstream, "error", err)
		return nil, nil, fmt.Errorf("%w: %w", relay.ErrTaskLeft, err)
	case wire != nil && wire.Code == jsonrpc.InvalidParams:
		err = jsonrpc.Errorf(jsonrpc.InternalError, "the gateway was stopped while the task ran, and the upstream %s does not know the task any more: %s", of.Upstream, wire.Message)
	}
	return nil, nil, err
}

// cancelTask cancels a task that was given up before it was followed.
func (e *endpoint) cancelTask(w *calling, of taskState) {
	s := e.g.plan.Load().byName[of.Upstream]
	if s == nil || s.mcp == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w), cancelTimeout)
	defer cancel()
	params, err := jsonv2.Append(nil, spec.TaskParams{TaskID: of.Task})
	if err == nil {
		_, err = s.mcp.Call(ctx, &upstream.Call{Method: spec.MethodTasksCancel, Params: params, Caller: w.Caller})
	}
	if err != nil {
		e.g.opts.Logger.Warn("a task could not be cancelled", "upstream", of.Upstream, "error", err)
	}
}
