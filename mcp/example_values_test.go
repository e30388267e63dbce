package mcp_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// Two servers with the same keys and store serve a session in turn, and both see its values.
func ExampleSession_SetValue() {
	values := store.New(nil) // or store.Open, or what several processes share
	var replicas []http.Handler
	for range 2 {
		s := mcp.NewServer("counter", "1.0.0", &mcp.ServerOptions{
			Keys:     [][]byte{bytes.Repeat([]byte("k"), 32)}, // 32 random bytes
			Sessions: values,
		})
		mcp.AddTool(s, mcp.Tool{Name: "count", Description: "Count the calls of the session"},
			func(ctx context.Context, _ struct{}) (int, error) {
				session, n := mcp.RequestFrom(ctx).Session(), 0
				if _, err := session.Value("calls", &n); err != nil {
					return 0, err
				}
				return n + 1, session.SetValue("calls", n+1)
			})
		replicas = append(replicas, mcphttp.NewHandler(s, nil))
	}
	calls := 0
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		replicas[calls%2].ServeHTTP(w, r)
	}))
	defer front.Close()

	ctx := context.Background()
	client, err := mcp.Dial(ctx, front.URL, &mcp.ClientOptions{Era: spec.Revision20250618})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for range 3 {
		n, err := mcp.CallTool[int](ctx, client, "count", nil)
		fmt.Println(n, err)
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
}
