package metrics_test

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/metrics"
)

// responding returns a call of a handler that does nothing.
func responding(o *observe.Observer) func(context.Context) {
	mux := farcall.NewMux()
	mux.Handle("ok", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) { return nil, nil }))
	r := farcall.NewResponder(mux, &farcall.Options{Observer: o})
	frame, out := []byte(`{"jsonrpc":"2.0","method":"ok","id":1}`), make([]byte, 0, 1024)
	return func(ctx context.Context) { r.Respond(ctx, out, frame, nil) }
}

// Metrics cost a call no allocation.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	count := func(o *observe.Observer) float64 {
		call := responding(o)
		return testing.AllocsPerRun(200, func() { call(t.Context()) })
	}
	if off, on := count(nil), count(metrics.New(nil).Observer()); on > off {
		t.Errorf("%v allocations with metrics, %v without", on, off)
	}
}
