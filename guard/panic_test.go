package guard_test

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
)

// A handler that panics, or ends its goroutine, gives its place back: otherwise a few such calls
// would lock its caller out, and with a total, everybody.
func TestPlaceAfterPanic(t *testing.T) {
	c := &guard.Config{Anonymous: true}
	c.Limits.Concurrent, c.Limits.Total = 1, 1
	g := newGuard(t, c, nil)
	mux := farcall.NewMux()
	mux.Handle("panic", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		panic("asked to")
	}))
	mux.Handle("ok", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return true, nil
	}))
	o := &farcall.Options{
		Interceptors: []farcall.Interceptor{g.Interceptor(&guard.Conn{Transport: "tcp"})},
	}
	r := farcall.NewResponder(mux, o)
	for range 3 {
		out := r.Respond(t.Context(), nil, []byte(`{"jsonrpc":"2.0","id":1,"method":"panic"}`), nil)
		if want := `{"jsonrpc":"2.0","error":{"code":-32603,"message":"Internal error"},"id":1}`; string(
			out) != want {
			t.Fatalf("got %s, want %s", out, want)
		}
	}
	out := r.Respond(t.Context(), nil, []byte(`{"jsonrpc":"2.0","id":1,"method":"ok"}`), nil)
	if want := `{"jsonrpc":"2.0","result":true,"id":1}`; string(out) != want {
		t.Fatalf("got %s, want %s", out, want)
	}
}
