package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"testing"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mark3labs/mcp-go/server"
)

// childVariable makes this program one of children instead of a test.
const childVariable = "FARCALL_INTEROP_CHILD"

// children serve MCP on standard input and output.
var children = map[string]func(context.Context) error{
	"farcall": func(ctx context.Context) error { return ours().ServeStdio(ctx) },
	"go-sdk": func(ctx context.Context) error {
		return goSDKServer().Run(ctx, &gosdk.StdioTransport{})
	},
	"go-sdk changed": func(ctx context.Context) error {
		// with another result of add, and without chatter
		s := goSDKServer()
		goSDKTool(s, "add", func(
			context.Context, *gosdk.CallToolRequest, addends,
		) (*gosdk.CallToolResult, map[string]string, error) {
			return nil, map[string]string{"Sum": "five"}, nil
		})
		s.RemoveTools("chatter")
		return s.Run(ctx, &gosdk.StdioTransport{})
	},
	"mcp-go": func(ctx context.Context) error {
		return server.NewStdioServer(mcpGoServer()).Listen(ctx, os.Stdin, os.Stdout)
	},
}

// child returns the command that runs one of them.
func child(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), childVariable+"="+name)
	return cmd
}

func beChild(name string) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := children[name](ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}
