package gateway_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// TestVirtualSeal: a requestState is of the endpoint that gave it: another
// one that has the same tool refuses it, whatever key seals it.
func TestVirtualSeal(t *testing.T) {
	t.Parallel()
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	for _, of := range []struct {
		era  string
		keys []string
	}{{"modern", nil}, {"modern", []string{key}}, {"legacy", nil}, {"legacy", []string{key}}} {
		s := mcp.NewServer("s", "1", nil)
		s.AddTool(mcp.Tool{Name: "ask"},
			func(ctx context.Context, _ jsonrpc.Raw) (*mcp.ToolResult, error) {
				in, err := mcp.Elicit[struct {
					Name string `json:"name"`
				}](ctx, "Who?")
				return &mcp.ToolResult{Content: []mcp.Content{mcp.Text("I am " + in.Name)}}, err
			})
		c := &gateway.Config{
			Namespace: "always", Upstreams: []*gateway.Upstream{{Name: "s", Server: s, Era: of.era}},
		}
		c.Sessions.Keys = of.keys
		for _, name := range []string{"one", "two"} {
			c.Endpoints = append(c.Endpoints, &gateway.Endpoint{Name: name})
		}
		l := newLabOf(t, nil, c)
		call := func(path, more string) string {
			r, err := l.modernAt(t.Context(), path, "tools/call", "s__ask", `"name":"s__ask"`+more)
			if err != nil {
				t.Fatal(err)
			}
			return r.body
		}
		r, err := l.modernAt(t.Context(), "/mcp/one", "tools/call", "s__ask", `"name":"s__ask"`)
		if err != nil || r.err != nil {
			t.Fatal(r, err)
		}
		question := ""
		for name := range scan.Members(scan.Member(r.result, "inputRequests")) {
			question = string(name)
		}
		again := fmt.Sprintf(
			`,"requestState":%s,"inputResponses":{%q:{"action":"accept","content":{"name":"Ann"}}}`,
			scan.Member(r.result, "requestState"), question)
		for _, path := range []string{"/mcp/two", "/mcp"} {
			if got := call(path, again); !strings.Contains(got, "-32602") || strings.Contains(got, "Ann") {
				t.Errorf("%s, keys %v: %s takes the requestState of /mcp/one: %s", of.era, of.keys != nil,
					path, got)
			}
		}
		if got := call("/mcp/one", again); !strings.Contains(got, "I am Ann") {
			t.Errorf("%s: /mcp/one refuses its own requestState: %s", of.era, got)
		}
	}
}
