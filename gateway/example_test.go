package gateway_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// A server of this process stands behind the gateway beside others.
func Example_inProcess() {
	ctx := context.Background()
	billing := mcp.NewServer("billing", "1.0.0", nil)
	billing.AddTool(mcp.Tool{Name: "balance"}, func(context.Context, jsonrpc.Raw) (*mcp.ToolResult, error) {
		return &mcp.ToolResult{Content: []mcp.Content{mcp.Text("42")}}, nil
	})

	g, err := gateway.New(&gateway.Config{
		Namespace: "always",
		Upstreams: []*gateway.Upstream{
			{Name: "billing", Server: billing},
			// {Name: "files", Command: []string{"npx", "-y", "@modelcontextprotocol/server-filesystem", "."}},
		},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	front := httptest.NewServer(g)
	defer front.Close()
	defer func() { _ = g.Shutdown(ctx) }()

	c, err := mcp.Dial(ctx, front.URL+"/mcp", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	r, err := c.CallTool(ctx, "billing__balance", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Content[0].Text)
	// Output: 42
}
