package gateway

import (
	"context"
	"errors"
	"sync"
)

// Connect connects to the servers with connections that all clients share, which
// otherwise happens when they are needed, and waits until each has said who it
// is. Its error tells of those that have not; the next call tries them again.
// Servers of the profile raw are left alone: how to greet them is not known.
func (g *Gateway) Connect(ctx context.Context) error {
	var wg sync.WaitGroup
	servers := g.plan.Load().mcp
	failed := make([]error, len(servers))
	for i, s := range servers {
		if !s.cfg.forAll() {
			continue
		}
		wg.Go(func() { _, failed[i] = s.mcp.Describe(ctx, g.caller(ctx)) })
	}
	wg.Wait()
	return errors.Join(failed...)
}
