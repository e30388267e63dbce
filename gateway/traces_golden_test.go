package gateway_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe/traces"
)

// sorted is drawn, with the spans below one in the order of their text.
func sorted(tree map[string][]sdk.ReadOnlySpan, from, indent string) string {
	var all []string
	for _, s := range tree[from] {
		all = append(all, fmt.Sprintf("%s%s %s\n", indent, s.SpanKind(), s.Name())+
			sorted(tree, s.SpanContext().SpanID().String(), indent+"  "))
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// goldenTree is the whole trace of what a client does at a server of a revision, without what
// depends on time: see timely.
func goldenTree(kind string, client, server *era.Revision) string {
	const (
		greet  = "server tools/call greet\n"
		sent   = "  client tools/call\n"
		asks   = "  client elicitation/create\n" // the gateway, its client
		asked  = "    server elicitation/create\n"
		result = "tasks/result\n"
	)
	elicits := func(r *era.Revision) bool { return r.Name >= "2025-06-18" }
	legacy := func(r *era.Revision, line string) string {
		if r.Handshake {
			return line
		}
		return ""
	}
	switch {
	case kind == "call":
		return "server tools/call trace\n" + sent
	case kind == "list":
		return "server tools/list\n"
	case kind == "task" && forTasks(client, server) != nil:
		return "" // the client sends nothing
	case kind == "task":
		return legacy(client, "server "+result) + "server tools/call job\n" +
			legacy(server, "  client "+result) + sent
	case !elicits(client) || !elicits(server):
		return greet + sent // the tool does without
	case client.Handshake && server.Handshake:
		return greet + asks + sent + asked
	case client.Handshake: // the gateway makes the rounds
		return greet + asks + sent + sent
	case server.Handshake: // the call at the server goes on from round to round
		return greet + greet + sent + asked
	}
	return strings.Repeat(greet+sent, 2)
}

// timely reports whether how often there is such a span depends on time: how often a task is looked
// at, and whether a list is fetched again after a session has its own connection to the server.
func timely(line string) bool {
	return strings.HasSuffix(line, " tasks/get\n") || line == "  client tools/list\n"
}

// For each pair of revisions over each transport, what a client does through a gateway is one
// trace, and the tree is the whole of it.
func TestGoldenTraces(t *testing.T) {
	for n, over := range []string{overHTTP, overStdio, overWS, overTCP} {
		for m, server := range era.Revisions() {
			t.Run(server.Name+" over "+over, func(t *testing.T) {
				t.Parallel()
				goldenServer(t, n<<4|m, server, over)
			})
		}
	}
}

func goldenServer(t *testing.T, n int, server *era.Revision, over string) {
	t.Helper()
	kept := &spans{}
	tracer := traces.New(&traces.Options{Spans: kept})
	s := newStage(t)
	t.Cleanup(s.close) // after the gateway: its children report to it
	h := newHouse(t, &gateway.Config{Upstreams: []*gateway.Upstream{s.upstream(t, server, over)}},
		&gateway.Options{RPC: &farcall.Options{Observer: tracer.Observer()}})
	for i, client := range era.Revisions() {
		v := &matrixClient{
			client: client, clientOver: over, server: server, serverOver: over, stage: s,
			name: fmt.Sprintf("client-%d", i),
			logs: make(chan string, 1000), changed: make(chan string, 1000),
			updated: make(chan string, 1000), listening: make(chan spec.SubscriptionFilter, 100),
		}
		ctx, cancel := context.WithTimeout(t.Context(), cellTime)
		defer cancel()
		c, leave, err := h.enter(ctx, over, v.options())
		if err != nil {
			t.Fatal(v, err)
		}
		v.Client = c
		kinds := traced()
		ids := map[string]string{}
		for k, kind := range slices.Sorted(maps.Keys(kinds)) {
			kinds[kind](ctx, v) // lists are fetched, and levels set
			ids[kind] = fmt.Sprintf("%032x", n<<16|i<<8|k+1)
			kinds[kind](
				farcall.WithTrace(ctx, farcall.Trace{Parent: "00-" + ids[kind] + "-" + callersSpan + "-01"}), v)
		}
		if err := leave(); err != nil {
			t.Error(v, err)
		}
		for kind, id := range ids {
			tree := kept.of(id)
			whole, got := sorted(tree, callersSpan, ""), ""
			all := 0
			for _, below := range tree {
				all += len(below)
			}
			for line := range strings.Lines(whole) {
				if !timely(line) {
					got += line
				}
			}
			if want := goldenTree(kind, client, server); got != want || all != strings.Count(whole, "\n") {
				t.Errorf("%v: %s: %d spans; these are connected:\n%swant\n%s", v, kind, all, whole, want)
			}
		}
	}
}
