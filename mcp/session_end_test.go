package mcp

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// End ends a session and its calls, over HTTP and over a connection, also a sealed one, with which
// no process goes on then.
func TestSessionEnd(t *testing.T) {
	for _, over := range []string{"pipe", "HTTP", "sealed"} {
		t.Run(over, func(t *testing.T) {
			started, ended := make(chan struct{}, 1), make(chan error, 1)
			s := NewServer("x", "1", nil)
			AddTool(s, Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
				started <- struct{}{}
				<-ctx.Done()
				ended <- ctx.Err()
				return "", ctx.Err()
			})
			c := connectFor(t, s, over)
			called := make(chan error, 1)
			go func() {
				_, err := c.CallTool(t.Context(), "wait", nil)
				called <- err
			}()
			<-started
			all := slices.Collect(s.Sessions())
			if len(all) != 1 {
				t.Fatalf("%d sessions", len(all))
			}
			all[0].End(t.Context())
			<-all[0].Done()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the call at the server ended with %v", err)
			}
			if err := <-called; err == nil {
				t.Error("the call has a result")
			}
			if left := slices.Collect(s.Sessions()); len(left) != 0 && over == "pipe" {
				t.Errorf("%d sessions are left", len(left))
			}
			all[0].End(t.Context()) // again
		})
	}
}

// connectFor connects a legacy client.
func connectFor(t *testing.T, s *Server, over string) *Client {
	t.Helper()
	o := &ClientOptions{Era: "legacy"}
	if over == "pipe" {
		mine, theirs := farcall.Pipe()
		done := make(chan error, 1)
		go func() { done <- s.Serve(t.Context(), theirs) }()
		c, err := Connect(t.Context(), mine, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(); <-done })
		return c
	}
	h := &mcphttp.Options{}
	if over == "sealed" {
		h.Sessions, h.Keys = "sealed", [][]byte{make([]byte, 32)}
	}
	handler := mcphttp.NewHandler(s, h)
	web := httptest.NewServer(handler)
	c, err := Dial(t.Context(), web.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		web.CloseClientConnections()
		web.Close()
		_ = handler.Shutdown(context.Background())
	})
	return c
}

// A session that has ended is not listed, though what remains of its end may take longer.
func TestSessionEndedIsNotListed(t *testing.T) {
	s := NewServer("x", "1", nil)
	connectFor(t, s, "pipe")
	for one := range s.Sessions() {
		one.x.mu.Lock()
		one.x.closed = true // as Close begins
		one.x.mu.Unlock()
		for left := range s.Sessions() {
			t.Errorf("the session %s is left", left.ID())
		}
		one.x.mu.Lock()
		one.x.closed = false
		one.x.mu.Unlock()
		return
	}
	t.Error("there is no session")
}
