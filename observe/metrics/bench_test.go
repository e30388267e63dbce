package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/metrics"
)

// responding returns a call of a handler that does nothing.
func responding(o *observe.Observer) func(context.Context) {
	mux := farcall.NewMux()
	mux.Handle("ok", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) { return nil, nil }))
	r := farcall.NewResponder(mux, &farcall.Options{Observer: o})
	frame, out := []byte(`{"jsonrpc":"2.0","method":"ok","id":1}`), make([]byte, 0, 1024)
	return func(ctx context.Context) { r.Respond(ctx, out, frame, nil) }
}

// Metrics cost a call no allocation.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	count := func(o *observe.Observer) float64 {
		call := responding(o)
		return testing.AllocsPerRun(200, func() { call(t.Context()) })
	}
	if off, on := count(nil), count(metrics.New(nil).Observer()); on > off {
		t.Errorf("%v allocations with metrics, %v without", on, off)
	}
}

// BenchmarkCall is what metrics add to a call.
func BenchmarkCall(b *testing.B) {
	for name, o := range map[string]*observe.Observer{"off": nil, "idle": {}, "on": metrics.New(nil).Observer()} {
		b.Run(name, func(b *testing.B) {
			call := responding(o)
			b.ReportAllocs()
			for b.Loop() {
				call(b.Context())
			}
		})
	}
}

// BenchmarkScrape reads the metrics of 50 servers with 40 tools each.
func BenchmarkScrape(b *testing.B) {
	m := metrics.New(nil)
	o := m.Observer()
	for i := range 2000 {
		c := &observe.Call{MCP: true, Known: true, Method: "tools/call", Tool: fmt.Sprintf("server%d__tool%d", i/40, i%40), Revision: "2025-11-25", Transport: "http"}
		for range 20 {
			o.End(o.Start(b.Context(), c), c)
			c.Took = c.Took*3/2 + 1000
		}
	}
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil)
	for b.Loop() {
		w := &discarding{header: http.Header{}}
		m.ServeHTTP(w, r)
		b.ReportMetric(float64(w.size)/1e6, "MB")
	}
}

// discarding is a client that keeps nothing of its answer.
type discarding struct {
	header http.Header
	size   int
}

func (d *discarding) Header() http.Header { return d.header }
func (d *discarding) WriteHeader(int)     {}

func (d *discarding) Write(p []byte) (int, error) {
	d.size += len(p)
	return len(p), nil
}
