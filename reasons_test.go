package farcall_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// What is refused says why: where in the message, which member, which limit.
func TestReasons(t *testing.T) {
	for frame, want := range map[string]string{
		`{"jsonrpc":"2.0",}`: `{"code":-32700,"message":"Parse error",` +
			`"data":{"reason":"expected a member name in quotes at offset 17"}}`,
		`{"jsonrpc":"2.0","method":"m","id":1,"id":2}`: `{"code":-32600,"message":"Invalid Request",` +
			`"data":{"reason":"the member \"id\" is given twice at offset 42"}}`,
		`{"method":"m","id":1}`: `{"code":-32600,"message":"Invalid Request",` +
			`"data":{"reason":"\"jsonrpc\" must be \"2.0\" at offset 0"}}`,
		`[]`: `{"code":-32600,"message":"Invalid Request",` +
			`"data":{"reason":"the batch is empty at offset 0"}}`,
	} {
		for _, o := range []*farcall.Options{nil, {Details: true}} {
			r := farcall.NewResponder(farcall.NewMux(), o)
			if got := string(r.Respond(t.Context(), nil, []byte(frame), nil)); !strings.Contains(got, want) {
				t.Errorf("%s: %s", frame, got)
			}
		}
	}
}

// A refusal for want of room names the limit.
func TestReasonsOfLimits(t *testing.T) {
	release := make(chan struct{})
	mux := farcall.NewMux()
	mux.Handle("wait", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		<-release
		return nil, nil
	}))
	for name, test := range map[string]struct {
		o    farcall.Options
		want string
	}{
		"count": {farcall.Options{MaxInFlight: 1}, "the limit of 1 requests in flight is reached"},
		"bytes": {
			farcall.Options{MaxInFlightBytes: 600},
			"the requests in flight would exceed the limit of 600 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := farcall.Pipe()
			test.o.NoInline = true
			server := farcall.NewPeer(a, mux, &test.o)
			client := farcall.NewPeer(b, nil, nil)
			refused := make(chan error, 2)
			for range 2 {
				go func() { refused <- client.Call(t.Context(), "wait", nil, nil) }()
			}
			wire := new(jsonrpc.Error)
			if !errors.As(<-refused, &wire) || wire.Code != jsonrpc.Overloaded ||
				!bytes.Contains(wire.Data, []byte(`{"reason":"`+test.want+`"`)) {
				t.Errorf("got %v with %s", wire, wire.Data)
			}
			release <- struct{}{}
			if err := <-refused; err != nil {
				t.Error(err)
			}
			client.Close()
			server.Close()
		})
	}
}
