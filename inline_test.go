package farcall_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
)

// blockingMux has a method that returns at once, and one that waits until its call is cancelled.
func blockingMux() (m *farcall.Mux, cancelled chan struct{}) {
	m, cancelled = farcall.NewMux(), make(chan struct{}, 10_000)
	farcall.Handle(m, "fast", func(context.Context, struct{}) (bool, error) { return true, nil })
	farcall.Handle(m, "block", func(ctx context.Context, _ struct{}) (bool, error) {
		<-ctx.Done()
		cancelled <- struct{}{}
		return false, ctx.Err()
	})
	farcall.Handle(m, "late", func(ctx context.Context, wait bool) (bool, error) {
		// fast until wait is true
		if wait {
			<-ctx.Done()
		}
		return true, nil
	})
	return m, cancelled
}

// Calls that block never delay another: neither those of a method that was never called, nor those
// of one that was fast so far, on this connection and on the next. Their cancellations are not
// behind them either.
func TestBlockingCallsDelayNone(t *testing.T) {
	for _, method := range []string{"block", "late"} {
		for _, noInline := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, NoInline %v", method, noInline), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { delayNone(t, method, noInline) })
			})
		}
	}
}

func delayNone(t *testing.T, method string, noInline bool) {
	const calls = 1000
	mux, cancelled := blockingMux()
	for range 2 {
		a, b := farcall.Pipe()
		peer, _ := connect(t, a, b, nil, mux, nil,
			&farcall.Options{NoInline: noInline, MaxInFlight: 2 * calls})
		for range 100 {
			if err := peer.Call(t.Context(), "late", []bool{false}, nil); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, calls)
		for range calls {
			go func() {
				var params any
				if method == "late" {
					params = []bool{true}
				}
				done <- peer.Call(ctx, method, params, nil)
			}()
		}
		synctest.Wait()
		if err := peer.Call(t.Context(), "fast", nil, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*time.Millisecond {
			t.Errorf("a fast call behind %d that block took %v", calls, took)
		}
		cancel()
		for range calls {
			<-done
		}
		if method == "block" {
			for range calls {
				<-cancelled
			}
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("%d cancellations took %v", calls, took)
		}
	}
}

// The first calls of methods that are fast are answered in order, as those that follow them are: a
// client may send initialize and the next request at once.
func TestColdCallsAreAnsweredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := farcall.NewMux()
		var order []int
		for i := range 50 {
			farcall.Handle(mux, fmt.Sprint("m", i), func(context.Context, struct{}) (bool, error) {
				order = append(order, i) // no lock: each handler has ended when the next begins
				return true, nil
			})
		}
		a, b := farcall.Pipe()
		farcall.NewPeer(b, mux, nil)
		for i := range 50 {
			if err := a.Write(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"m%d","id":%d}`, i, i)); err !=
				nil {
				t.Fatal(err)
			}
		}
		for i := range 50 {
			answer, err := a.Read()
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","result":true,"id":%d}`, i); err != nil ||
				string(answer) != want {
				t.Fatalf("answer %d is %s, %v", i, answer, err)
			}
		}
		a.Close()
		if !slices.IsSorted(order) || len(order) != 50 {
			t.Errorf("the handlers ran in the order %v", order)
		}
	})
}
