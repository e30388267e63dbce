package farcall_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// A handler that ends its goroutine fails its own element of a batch only, also
// when there is but one worker.
func TestGoexitInABatch(t *testing.T) {
	h := handle(map[string]farcall.HandlerFunc{
		"goexit": func(context.Context, *farcall.Request) (any, error) {
			runtime.Goexit()
			return nil, nil
		},
		"echo": echo,
	})
	o := &farcall.Options{MaxInFlight: 1}
	check := func(t *testing.T, p *farcall.Peer) {
		t.Helper()
		calls := []*farcall.BatchCall{
			{Method: "echo"}, {Method: "goexit"}, {Method: "goexit", Notify: true}, {Method: "echo"},
		}
		if err := p.Batch(t.Context(), calls...); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(calls[1].Err, jsonrpc.InternalError) || calls[0].Err != nil || calls[3].Err != nil {
			t.Errorf("got %v, %v, %v", calls[0].Err, calls[1].Err, calls[3].Err)
		}
	}
	t.Run("peer", func(t *testing.T) {
		a, b := farcall.Pipe()
		pa, pb := connect(t, a, b, nil, h, nil, o)
		check(t, pa)
		if err := pb.Shutdown(t.Context()); err != nil { // nothing is left in flight
			t.Error(err)
		}
	})
	t.Run("http", func(t *testing.T) { check(t, httpClient(t, h, o)) })
}

// Notifications that come in batches are bounded like any others.
func TestNotificationFloodInBatches(t *testing.T) {
	h := newHold()
	w := newWire(t, stream.NDJSON, h, &farcall.Options{MaxInFlightBytes: 10_000})
	note := `{"jsonrpc":"2.0","method":"wait","params":["` + strings.Repeat("x", 1000) + `"]}`
	w.write(note)
	<-h.started
	w.write("[" + strings.Repeat(note+",", 11) + note + "]")
	w.expectEnd("more notifications arrived")
	close(h.release)
}

// Shutdown does not wait longer than the notification that is being handled.
func TestShutdownDuringANotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := farcall.Pipe()
		pa, pb := connect(t, a, b, nil,
			farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
				<-time.After(500 * time.Microsecond) // ends before the reading is taken over
				return nil, nil
			}), nil, nil)
		if err := pa.Notify(t.Context(), "n", nil); err != nil {
			t.Fatal(err)
		}
		<-time.After(100 * time.Microsecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := pb.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
}
