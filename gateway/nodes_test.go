package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/store"
)

// node is a gateway with a shared store, before a server of the legacy era that asks its client.
func node(t *testing.T, shared store.Store) *lab {
	t.Helper()
	s := mcp.NewServer("behind", "1", &mcp.ServerOptions{Eras: "legacy"})
	mcp.AddTool(s, mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		answer, err := mcp.Elicit[struct{ Name string }](ctx, "Who?")
		return answer.Name, err
	})
	return newLabOf(t, &gateway.Options{Shared: shared}, &gateway.Config{Upstreams: []*gateway.Upstream{over(t, "u", s)}})
}

func memory(t *testing.T) *store.Memory {
	t.Helper()
	m := store.NewMemory(nil)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// A session is served by each node with the store. Where the store was made again, it is not found,
// and its client begins another one.
func TestSessionsOfNodes(t *testing.T) {
	kept := memory(t)
	first, second, again := node(t, kept), node(t, kept), node(t, memory(t))
	hello, err := first.post(t.Context(), "/mcp", initialize)
	if err != nil {
		t.Fatal(err)
	}
	id := hello.header.Get("Mcp-Session-Id")
	for l, want := range map[*lab]int{first: http.StatusOK, second: http.StatusOK, again: http.StatusNotFound} {
		got, err := l.post(t.Context(), "/mcp", `{"jsonrpc":"2.0","id":2,"method":"ping"}`,
			"Mcp-Session-Id: "+id, "MCP-Protocol-Version: "+legacy)
		if err != nil || got.status != want {
			t.Errorf("%v, %v, want %d", got, err, want)
		}
	}
}

// A call that waits for its client at one node is not known at another one, which says so.
func TestSuspendedAtANode(t *testing.T) {
	kept := memory(t)
	first, second := node(t, kept), node(t, kept)
	call := func(l *lab, more string) *reply {
		t.Helper()
		got, err := l.modernAt(t.Context(), "/mcp", "tools/call", "ask", `"name":"ask","arguments":{}`+more)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	asked := call(first, "")
	state := scan.Member(asked.result, "requestState")
	key := ""
	scan.Object(scan.Member(asked.result, "inputRequests"), func(name, _ []byte) bool { key = string(name); return false })
	if state == nil || key == "" {
		t.Fatalf("it asks nothing: %v", asked)
	}
	answer := fmt.Sprintf(`,"requestState":%s,"inputResponses":{%q:{"action":"accept","content":{"Name":"ada"}}}`, state, key)
	if got := call(second, answer); got.err == nil || !strings.Contains(got.err.Message, "another node") {
		t.Errorf("at another node: %v", got)
	}
	if got := call(first, answer); !strings.Contains(got.body, "ada") {
		t.Errorf("where it waits: %v", got)
	}
}
