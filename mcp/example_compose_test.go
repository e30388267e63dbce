package mcp_test

import (
	"context"
	"fmt"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

func ExampleServer_Mount() {
	ctx := context.Background()
	weather := mcp.NewServer("weather", "1.0.0", nil)
	weather.AddTool(mcp.Tool{Name: "today"},
		func(context.Context, jsonrpc.Raw) (*mcp.ToolResult, error) {
			return &mcp.ToolResult{Content: []mcp.Content{mcp.Text("sunny")}}, nil
		})

	all := mcp.NewServer("all", "1.0.0", nil)
	all.Mount("weather", weather)

	c := inProcess(ctx, all)
	defer c.Close()
	r, err := c.CallTool(ctx, "weather__today", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Content[0].Text)
	// Output: sunny
}

// inProcess connects a client to a server without a network.
func inProcess(ctx context.Context, s *mcp.Server) *mcp.Client {
	mine, theirs := farcall.Pipe()
	go func() { _ = s.Serve(ctx, theirs) }()
	c, err := mcp.Connect(ctx, mine, nil)
	if err != nil {
		panic(err)
	}
	return c
}

func ExampleServer_Transform() {
	ctx := context.Background()
	s := mcp.NewServer("search", "1.0.0", nil)
	s.AddTool(mcp.Tool{Name: "search", InputSchema: jsonrpc.Raw(`{"type":"object","properties":{
		"q": {"type":"string"}, "limit": {"type":"integer"}, "tenant": {"type":"string"}}, "required": ["q", "tenant"]}`)},
		func(_ context.Context, arguments jsonrpc.Raw) (*mcp.ToolResult, error) {
			return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(string(arguments))}}, nil
		})

	s.Transform("search", mcp.Transform{
		Name: "find_orders", Description: "Find orders by text",
		Arguments: map[string]mcp.Argument{
			"q":      {Name: "query", Description: "Words of the order"},
			"limit":  {Default: 20},
			"tenant": {Fixed: "acme"},
		},
	})

	c := inProcess(ctx, s)
	defer c.Close()
	r, err := c.CallTool(ctx, "find_orders", map[string]string{"query": "shoes"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Content[0].Text)
	// Output: {"q":"shoes","limit":20,"tenant":"acme"}
}
