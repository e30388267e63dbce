package mcpauth_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// This is code of docs/mcp.md: TestDocuments of package mcp compares them.

func dialSignedIn(ctx context.Context, url string, store mcpauth.Store) (*mcp.Client, error) {
	auth, err := mcpauth.New(url, &mcpauth.Options{
		Name:  "reader",             // what the user is asked to let in
		Store: store,                // mcpauth.NewFileStore(path), NewKeyring(name), or nil: in memory
		Visit: mcpauth.Browser(nil), // nil: what needs the user fails with ErrLogin
	})
	if err != nil {
		return nil, err
	}
	return mcp.Dial(ctx, url, &mcp.ClientOptions{HTTP: &mcphttp.DialOptions{Authorize: auth}})
}

// A server that asks for no token is called without one.
func Example() {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, mcp.Tool{Name: "ping", Description: "Answer"},
		func(context.Context, struct{}) (string, error) { return "pong", nil })
	server := httptest.NewServer(mcphttp.NewHandler(s, nil))
	defer server.Close()

	client, err := dialSignedIn(context.Background(), server.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	result, err := mcp.CallTool[string](context.Background(), client, "ping", nil)
	fmt.Println(result, err)
	// Output: pong <nil>
}
