package main

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/observe"
)

// BenchmarkObserve is what an observer adds to a call: compare each with "off".
func BenchmarkObserve(b *testing.B) {
	idle := &observe.Observer{
		Start:  func(ctx context.Context, _ *observe.Call) context.Context { return ctx },
		End:    func(context.Context, *observe.Call) {},
		Refuse: func(context.Context, *observe.Call) {},
		Frame:  func(observe.Frame) {},
	}
	for _, test := range []struct {
		name     string
		observer *observe.Observer
	}{
		{"off", nil},
		{"idle", idle},
	} {
		b.Run(test.name, func(b *testing.B) {
			mux := farcall.NewMux()
			mux.Handle("ok", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) { return nil, nil }))
			r := farcall.NewResponder(mux, &farcall.Options{Observer: test.observer})
			frame := []byte(`{"jsonrpc":"2.0","method":"ok","id":1}`)
			out := make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				r.Respond(b.Context(), out, frame, nil)
			}
		})
	}
}
