package mcp_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A client goes on with the session of another one, which may have been in another process.
func ExampleClient_Session() {
	s := mcp.NewServer("counter", "1.0.0", nil)
	mcp.AddTool(s, mcp.Tool{Name: "count", Description: "Count the calls of the session"},
		func(ctx context.Context, _ struct{}) (int, error) {
			session, n := mcp.RequestFrom(ctx).Session(), 0
			if _, err := session.Value("calls", &n); err != nil {
				return 0, err
			}
			return n + 1, session.SetValue("calls", n+1)
		})
	web := httptest.NewServer(mcphttp.NewHandler(s, nil))
	defer web.Close()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "session")

	ctx := context.Background()
	client, err := mcp.Dial(ctx, web.URL, &mcp.ClientOptions{Era: spec.Revision20251125})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(mcp.CallTool[int](ctx, client, "count", nil))
	fmt.Println(saveSession(client, path))

	client, err = resumeSession(ctx, web.URL, path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() // ends the session
	fmt.Println(mcp.CallTool[int](ctx, client, "count", nil))
	// Output:
	// 1 <nil>
	// <nil>
	// 2 <nil>
}
