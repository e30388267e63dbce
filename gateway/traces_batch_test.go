package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe/traces"
	"github.com/farcall-dev/farcall/stream"
)

// tracing returns a gateway with two upstreams of a revision, and its spans.
func tracing(t *testing.T, era string) (*lab, *spans) {
	t.Helper()
	kept := &spans{}
	c := &gateway.Config{Namespace: "always"}
	for _, name := range []string{"a", "b"} {
		s := mcp.NewServer(name, "1", nil)
		mcp.AddTool(s, mcp.Tool{Name: "echo"}, func(_ context.Context, in textIn) (string, error) {
			return in.Text, nil
		})
		s.AddTool(mcp.Tool{Name: "ask"},
			func(ctx context.Context, _ jsonrpc.Raw) (*mcp.ToolResult, error) {
				in, err := mcp.Elicit[struct {
					Name string `json:"name"`
				}](ctx, "Who?")
				return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(in.Name)}}, err
			})
		c.Upstreams = append(c.Upstreams, &gateway.Upstream{Name: name, Server: s, Era: era})
	}
	tracer := traces.New(&traces.Options{Spans: kept})
	return newLabOf(t, &gateway.Options{RPC: &farcall.Options{Observer: tracer.Observer()}}, c), kept
}

// golden compares the whole of a trace with what it must be.
func golden(t *testing.T, kept *spans, trace, want string) {
	t.Helper()
	tree := kept.of(trace)
	all := 0
	for _, below := range tree {
		all += len(below)
	}
	if got := drawn(tree, callersSpan, ""); got != want || all != strings.Count(want, "\n") {
		t.Errorf("the trace %s has %d spans; these are connected:\n%swant\n%s", trace, all, got, want)
	}
}

// traceID is a trace of a caller.
func traceID(n int) string { return fmt.Sprintf("0af7651916cd43dd8448eb211c8031%02x", n) }

// Each element of a batch is a call with its own span, below the span that its message names, and
// has its own attempt at its server; over HTTP and over a connection.
func TestTracesOfBatch(t *testing.T) {
	t.Parallel()
	const (
		hello = `{"jsonrpc":"2.0","id":0,"method":"initialize",` +
			`"params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t",` +
			`"version":"1"}}}`
		begun = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	)
	call := func(id int, tool, trace string) string {
		return fmt.Sprintf(
			`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"text":"x"},`+
				`"_meta":{"traceparent":"00-%s-%s-01"}}}`, id, tool, trace, callersSpan)
	}
	for n, over := range []string{overHTTP, overTCP} {
		t.Run(over, func(t *testing.T) {
			l, kept := tracing(t, "2025-06-18")
			one, two := traceID(10+10*n), traceID(11+10*n)
			batch := "[" + call(1, "a__echo", one) + "," + call(2, "b__echo", two) + "," +
				call(3, "a__echo", one) + "]"
			// lists are fetched, and levels set
			warm := "[" + call(8, "a__echo", traceID(0)) + "," + call(9, "b__echo", traceID(0)) + "]"
			var answer string
			if over == overHTTP {
				r, err := l.post(t.Context(), "/mcp", hello)
				if err != nil {
					t.Fatal(err)
				}
				session := "Mcp-Session-Id: " + r.header.Get("Mcp-Session-Id")
				if _, err := l.post(t.Context(), "/mcp", begun, session); err != nil {
					t.Fatal(err)
				}
				for _, text := range []string{warm, batch} {
					if r, err = l.post(t.Context(), "/mcp", text, session); err != nil {
						t.Fatal(err)
					}
				}
				answer = r.body
			} else {
				addr := strings.TrimPrefix(listen(t, func(conn net.Conn) {
					l.ServeStream(stream.New(conn, stream.NDJSON, nil), &guard.Conn{Transport: "tcp"})
				}), "tcp://")
				conn := dialTCP(t, addr)
				in := bufio.NewReader(conn)
				_ = ask(t, conn, in, hello)
				_ = ask(t, conn, in, begun+"\n"+warm)
				answer = ask(t, conn, in, batch)
			}
			for id := 1; id <= 3; id++ {
				if !strings.Contains(answer, fmt.Sprintf(`"id":%d`, id)) {
					t.Errorf("the answer of %d is missing: %s", id, answer)
				}
			}
			golden(t, kept, two, "server tools/call b__echo\n  client tools/call\n")
			golden(t, kept, one, strings.Repeat("server tools/call a__echo\n  client tools/call\n", 2))
			for _, s := range kept.of(one)[callersSpan] {
				if !hasAttribute(s, attribute.Bool("farcall.batch", true)) {
					t.Errorf("%v", s.Attributes())
				}
			}
		})
	}
}

func hasAttribute(s sdk.ReadOnlySpan, want attribute.KeyValue) bool {
	return slices.Contains(s.Attributes(), want)
}

// linkedRounds makes a call of two rounds without a caller's trace: each round is a trace, and the
// second one has a link to the first.
func linkedRounds(t *testing.T, c *mcp.Client, kept *spans) {
	t.Helper()
	kept.mu.Lock()
	before := len(kept.all)
	kept.mu.Unlock()
	if r, err := c.CallTool(t.Context(), "a__ask", nil); err != nil || saysOf(r) != "Ann" {
		t.Fatal(r, err)
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	var rounds []sdk.ReadOnlySpan
	for _, s := range kept.all[before:] {
		if s.Name() == "tools/call a__ask" {
			rounds = append(rounds, s)
		}
	}
	if len(rounds) != 2 || len(rounds[0].Links()) != 0 || len(rounds[1].Links()) != 1 {
		t.Fatalf("%d rounds, not two with a link: %v", len(rounds), rounds)
	}
	is, want := rounds[1].Links()[0].SpanContext, rounds[0].SpanContext()
	if is.TraceID() != want.TraceID() || is.SpanID() != want.SpanID() ||
		rounds[1].SpanContext().TraceID() == want.TraceID() {
		t.Errorf("the link is to %v, want %v", is, want)
	}
}

// A call of 2026-07-28 that asks its client has a span for each round, all in the trace of the
// caller; the attempts at the server are below the round that has made them.
func TestTracesOfRounds(t *testing.T) {
	t.Parallel()
	for n, era := range []string{"2026-07-28", "2025-11-25"} {
		t.Run("a server of "+era, func(t *testing.T) {
			l, kept := tracing(t, era)
			c := l.client(t,
				mcp.ClientOptions{
					Era: "modern",
					Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
						return &spec.ElicitResult{Action: "accept", Content: jsonrpc.Raw(`{"name":"Ann"}`)}, nil
					},
				})
			if _, err := c.Tools(t.Context()); err != nil { // both lists are fetched
				t.Fatal(err)
			}
			trace := traceID(40 + n)
			r, err := c.CallTool(farcall.WithTrace(t.Context(),
				farcall.Trace{Parent: "00-" + trace + "-" + callersSpan + "-01"}), "a__ask", nil)
			if err != nil || saysOf(r) != "Ann" {
				t.Fatal(r, err)
			}
			linkedRounds(t, c, kept)
			golden(t, kept, trace, map[string]string{
				"2026-07-28": strings.Repeat("server tools/call a__ask\n  client tools/call\n", 2),
				// The server's call goes on while its question is with the client.
				"2025-11-25": "server tools/call a__ask\n  client tools/call\n    server elicitation/create\n" +
					"server tools/call a__ask\n",
			}[era])
		})
	}
}

// The rounds that a client makes of one call are linked, too: those of a client of 2026-07-28, and
// those that a gateway makes for a client of an earlier revision.
func TestTracesOfClientRounds(t *testing.T) {
	t.Parallel()
	answer := func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
		return &spec.ElicitResult{Action: "accept", Content: jsonrpc.Raw(`{"name":"Ann"}`)}, nil
	}
	for era, own := range map[string]bool{"modern": true, "legacy": false} {
		t.Run(era, func(t *testing.T) {
			l, kept := tracing(t, "2026-07-28")
			o := mcp.ClientOptions{Era: era, Elicit: answer}
			if own {
				kept = &spans{}
				o.RPC = &farcall.Options{Observer: traces.New(&traces.Options{Spans: kept}).Observer()}
			}
			if r, err := l.client(t, o).CallTool(t.Context(), "a__ask", nil); err != nil ||
				saysOf(r) != "Ann" {
				t.Fatal(r, err)
			}
			kept.mu.Lock()
			defer kept.mu.Unlock()
			var rounds []sdk.ReadOnlySpan
			for _, s := range kept.all {
				if s.SpanKind() == trace.SpanKindClient && strings.HasPrefix(s.Name(), "tools/call") {
					rounds = append(rounds, s)
				}
			}
			if len(rounds) != 2 || len(rounds[0].Links()) != 0 || len(rounds[1].Links()) != 1 {
				t.Fatalf("%d rounds, not two with a link: %v", len(rounds), rounds)
			}
			if is, want := rounds[1].Links()[0].SpanContext,
				rounds[0].SpanContext(); is.SpanID() != want.SpanID() || is.TraceID() != want.TraceID() {
				t.Errorf("the link is to %v, want %v", is, want)
			}
		})
	}
}
