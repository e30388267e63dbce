package gateway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/internal/race"
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
		text += fmt.Sprintf("%s%s %s\n", indent, s.SpanKind(), s.Name()) +
			drawn(tree, s.SpanContext().SpanID().String(), indent+"  ")
	}
	return text
}

// traced are things that a client does; each is to be one trace. TestMatrix looks at what comes of
// them.
func traced() map[string]func(ctx context.Context, v *matrixClient) {
	return map[string]func(ctx context.Context, v *matrixClient){
		"call": func(ctx context.Context, v *matrixClient) { _, _ = v.tool(ctx, "trace", nil) },
		"list": func(ctx context.Context, v *matrixClient) { _, _ = v.Tools(ctx) },
		"question": func(ctx context.Context, v *matrixClient) {
			_, _ = v.tool(ctx, "greet", playText{v.name})
		},
		"task": func(ctx context.Context, v *matrixClient) {
			if task, err := v.StartTask(ctx, "job", playText{v.name}, 0); err == nil && task.TaskID != "" {
				_, _ = v.WaitTask(ctx, task.TaskID)
			}
		},
	}
}

// Through a gateway, whatever a client does is one trace: each span of the gateway has the client's
// above it, and each attempt at the server the one of the call that it is for.
func TestTraces(t *testing.T) {
	race.Skip(t, "TestTraceThroughGateway has the same transports")
	t.Parallel()
	chosen := covering(ends())
	if full.Wanted() {
		chosen = everyPair(ends())
	}
	var tried atomic.Int64
	t.Run("servers", func(t *testing.T) {
		for _, server := range ends() {
			t.Run(server.rev.Name+" over "+server.transport, func(t *testing.T) {
				t.Parallel()
				kept := &spans{}
				tracer := traces.New(&traces.Options{Spans: kept})
				s := newStage(t)
				t.Cleanup(s.close) // after the gateway: its children report to it
				h := newHouse(t,
					&gateway.Config{Upstreams: []*gateway.Upstream{s.upstream(t, server.rev, server.transport)}},
					&gateway.Options{RPC: &farcall.Options{Observer: tracer.Observer()}})
				for n, client := range ends() {
					if !chosen[[2]end{client, server}] {
						continue
					}
					v := &matrixClient{
						client: client.rev, clientOver: client.transport, server: server.rev,
						serverOver: server.transport, stage: s, name: fmt.Sprintf("client-%d", n+1),
						logs: make(chan string, 1000), changed: make(chan string, 1000),
						updated: make(chan string, 1000), listening: make(chan spec.SubscriptionFilter, 100),
					}
					tried.Add(runTraced(t, h, v, kept))
				}
			})
		}
	})
	t.Logf("%d traces", tried.Load())
}

// runTraced has a client do everything, and looks at the traces. It returns how many there were.
func runTraced(t *testing.T, h *house, v *matrixClient, kept *spans) (tried int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cellTime)
	defer cancel()
	c, leave, err := h.enter(ctx, v.clientOver, v.options())
	if err != nil {
		t.Error(v, err)
		return 0
	}
	v.Client = c
	ids := map[string]string{}
	for kind, do := range traced() {
		ids[kind] = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()|1)
		do(farcall.WithTrace(ctx,
			farcall.Trace{Parent: "00-" + ids[kind] + "-" + callersSpan + "-01", State: "a=b"}), v)
	}
	if err := leave(); err != nil {
		t.Error(v, err)
	}
	for kind, id := range ids {
		tree := kept.of(id)
		all, got := 0, drawn(tree, callersSpan, "")
		for _, below := range tree {
			all += len(below)
		}
		none := kind == "task" && forTasks(v.client, v.server) != nil // the client sends nothing
		if (got == "") != none || all != strings.Count(got, "\n") {
			t.Errorf("%v: %s: %d spans; these are connected:\n%s", v, kind, all, got)
		}
		// which call starts it is not fixed
		got = strings.Replace(got, "\n  internal child start\n", "\n", 1)
		if kind == "call" && (!strings.Contains("\n"+got, "\nserver tools/call trace\n") ||
			!strings.HasSuffix(got, "\n  client tools/call\n")) {
			t.Errorf("%v: %s: no attempt at the server is below the call:\n%s", v, kind, got)
		}
		tried++
	}
	return tried
}

// callersSpan is the one that clients of these tests are in.
const callersSpan = "b7ad6b7169203331"

// Through a gateway a call is one trace: the client's span has the gateway's below it, that has the
// one of each attempt at the server, and the server gets that one, in every revision and over every
// transport.
func TestTraceThroughGateway(t *testing.T) {
	t.Parallel()
	for _, rev := range era.Revisions() {
		for _, over := range []string{overHTTP, overStdio, overWS, overTCP} {
			t.Run(rev.Name+" over "+over, func(t *testing.T) {
				kept := &spans{}
				tracer := traces.New(&traces.Options{Spans: kept})
				s := newStage(t)
				t.Cleanup(s.close) // after the gateway: its children report to it
				u := s.upstream(t, rev, over)
				h := newHouse(t, &gateway.Config{Upstreams: []*gateway.Upstream{u}},
					&gateway.Options{RPC: &farcall.Options{Observer: tracer.Observer()}})
				ctx, cancel := context.WithTimeout(t.Context(), cellTime)
				defer cancel()
				v := &matrixClient{
					client: rev, clientOver: over, server: rev, serverOver: over, stage: s,
					name: "v", logs: make(chan string, 100), changed: make(chan string, 100),
					updated: make(chan string, 100), listening: make(chan spec.SubscriptionFilter, 10),
				}
				c, leave, err := h.enter(ctx, over, v.options())
				if err != nil {
					t.Fatal(err)
				}
				v.Client = c
				id := "0af7651916cd43dd8448eb211c80319c"
				text, err := v.tool(farcall.WithTrace(ctx,
					farcall.Trace{Parent: "00-" + id + "-" + callersSpan + "-01", State: "a=b"}), "trace", nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := leave(); err != nil {
					t.Error(err)
				}
				tree := kept.of(id)
				got := drawn(tree, callersSpan, "")
				if !strings.Contains("\n"+got, "\nserver tools/call") ||
					!strings.HasSuffix(got, "\n  client tools/call\n") {
					t.Errorf("the trace is\n%s", got)
				}
				var all, sent int
				for _, below := range tree {
					all += len(below)
					for _, s := range below {
						if s.Name() == "tools/call" &&
							strings.Contains(text, "-"+s.SpanContext().SpanID().String()+"-01") {
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
