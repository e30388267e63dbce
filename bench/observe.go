package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/metrics"
	"github.com/farcall-dev/farcall/observe/traces"
)

// The groups of what observers cost.
const (
	observedCall  = "observe: a call, alone"
	observeScrape = "observe: a scrape of 50 servers with 40 tools each"

	unobserved     = "off"
	observedIdle   = "an observer that does nothing"
	observedCounts = "metrics"
	observedOut    = "metrics and traces, sampled out"
	observedSpans  = "metrics and traces, sampled"
	observedSome   = "metrics and traces, 1 % sampled"
	scraped        = "farcall"
)

// observedLoad is what calls over HTTP have, where all is on.
var observedLoad = fmt.Sprintf("observe: HTTP POST, %d in flight", inFlight)

func observeGroups() []group {
	counts := func() *observe.Observer { return metrics.New(nil).Observer() }
	spans := func(ratio float64) *observe.Observer {
		return observe.Join(counts(),
			traces.New(&traces.Options{Ratio: ratio, Spans: noSpans{}}).Observer())
	}
	idle := &observe.Observer{
		Start:  func(ctx context.Context, _ *observe.Call) context.Context { return ctx },
		End:    func(context.Context, *observe.Call) {},
		Refuse: func(context.Context, *observe.Call) {},
		Frame:  func(observe.Frame) {},
	}
	return []group{
		{name: observedCall, workers: 1, base: unobserved, subjects: []subject{
			{unobserved, observed(nil)},
			{observedIdle, observed(idle)},
			{observedCounts, observed(counts())},
			{observedOut, observed(spans(-1))},
			{observedSpans, observed(spans(1))},
		}},
		{name: observedLoad, workers: inFlight, base: unobserved, subjects: []subject{
			{unobserved, observedHTTP(unobserved, nil).running},
			{observedSome, observedHTTP(observedSome, spans(0.01)).running},
		}},
		{
			name: observeScrape, workers: 1, base: scraped,
			subjects: []subject{{scraped, repeating(scrape())}},
		},
	}
}

// noSpans drops what a tracer hands over.
type noSpans struct{ sdk.SpanProcessor }

func (noSpans) OnEnd(sdk.ReadOnlySpan) {}

// observed is a call of a handler that does nothing, in no trace.
func observed(o *observe.Observer) func() (*running, error) {
	mux := farcall.NewMux()
	mux.Handle("ok", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, nil
	}))
	r := farcall.NewResponder(mux, &farcall.Options{Observer: o})
	frame, out := []byte(`{"jsonrpc":"2.0","method":"ok","id":1}`), make([]byte, 0, 1024)
	return repeating(func() error {
		r.Respond(context.Background(), out, frame, nil)
		return nil
	})
}

// observedHTTP is a server of echo with an observer.
func observedHTTP(name string, o *observe.Observer) httpServer {
	return httpServer{name, httpRequest, func() (http.Handler, func(), error) {
		rpc := &farcall.Options{Observer: o}
		return httprpc.NewHandler(farcallMethods(), &httprpc.Options{RPC: rpc}), func() {}, nil
	}}
}

// scrape reads the metrics of 2,000 tools that were called.
func scrape() func() error {
	m := metrics.New(nil)
	o := m.Observer()
	for i := range 2000 {
		c := &observe.Call{
			MCP: true, Known: true, Method: "tools/call", Tool: fmt.Sprintf("server%d__tool%d", i/40, i%40),
			Revision: "2025-11-25", Transport: "http",
		}
		for range 20 {
			o.End(o.Start(context.Background(), c), c)
			c.Took = c.Took*3/2 + 1000
		}
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil)
	return func() error {
		m.ServeHTTP(&discarding{header: http.Header{}}, r)
		return nil
	}
}

// discarding is a client that keeps nothing of its answer.
type discarding struct{ header http.Header }

func (d *discarding) Header() http.Header       { return d.header }
func (*discarding) WriteHeader(int)             {}
func (*discarding) Write(p []byte) (int, error) { return len(p), nil }

func observeMarks() []mark {
	more := func(of, than string) func(results) float64 {
		return func(rs results) float64 {
			a, b := rs.find(observedCall, of), rs.find(observedCall, than)
			if a == nil || b == nil {
				return notWanted
			}
			each := make([]float64, len(a.ns))
			for i := range each {
				each[i] = max(a.ns[i]-b.ns[i], 0)
			}
			return median(each)
		}
	}
	return []mark{
		{observedCall + ": metrics, more than off", 120, " ns", more(observedCounts, unobserved)},
		{observedCall + ": metrics, allocations more than off", 0, "", func(rs results) float64 {
			a, b := rs.find(observedCall, observedCounts), rs.find(observedCall, unobserved)
			if a == nil || b == nil {
				return notWanted
			}
			return max(float64(int(median(a.allocs)*10+0.5)-int(median(b.allocs)*10+0.5)), 0) / 10
		}},
		{
			observedCall + ": traces that are sampled out, more than metrics", 60, " ns",
			more(observedOut, observedCounts),
		},
		{observedCall + ": a span, more than metrics", 3500, " ns", more(observedSpans, observedCounts)},
		{
			observedLoad + ": calls per second, 1 % sampled, in times of off", -0.95, "",
			func(rs results) float64 {
				a, b := rs.find(observedLoad, observedSome), rs.find(observedLoad, unobserved)
				if a == nil || b == nil {
					return notWanted
				}
				return ratio(b, a)
			},
		},
		{observeScrape, 20, " ms", func(rs results) float64 {
			r := rs.find(observeScrape, scraped)
			if r == nil {
				return notWanted
			}
			return median(r.ns) / 1e6
		}},
	}
}
