package gateway_test

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/observe/traces"
)

// The start of a child process has a span, in the trace of the call that it was started for.
func TestTracesOfChildStart(t *testing.T) {
	t.Parallel()
	kept := &spans{}
	s := newStage(t)
	t.Cleanup(s.close) // after the gateway: its children report to it
	u := s.upstream(t, era.LatestLegacy(), overStdio)
	u.Lifetime = "call"
	tracer := traces.New(&traces.Options{Spans: kept})
	h := newHouse(t, &gateway.Config{Upstreams: []*gateway.Upstream{u}},
		&gateway.Options{RPC: &farcall.Options{Observer: tracer.Observer()}})
	c, leave, err := h.enter(t.Context(), overHTTP, &mcp.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tools(t.Context()); err != nil { // all lists are fetched, each from a child
		t.Fatal(err)
	}
	id := traceID(60)
	ctx := farcall.WithTrace(t.Context(),
		farcall.Trace{Parent: "00-" + id + "-" + callersSpan + "-01"})
	if r, err := c.CallTool(ctx, "trace", nil); err != nil || r.IsError {
		t.Fatal(r, err)
	}
	if err := leave(); err != nil {
		t.Error(err)
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	below, others := 0, 0
	for _, span := range kept.all {
		if span.Name() != "child start" {
			continue
		}
		if span.SpanKind() != trace.SpanKindInternal ||
			!hasAttribute(span, attribute.String("farcall.upstream", "play")) ||
			span.EndTime().Equal(span.StartTime()) {
			t.Errorf("%v, %v", span.SpanKind(), span.Attributes())
		}
		if span.Parent().IsValid() && span.SpanContext().TraceID().String() == id {
			below++
		} else {
			others++
		}
	}
	if below != 1 || others == 0 {
		t.Errorf("%d starts in the trace of the call, %d in others", below, others)
	}
}
