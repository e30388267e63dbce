package metrics_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/metrics"
	"github.com/farcall-dev/farcall/observe/traces"
)

// responding returns a call of a handler that does nothing.
func responding(o *observe.Observer) func(context.Context) {
	mux := farcall.NewMux()
	mux.Handle("ok", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, nil
	}))
	r := farcall.NewResponder(mux, &farcall.Options{Observer: o})
	frame, out := []byte(`{"jsonrpc":"2.0","method":"ok","id":1}`), make([]byte, 0, 1024)
	return func(ctx context.Context) { r.Respond(ctx, out, frame, nil) }
}

// Metrics cost a call no allocation, and no memory that is not used again.
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
	size := func(o *observe.Observer) uint64 {
		call := responding(o)
		call(t.Context())
		least := ^uint64(0)
		for range 20 { // other goroutines allocate, too
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range 100 {
				call(t.Context())
			}
			runtime.ReadMemStats(&after)
			least = min(least, (after.TotalAlloc-before.TotalAlloc)/100)
		}
		return least
	}
	if off, on := size(nil), size(metrics.New(nil).Observer()); on > off+8 {
		t.Errorf("%d bytes with metrics, %d without", on, off)
	}
}

// BenchmarkCall is a call that is not observed, one that is counted, and one that is counted in a
// trace which is sampled out.
func BenchmarkCall(b *testing.B) {
	out := traces.New(&traces.Options{Ratio: -1}).Observer()
	for _, v := range []struct {
		name string
		o    *observe.Observer
	}{
		{"off", nil},
		{"metrics", metrics.New(nil).Observer()},
		{"sampled out", observe.Join(metrics.New(nil).Observer(), out)},
	} {
		b.Run(v.name, func(b *testing.B) {
			call := responding(v.o)
			for b.Loop() {
				call(b.Context())
			}
		})
	}
}
