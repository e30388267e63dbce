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
	weather.AddTool(mcp.Tool{Name: "today"}, func(context.Context, jsonrpc.Raw) (*mcp.ToolResult, error) {
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
