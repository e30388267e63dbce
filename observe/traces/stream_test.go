package traces_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/traces"
)

// parts are the spans with a name, as lines: kind, length, events.
func (k *keeper) parts(name string) (all []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.spans {
		if s.Name() != name {
			continue
		}
		var line strings.Builder
		fmt.Fprint(&line, s.SpanKind(), " ", s.EndTime().Sub(s.StartTime()))
		for _, e := range s.Events() {
			line.WriteString(" " + strings.TrimPrefix(e.Name, "notifications/"))
		}
		if s.Status().Description != "" {
			line.WriteString(" failed: " + s.Status().Description)
		}
		all = append(all, line.String())
	}
	return all
}

// A subscription that stands for a day is seen at once at both ends, and has no span that lasts:
// what comes later is in short ones below that of the call, in its trace. Its end adds nothing.
func TestSubscriptionSpans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, client := &keeper{}, &keeper{}
		options := func(k *keeper) *farcall.Options {
			return &farcall.Options{Observer: traces.New(&traces.Options{Spans: k}).Observer()}
		}
		s := mcp.NewServer("s", "1", &mcp.ServerOptions{RPC: options(server)})
		add := func(name string) {
			s.AddTool(mcp.Tool{Name: name, InputSchema: []byte(`{"type":"object"}`)},
				func(context.Context, jsonrpc.Raw) (*mcp.ToolResult, error) { return &mcp.ToolResult{}, nil })
		}
		add("a")
		mine, theirs := farcall.Pipe()
		go func() { _ = s.Serve(t.Context(), theirs) }()
		c, err := mcp.Connect(t.Context(), mine, &mcp.ClientOptions{
			Era: "2026-07-28", OnListChanged: func(string) {}, RPC: options(client),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Listen(ctx, spec.SubscriptionFilter{ToolsListChanged: true}) }()
		synctest.Wait()
		const name = spec.MethodSubscriptionsListen
		if got := client.parts(name); !slices.Equal(got, []string{"client 0s"}) {
			t.Errorf("the client has %q", got)
		}
		want := []string{"server 0s subscriptions/acknowledged"}
		if got := server.parts(name); !slices.Equal(got, want) {
			t.Errorf("the server has %q", got)
		}
		for i := range 4 { // two within a minute, and two some hours later
			<-time.After(30*time.Second + time.Duration(i/2)*12*time.Hour)
			add(fmt.Sprint(i))
		}
		<-time.After(time.Hour)
		want = append(want, "server 30s tools/list_changed tools/list_changed",
			"server 0s tools/list_changed")
		if got := server.parts(name); !slices.Equal(got, want) {
			t.Errorf("the server has %q", got)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		want = append(want, "server 0s tools/list_changed")
		if got := server.parts(name); !slices.Equal(got, want) {
			t.Errorf("the server has %q", got)
		}
		if got := client.parts(name); len(got) != 1 {
			t.Errorf("the client has %q", got)
		}
		at := slices.IndexFunc(client.spans, func(s sdk.ReadOnlySpan) bool { return s.Name() == name })
		oneTrace(t, server, client.spans[at])
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// oneTrace checks that the spans of a stream are in one trace with that of its client, each with
// its own id, and the later ones below the first.
func oneTrace(t *testing.T, k *keeper, client sdk.ReadOnlySpan) {
	t.Helper()
	var first sdk.ReadOnlySpan
	for _, s := range k.spans {
		switch {
		case s.Name() != spec.MethodSubscriptionsListen:
		case first == nil:
			if first = s; s.Parent().SpanID() != client.SpanContext().SpanID() {
				t.Error("the first span is not below that of the client")
			}
		case s.Parent().SpanID() != first.SpanContext().SpanID() ||
			s.SpanContext().SpanID() == first.SpanContext().SpanID(),
			s.SpanContext().TraceID() != client.SpanContext().TraceID():
			t.Error("a later span is not below the first")
		}
	}
}

// Other streams have one span up to a minute, and what makes them fail is seen.
func TestLongStreams(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct {
		every time.Duration
		n     int
		fails bool
		want  []string
	}{
		"short":           {time.Second, 3, false, []string{"server 4s value value value"}},
		"short and fails": {time.Second, 1, true, []string{"server 2s value failed: broken"}},
		"a quiet call":    {time.Hour, 0, false, []string{"server 1h0m0s"}},
		"long": {
			25 * time.Second, 4, false, []string{"server 50s value value", "server 25s value value"},
		},
		"fails late": {
			40 * time.Second, 2, true, []string{"server 40s value", "server 0s value failed: broken"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := &keeper{}
				mux := farcall.NewMux()
				mux.Handle("watch",
					farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
						for range v.n {
							<-time.After(v.every)
							observe.From(ctx).Event("value")
						}
						<-time.After(v.every)
						if v.fails {
							return nil, &jsonrpc.Error{Code: 1, Message: "broken"}
						}
						return nil, nil
					}))
				o := traces.New(&traces.Options{Spans: k}).Observer()
				r := farcall.NewResponder(mux, &farcall.Options{Observer: o})
				r.Respond(t.Context(), nil, []byte(`{"jsonrpc":"2.0","method":"watch","id":1}`), nil)
				if got := k.parts("watch"); !slices.Equal(got, v.want) {
					t.Errorf("got %q, want %q", got, v.want)
				}
			})
		})
	}
}
