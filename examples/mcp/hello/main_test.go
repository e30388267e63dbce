package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// connect connects a client with a server in memory, until the end of the test.
func connect(t *testing.T, s *mcp.Server, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	near, far := farcall.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), far) }()
	c, err := mcp.Connect(t.Context(), near, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return c
}

// One tool serves clients of every revision.
func TestHello(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		c := connect(t, newServer(), &mcp.ClientOptions{Era: era})
		if said, err := mcp.CallTool[string](t.Context(), c, "hello",
			person{"Ada"}); said != "Hello, Ada!" || err != nil {
			t.Errorf("%s: %q, %v", era, said, err)
		}
		if _, err := mcp.CallTool[string](t.Context(), c, "hello", person{" "}); err == nil ||
			!strings.Contains(err.Error(), "name") {
			t.Errorf("%s: a blank name: %v, want an error that names the argument", era, err)
		}
	}
}

func TestServeHTTP(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serve(ctx, []string{"127.0.0.1:0"}); err != nil {
		t.Errorf("a server with a context that has ended: %v", err)
	}
	if err := serve(t.Context(), []string{"no address"}); err == nil {
		t.Error("an address that is not valid was served")
	}
}
