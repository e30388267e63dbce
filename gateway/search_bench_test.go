package gateway

import (
	"context"
	"fmt"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// BenchmarkSearch searches 2,500 tools of 50 servers: without a guard and with one that is asked
// about each tool, with lists that are kept until a server says that they have changed
// (2025-11-25), and with lists that no server lets the gateway keep (2026-07-28).
func BenchmarkSearch(b *testing.B) {
	for _, rev := range []string{"2025-11-25", "2026-07-28"} {
		b.Run(rev, func(b *testing.B) { benchmarkSearch(b, rev) })
	}
}

func benchmarkSearch(b *testing.B, rev string) {
	b.Helper()
	upstreams := manyThings(50, rev)
	for name, guarded := range map[string]*guard.Config{
		"open":    nil,
		"guarded": {Anonymous: true, Allow: []guard.Rule{{Calls: []string{"tools/*", "server/*"}}}},
	} {
		b.Run(name, func(b *testing.B) {
			g, err := New(
				&Config{Upstreams: upstreams, Search: &Search{}, Namespace: "always", Guard: guarded}, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer shutdownNow(g.Shutdown)
			e := g.endpoint("")
			h := farcall.Handler(
				farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
					w := g.newCalling(ctx)
					w.Method, w.Params, w.Revision = req.Method, req.Params, era.Latest()
					r, err := e.search(w, e.searchOf())
					return r.Raw, err
				}))
			if g.shield != nil {
				h = g.shield.Identify(&guard.Conn{Transport: "tcp", Remote: "127.0.0.1:1", Local: true})(h)
			}
			req := &farcall.Request{
				Method: spec.MethodToolsCall,
				Params: jsonrpc.Raw(
					`{"name":"search_tools","arguments":{"query":"create thing of user 7 in a project"}}`),
			}
			for range 2 { // the lists are fetched, and decisions remembered
				if _, err := h.ServeRPC(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = h.ServeRPC(b.Context(), req)
			}
		})
	}
}

// manyThings are 50 servers with as many tools each.
func manyThings(tools int, rev string) (upstreams []*Upstream) {
	for i := range 50 {
		s := mcp.NewServer("s", "1", nil)
		for j := range tools {
			mcp.AddTool(s, mcp.Tool{
				Name:        fmt.Sprintf("create_thing_%d", j),
				Description: fmt.Sprintf("Creates thing %d of user %d in project %d.", j, i, j%7),
			}, func(context.Context, struct {
				User  string `json:"user"`
				Thing string `json:"thing" jsonschema:"its number"`
			},
			) (string, error) {
				return "", nil
			})
		}
		upstreams = append(upstreams, &Upstream{Name: fmt.Sprintf("server%d", i), Server: s, Era: rev})
	}
	return upstreams
}

// BenchmarkList lists 2,000 tools of 50 servers through a virtual server, on one page, when the
// lists of the servers are known.
func BenchmarkList(b *testing.B) {
	g, err := New(
		&Config{
			Upstreams: manyThings(40, "2025-11-25"), Endpoints: []*Endpoint{{Name: "all"}},
			PageSize: 2000,
		}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer shutdownNow(g.Shutdown)
	e := g.endpoint("all")
	b.ReportAllocs()
	for b.Loop() {
		if raw, err := e.list(b.Context(), "tools", era.Latest(), nil); err != nil || len(raw) < 400_000 {
			b.Fatal(len(raw), err)
		}
	}
}
