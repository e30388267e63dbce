package farcall_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// OnAnswer calls each function once with what a call is answered with, also when its handler does
// not return.
func TestOnAnswer(t *testing.T) {
	type end struct {
		result string
		code   jsonrpc.Code
	}
	for method, want := range map[string]end{
		"value": {`{"a":1}`, 0}, "null": {"null", 0}, "error": {"", -32000},
		"panic":  {"", jsonrpc.InternalError},
		"goexit": {"", jsonrpc.InternalError}, "channel": {"", jsonrpc.InternalError},
	} {
		t.Run(method, func(t *testing.T) {
			ended := make(chan end, 10)
			note := func(result jsonrpc.Raw, err error) {
				wire, _ := err.(*jsonrpc.Error) //nolint:errorlint // of ours
				e := end{result: string(result)}
				if wire != nil {
					e.code = wire.Code
				}
				ended <- e
			}
			h := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
				for range 2 {
					if !farcall.OnAnswer(ctx, note) {
						t.Error("the context has no call")
					}
				}
				switch method {
				case "value":
					return map[string]int{"a": 1}, nil
				case "error":
					return nil, jsonrpc.Errorf(-32000, "no")
				case "panic":
					panic("boom")
				case "goexit":
					runtime.Goexit()
				case "channel":
					return make(chan int), nil
				}
				return nil, nil //nolint:nilnil // null
			})
			ours, theirs := farcall.Pipe()
			p, q := farcall.NewPeer(ours, nil, nil), farcall.NewPeer(theirs, h, nil)
			defer q.Close()
			defer p.Close()
			_ = p.Call(t.Context(), method, nil, nil)
			if len(ended) != 2 {
				t.Fatalf("%d functions were called", len(ended))
			}
			for range 2 {
				if got := <-ended; got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		})
	}
	if farcall.OnAnswer(t.Context(), func(jsonrpc.Raw, error) {}) {
		t.Error("there is no call")
	}
}
