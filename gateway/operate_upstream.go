package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// How long an answer waits for a server that is to end, and for one that is to start.
const (
	endWait   = 5 * time.Second
	startWait = 10 * time.Second
)

// Restart implements control.Backend.
func (o operator) Restart(ctx context.Context, name string, how *control.Restart) (*control.Upstream, error) {
	what := restart
	if how.Graceful {
		what = restartOrderly
	}
	was := o.g.plan.Load().byName[name]
	up := was != nil && was.mcp != nil && was.mcp.Status().Connections > 0
	return o.order(ctx, name, what, up)
}

// Drain implements control.Backend.
func (o operator) Drain(ctx context.Context, name string) (*control.Upstream, error) {
	return o.order(ctx, name, drain, false)
}

// Disable implements control.Backend.
func (o operator) Disable(ctx context.Context, name string) (*control.Upstream, error) {
	return o.order(ctx, name, disable, false)
}

// Enable implements control.Backend.
func (o operator) Enable(ctx context.Context, name string) (*control.Upstream, error) {
	return o.order(ctx, name, enable, false)
}

// order has an order carried out, and waits a while for what it ends, and for what it starts.
func (o operator) order(ctx context.Context, name string, what order, start bool) (*control.Upstream, error) {
	c, err := o.g.plan.Load().configured(name)
	if err != nil {
		return nil, err
	}
	now, done, err := o.g.obey(name, what)
	wire, _ := errors.AsType[*jsonrpc.Error](err)
	switch {
	case errors.Is(err, errConfigured), errors.Is(err, errHeld):
		return nil, control.NewProblem(http.StatusConflict, name+" cannot be changed so: "+err.Error())
	case wire != nil:
		return nil, control.NewProblem(http.StatusServiceUnavailable, wire.Message)
	case err != nil:
		return nil, control.NewProblem(http.StatusConflict, "nothing has changed: the configuration cannot be applied again: "+err.Error())
	}
	if what == restart || what == disable {
		await(ctx, done)
	}
	if start && now.cfg.forAll() {
		ctx, cancel := context.WithTimeout(ctx, startWait)
		_ = now.mcp.Check(ctx) // the state says what came of it
		cancel()
	}
	return &o.upstream(o.g.plan.Load(), c).Upstream, nil
}

// await waits until a server has ended, for endWait at most.
func await(ctx context.Context, done <-chan struct{}) {
	timer := time.NewTimer(endWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}
