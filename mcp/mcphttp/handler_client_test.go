package mcphttp

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp/era"
)

// Both ends of this package, in every form of the transport.
func TestBothEnds(t *testing.T) {
	e := serve(t, nil)
	c, err := Dial(e.url+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange := func(frame string) (answer string) {
		t.Helper()
		err := c.Exchange(t.Context(), []byte(frame), func(frame []byte) error {
			answer += string(frame)
			return nil
		})
		if err != nil {
			t.Fatal(frame, err)
		}
		return answer
	}
	if got := exchange(modernBody("1", "tools/call", `"name":"progress","n":3`)); strings.Count(got,
		"progress") != 6 || !strings.HasSuffix(got, `"result":{"done":true},"id":1}`) {
		t.Error(got)
	}

	exchange(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	c.Use(era.Lookup(legacyName))
	exchange(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan string, 10)
	listening := make(chan error)
	go func() {
		listening <- c.Listen(ctx, nil, func(frame []byte) error {
			heard <- string(frame)
			return nil
		})
	}()
	e.f.last().client.Notify(ctx, "notifications/message", map[string]int{"n": 1})
	if got := <-heard; !strings.Contains(got, `"n":1`) {
		t.Error(got)
	}
	close(e.f.release)
	if got := exchange(
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"poll"}}`); !strings.Contains(got,
		`"progress":1`) || !strings.Contains(got, "polled") {
		t.Error(got)
	}
	if err := c.EndSession(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-listening; err != nil && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, ErrSessionLost) {
		t.Error(err)
	}
	if e.h.Sessions() != 0 {
		t.Error("the session has not ended")
	}
}
