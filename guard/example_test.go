package guard_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// This is code of docs/mcp.md: TestDocuments of package mcp compares them.

func serveGuarded(c *guard.Config) (http.Handler, error) {
	g, err := guard.New(c, nil)
	if err != nil {
		return nil, err // it says everything that is wrong
	}
	s := mcp.NewServer("calc", "1.0.0", &mcp.ServerOptions{
		RPC:   &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}},
		Owner: func(ctx context.Context) string { return guard.From(ctx).Owner() },
		Visible: func(ctx context.Context, kind, name string) bool { // lists show what the caller may use
			return kind != "tool" || g.Visible(ctx, &guard.Call{Method: "tools/call", Name: name, MCP: true})
		},
	})
	mcp.AddTool(s, mcp.Tool{Name: "add", Description: "Add two numbers"}, add)
	mcp.AddTool(s, mcp.Tool{Name: "clear", Description: "Forget everything"}, forget)
	return g.HTTP(mcphttp.NewHandler(s, nil)), nil
}

type numbers struct {
	A int `json:"a"`
	B int `json:"b"`
}

func add(_ context.Context, in numbers) (int, error) { return in.A + in.B, nil }

func forget(context.Context, struct{}) (string, error) { return "done", nil }

// A guard in front of an MCP server.
func Example() {
	const key = "fk_ci_an-example-of-a-key-that-farcall-key-new-makes"
	hash := sha256.Sum256([]byte(key))
	h, err := serveGuarded(&guard.Config{
		Keys: []guard.Key{
			{ID: "ci", Hash: "sha256:" + hex.EncodeToString(hash[:]), Roles: []string{"builder"}},
		},
		Allow: []guard.Rule{{Roles: []string{"builder"}, Calls: []string{"tools/call add"}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(h)
	defer server.Close()

	_, err = mcp.Dial(context.Background(), server.URL, nil)
	fmt.Println(err != nil) // the key is unknown

	client, err := mcp.Dial(context.Background(), server.URL, &mcp.ClientOptions{
		HTTP: &mcphttp.DialOptions{Header: http.Header{"Authorization": {"Bearer " + key}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	tools, _ := client.Tools(context.Background())
	sum, _ := mcp.CallTool[int](context.Background(), client, "add", numbers{2, 3})
	_, err = client.CallTool(context.Background(), "clear", nil)
	fmt.Println(len(tools), sum, err)
	// Output:
	// true
	// 1 5 Permission denied (code -31056)
}
