package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe/traces"
)

// spans keeps those that have ended.
type spans struct {
	sdk.SpanProcessor

	mu  sync.Mutex
	all []sdk.ReadOnlySpan
}

func (s *spans) OnEnd(span sdk.ReadOnlySpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, span)
}

// of returns the spans of a trace by their parents.
func (s *spans) of(trace string) map[string][]sdk.ReadOnlySpan {
	s.mu.Lock()
	defer s.mu.Unlock()
	tree := map[string][]sdk.ReadOnlySpan{}
	for _, span := range s.all {
		if span.SpanContext().TraceID().String() == trace {
			at := span.Parent().SpanID().String()
			tree[at] = append(tree[at], span)
		}
	}
	return tree
}

// drawn is what can be reached from a span: one line each, indented.
func drawn(tree map[string][]sdk.ReadOnlySpan, from, indent string) (text string) {
	for _, s := range tree[from] {
		text += fmt.Sprintf("%s%s %s\n", indent, s.SpanKind(), s.Name()) + drawn(tree, s.SpanContext().SpanID().String(), indent+"  ")
	}
	return text
}

// Through a gateway a call is one trace: the client's span has the gateway's below it, that has the one of each attempt
// at the server, and the server gets that one, in every revision and over every transport.
func TestTraceThroughGateway(t *testing.T) {
	for _, rev := range era.Revisions() {
		for _, over := range []string{overHTTP, overStdio, overWS, overTCP} {
			t.Run(rev.Name+" over "+over, func(t *testing.T) {
				kept := &spans{}
				tracer := traces.New(&traces.Options{Spans: kept})
				s := newStage(t)
				t.Cleanup(s.close) // after the gateway, whose children report to it
				u := s.upstream(t, rev, over)
				h := newHouse(t, &gateway.Config{Upstreams: []*gateway.Upstream{u}}, &gateway.Options{RPC: &farcall.Options{Observer: tracer.Observer()}})
				ctx, cancel := context.WithTimeout(t.Context(), cellTime)
				defer cancel()
				v := &visit{client: rev, clientOver: over, server: rev, serverOver: over, stage: s, name: "v", logs: make(chan string, 100), changed: make(chan string, 100), updated: make(chan string, 100), listening: make(chan spec.SubscriptionFilter, 10)}
				c, leave, err := h.enter(ctx, over, v.options())
				if err != nil {
					t.Fatal(err)
				}
				v.Client = c
				id := "0af7651916cd43dd8448eb211c80319c"
				text, err := v.tool(farcall.WithTrace(ctx, farcall.Trace{Parent: "00-" + id + "-b7ad6b7169203331-01", State: "a=b"}), "trace", nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := leave(); err != nil {
					t.Error(err)
				}
				tree := kept.of(id)
				got := drawn(tree, "b7ad6b7169203331", "")
				if !strings.Contains("\n"+got, "\nserver tools/call") || !strings.HasSuffix(got, "\n  client tools/call\n") {
					t.Errorf("the trace is\n%s", got)
				}
				var all, sent int
				for _, below := range tree {
					all += len(below)
					for _, s := range below {
						if s.Name() == "tools/call" && strings.Contains(text, "-"+s.SpanContext().SpanID().String()+"-01") {
							sent++
						}
					}
				}
				if all != strings.Count(got, "\n") || sent != 1 || !strings.Contains(text, "a=b") {
					t.Errorf("%d spans; these are connected:\n%sthe server gets %s", all, got, text)
				}
			})
		}
	}
}
