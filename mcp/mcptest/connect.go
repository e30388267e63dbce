package mcptest

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
)

// stopTime is how long what a test has started may take to end.
const stopTime = 10 * time.Second

// Client returns a client that is connected with s in memory. ClientOptions.Era
// chooses the revision; the default is the newest. Warnings go to the test's log
// unless the options have an OnWarning.
//
// The client is closed at the end of the test, which fails when the server does
// not stop serving it within 10 s: a handler then ignores the end of its context.
// s is not closed: it may have any number of clients.
//
// It works within a bubble of testing/synctest, too. It must be called by the
// goroutine of the test, which it ends when the client cannot connect.
func Client(tb testing.TB, s *mcp.Server, o *mcp.ClientOptions) *mcp.Client {
	tb.Helper()
	near, far := farcall.Pipe()
	return connect(tb, s, near, far, o)
}

// connect serves far and connects a client with near.
func connect(
	tb testing.TB, s *mcp.Server, near, far farcall.Transport, o *mcp.ClientOptions,
) *mcp.Client {
	tb.Helper()
	serve(tb, "a handler still runs for the client", func(ctx context.Context) error {
		return s.Serve(ctx, far)
	})
	var opts mcp.ClientOptions
	if o != nil {
		opts = *o
	}
	if opts.OnWarning == nil {
		opts.OnWarning = func(err error) { tb.Log(err) }
	}
	c, err := mcp.Connect(tb.Context(), near, &opts)
	if err != nil {
		tb.Fatalf("mcptest: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("mcptest: close the client: %v", err)
		}
	})
	return c
}

// Listen serves s over HTTP, in every revision, on a free port of 127.0.0.1 and
// returns the URL of the MCP endpoint, http://127.0.0.1:PORT/mcp.
//
// The server is shut down at the end of the test, which fails when that takes
// more than 10 s. Calls that are in flight then have as long as
// ServerOptions.RPC.CloseTimeout.
func Listen(tb testing.TB, s *mcp.Server) string {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("mcptest: %v", err)
	}
	serve(tb, "the HTTP server does not stop", func(ctx context.Context) error {
		return s.ServeListener(ctx, l)
	})
	return "http://" + l.Addr().String() + "/mcp"
}

// serve runs f until the end of the test, which fails when f does, or does not
// return within stopTime of the end of its context.
func serve(tb testing.TB, stuck string, f func(ctx context.Context) error) {
	tb.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	tb.Cleanup(func() {
		stop()
		timer := time.NewTimer(stopTime)
		defer timer.Stop()
		select {
		case err := <-ended:
			if err != nil {
				tb.Errorf("mcptest: serve: %v", err)
			}
		case <-timer.C:
			stacks := make([]byte, 1<<20)
			tb.Errorf("mcptest: %s %v after its end:\n\n%s", stuck, stopTime,
				stacks[:runtime.Stack(stacks, true)])
		}
	})
}
