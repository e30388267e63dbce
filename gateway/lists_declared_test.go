package gateway_test

import (
	"context"
	"errors"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// In each revision, at the address of one server and at that of all: a list is served when a server
// declares its capability, also when it is empty or a server is down, and otherwise its method is
// not found.
func TestListsAreDeclared(t *testing.T) {
	t.Parallel()
	tools := mcp.NewServer("tools", "1", nil)
	mcp.AddTool(tools, mcp.Tool{Name: "add"}, func(context.Context, struct{}) (string, error) {
		return "", nil
	})
	notes := mcp.NewServer("notes", "1", nil)
	notes.AddResource(mcp.Resource{URI: "note:1", Name: "one"},
		func(context.Context, string) ([]mcp.ResourceContents, error) {
			return nil, nil
		})
	methods := []string{
		spec.MethodToolsList, spec.MethodResourcesList, spec.MethodResourcesTemplatesList,
		spec.MethodPromptsList,
	}
	l := newLabOf(t, nil, &gateway.Config{Upstreams: []*gateway.Upstream{
		{Name: "tools", Server: tools}, {Name: "notes", Server: notes},
	}})
	down := newLabOf(t, nil, &gateway.Config{Upstreams: []*gateway.Upstream{
		{Name: "tools", Server: tools}, {Name: "down", URL: "http://127.0.0.1:1/mcp"},
	}})
	for _, c := range []struct {
		lab    *lab
		path   string
		served [4]bool
	}{
		{l, "/mcp", [4]bool{true, true, true, false}},
		{l, "/mcp/tools", [4]bool{true, false, false, false}},
		{l, "/mcp/notes", [4]bool{false, true, true, false}},
		{down, "/mcp", [4]bool{true, true, true, true}},
	} {
		for _, rev := range era.Revisions() {
			client := c.lab.clientAt(t, c.path, mcp.ClientOptions{Era: rev.Name})
			for i, method := range methods {
				err := client.Request(t.Context(), method, nil, new(jsonrpc.Raw))
				wire := new(jsonrpc.Error)
				switch {
				case err != nil && (!errors.As(err, &wire) || wire.Code != jsonrpc.MethodNotFound):
					t.Errorf("%s, %s: %s: %v", c.path, rev.Name, method, err)
				case (err == nil) != c.served[i]:
					t.Errorf("%s, %s: %s: %v, want a result: %v", c.path, rev.Name, method, err, c.served[i])
				}
			}
		}
	}
}
