package metrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/storetest"
	"github.com/farcall-dev/farcall/observe/metrics"
	"github.com/farcall-dev/farcall/store"
)

// A store that is measured keeps the contract of stores.
func TestStoreContract(t *testing.T) {
	t.Parallel()
	m := metrics.New(nil)
	const lease = 50 * time.Millisecond
	storetest.Run(t, storetest.Suite{
		Lease: lease, Rounds: 5,
		Open: func(t *testing.T, n int) []store.Store {
			t.Helper()
			s := m.Store(store.NewMemory(&store.Options{Lease: lease}))
			t.Cleanup(func() { _ = s.Close() })
			all := make([]store.Store, n)
			for i := range all {
				all[i] = s
			}
			return all
		},
	})
	text := scrape(t, m)
	for _, op := range []string{
		"claim", "release", "since", "take", "give", "put", "get", "delete", "push", "publish",
		"subscribe", "done", "extend", "return",
	} {
		if !strings.Contains(text, `farcall_store_seconds_count{op="`+op+`"}`) {
			t.Errorf("the operation %s is not measured", op)
		}
	}
}

// failing is a store. Its claims fail with err.
type failing struct {
	store.Store

	err error
}

func (f *failing) Claim(context.Context, string, time.Time) (bool, error) { return false, f.err }

// Failures are counted by their cause. What a caller asks the store to find out is none.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	m := metrics.New(nil)
	memory := store.NewMemory(nil)
	defer memory.Close()
	f := &failing{Store: memory}
	s := m.Store(f)
	for _, f.err = range []error{
		nil, store.ErrNotFound, store.ErrConflict, store.ErrPast, context.Canceled,
		store.ErrUnavailable, store.ErrUnavailable, store.ErrFull, store.ErrClosed,
		context.DeadlineExceeded, errors.New("the connection broke"),
	} {
		if _, err := s.Claim(t.Context(), "k", time.Now()); !errors.Is(err, f.err) {
			t.Errorf("%v became %v", f.err, err)
		}
	}
	text := scrape(t, m)
	wantLines(t, text,
		`farcall_store_seconds_count{op="claim"} 11`,
		`farcall_store_errors_total{op="claim",reason="unavailable"} 2`,
		`farcall_store_errors_total{op="claim",reason="full"} 1`,
		`farcall_store_errors_total{op="claim",reason="closed"} 1`,
		`farcall_store_errors_total{op="claim",reason="timeout"} 1`,
		`farcall_store_errors_total{op="claim",reason="unknown_outcome"} 1`)
	if n := strings.Count(text, "farcall_store_errors_total{"); n != 5 {
		t.Errorf("%d kinds of failures, want 5", n)
	}
}
