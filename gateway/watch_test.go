package gateway_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A client that watches a resource goes on to hear of it when another server has
// taken the place of the one that it has subscribed at.
func TestWatchOutlivesReload(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			serve := func() (*mcp.Server, *gateway.Upstream) {
				m := newMock("")
				m.AddResource(mcp.Resource{URI: "x://a", Name: "a"},
					func(_ context.Context, uri string) ([]mcp.ResourceContents, error) {
						return []mcp.ResourceContents{{URI: uri, Text: "a"}}, nil
					})
				return m.Server, m.tcp(t, "a")
			}
			before, u := serve()
			l := newLab(t, nil, u)
			var told atomic.Int64
			c, err := l.pipe(t, mcp.ClientOptions{Era: era, OnResourceUpdated: func(string) { told.Add(1) }})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var listening sync.WaitGroup
			listening.Go(func() {
				_ = c.Listen(ctx, spec.SubscriptionFilter{ResourceSubscriptions: []string{"x://a"}})
			})
			until(t, "it is notified", func() bool {
				before.ResourceUpdated("x://a")
				return told.Load() > 0
			})
			for range 2 {
				after, u := serve()
				u.Timeout = time.Hour
				told.Store(0)
				if err := l.Reload(&gateway.Config{Upstreams: []*gateway.Upstream{u}}); err != nil {
					t.Fatal(err)
				}
				until(t, "it learns that it may have changed", func() bool { return told.Load() > 0 })
				told.Store(0)
				until(t, "it is notified by the new server", func() bool {
					after.ResourceUpdated("x://a")
					return told.Load() > 0
				})
			}
			cancel()
			listening.Wait()
		})
	}
}
