package gateway_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/host"
)

// A server of this process stands behind the gateway beside others.
func Example_inProcess() {
	ctx := context.Background()
	billing := mcp.NewServer("billing", "1.0.0", nil)
	billing.AddTool(mcp.Tool{Name: "balance"},
		func(context.Context, jsonrpc.Raw) (*mcp.ToolResult, error) {
			return &mcp.ToolResult{Content: []mcp.Content{mcp.Text("42")}}, nil
		})

	g, err := gateway.New(&gateway.Config{
		Namespace: "always",
		Upstreams: []*gateway.Upstream{
			{Name: "billing", Server: billing},
			// {Name: "files", URL: "https://files.example.com/mcp"},
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

// A program that embeds a model uses the servers of a desktop client's file.
func ExampleConfig_Servers() {
	dir, err := os.MkdirTemp("", "host")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "mcp.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers": {"files": {"command": "no-such-program"}}}`),
		0o600); err != nil {
		fmt.Println(err)
		return
	}
	if err := embed(context.Background(), file); err != nil {
		fmt.Println(err)
	}
	// Output:
	// files is failed
}

func embed(ctx context.Context, file string) error {
	config, err := gateway.Load(file) // of Claude, Cursor, VS Code …
	if err != nil {
		return err
	}
	servers, err := config.Servers()
	if err != nil {
		return err
	}
	h, err := host.New(ctx, servers, &host.Options{
		Roots: func(_ context.Context, server string) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///home/ada/work/" + server}}, nil
		},
	})
	if err != nil {
		return err
	}
	defer h.Close(ctx)
	if err := h.Wait(ctx); err != nil { // each server is ready or has failed
		return err
	}
	tools := h.Tools()
	for _, item := range tools.Items {
		fmt.Println(item.Value.Name, item.Value.Description) // files__read_file Read a file
	}
	for _, status := range tools.Missing {
		fmt.Println(status.Name, "is", status.State)
	}
	if len(tools.Items) == 0 {
		return nil
	}
	_, err = h.CallTool(ctx, tools.Items[0].Value.Name, nil)
	return err
}
