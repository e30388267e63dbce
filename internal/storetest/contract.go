package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/store"
)

// listener notes what a subscriber received.
type listener struct {
	mu      sync.Mutex
	heard   map[string]bool // the publishers that are connected by now
	last    map[string]int  // by publisher
	gap     bool
	faults  []string
	changed chan struct{}
}

func (l *listener) receive(m store.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Gap {
		l.gap = true
	} else {
		from, number, _ := strings.Cut(string(m.Data), " ")
		n, err := strconv.Atoi(number)
		switch want := l.last[from] + 1; {
		case err == nil && n == 0: // not counted: from before all subscriptions were known
			l.heard[from] = true
			return
		case err != nil:
			l.faults = append(l.faults, fmt.Sprintf("%q was never published", m.Data))
		case n < want:
			l.faults = append(l.faults, fmt.Sprintf("%d of %s after %d", n, from, want-1))
		case n > want && !l.gap:
			l.faults = append(l.faults, fmt.Sprintf("%d of %s for %d, without a gap", n, from, want))
		}
		l.last[from] = n
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func newListener() *listener {
	changed := make(chan struct{}, 1)
	return &listener{heard: map[string]bool{}, last: map[string]int{}, changed: changed}
}

// complete reports whether the last message of each publisher has come, or a gap.
func (l *listener) complete(publishers, last int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range publishers {
		if l.last[strconv.Itoa(i)] != last && !l.gap {
			return false
		}
	}
	return true
}

// testBus has each handle publish, and two subscribers at each handle.
func testBus(t *testing.T, s *Suite, stores []store.Store) {
	const last = 60
	topic := fmt.Sprintf("bus of %d", time.Now().UnixNano())
	var listeners []*listener
	for i := range 2 * len(stores) {
		l := newListener()
		stop, err := stores[i%len(stores)].Subscribe(t.Context(), topic, l.receive)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		listeners = append(listeners, l)
	}
	eventually(t, "all subscriptions are known everywhere", func() bool {
		known := true
		for i, from := range stores {
			if err := from.Publish(t.Context(), topic, fmt.Appendf(nil, "%d 0", i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range listeners {
			l.mu.Lock()
			known = known && len(l.heard) == len(stores)
			l.mu.Unlock()
		}
		return known
	})
	stop := s.disturb(t)
	var wait sync.WaitGroup
	for i, from := range stores {
		wait.Go(func() {
			for n := range last {
				ctx, cancel := context.WithTimeout(t.Context(), s.Timeout)
				err := from.Publish(ctx, topic, fmt.Appendf(nil, "%d %d", i, n+1))
				cancel()
				if err != nil && s.Disturb == nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	stop()
	if s.Disturb != nil {
		return // what was published while there was no connection is lost
	}
	late := time.After(checks)
	for i, l := range listeners {
		for !l.complete(len(stores), last) {
			select {
			case <-l.changed:
			case <-late:
				t.Fatalf("subscriber %d has %v", i, l.last)
			}
		}
		l.mu.Lock()
		if len(l.faults) > 0 {
			t.Errorf("subscriber %d: %q", i, l.faults)
		}
		l.mu.Unlock()
	}
}

// testContract checks what histories do not show: times, ends, and what a closed store answers.
func testContract(t *testing.T, s *Suite) {
	t.Run("expiry", func(t *testing.T) { t.Parallel(); testExpiry(t, s) })
	t.Run("lease", func(t *testing.T) { t.Parallel(); testLease(t, s) })
	t.Run("release", func(t *testing.T) { t.Parallel(); testRelease(t, s) })
	t.Run("order", func(t *testing.T) { t.Parallel(); testOrder(t, s) })
	t.Run("close", func(t *testing.T) { t.Parallel(); testClose(t, s) })
}

// eventually asks until it is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	late := time.After(checks)
	for !so() {
		select {
		case <-late:
			t.Fatalf("%s: not within %v", what, checks)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func testExpiry(t *testing.T, s *Suite) {
	ctx, stores := t.Context(), s.Open(t, 2)
	a, b := stores[0], stores[1]
	key := fmt.Sprint("expiry ", time.Now().UnixNano())
	if _, err := a.Claim(ctx, key, time.Now().Add(-time.Second)); !errors.Is(err, store.ErrPast) {
		t.Errorf("Claim until a second ago: %v", err)
	}
	since, err := a.Since(ctx)
	again, err2 := b.Since(ctx)
	if err := errors.Join(err, err2); err != nil || since.IsZero() || since.After(time.Now()) ||
		!again.Equal(since) {
		t.Errorf("Since: %v, %v, and %v, %v", since, err, again, err2)
	}
	until := time.Now().Add(1200 * time.Millisecond)
	if first, err := a.Claim(ctx, key, until); err != nil || !first {
		t.Fatalf("Claim: %v, %v", first, err)
	}
	if n, err := a.Take(ctx, key, 5, 3, until); err != nil || n != 3 {
		t.Errorf("Take 5 of 3: %d, %v", n, err)
	}
	r := &store.Record{Owner: "o", ID: key, Expires: until, Value: []byte("v")}
	if _, err := a.Put(ctx, r); err != nil {
		t.Error(err)
	}
	eventually(t, "the claim expires", func() bool {
		first, err := b.Claim(ctx, key, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if first && time.Now().Before(until) {
			t.Errorf("the claim was given again %v too early", time.Until(until))
		}
		return first
	})
	eventually(t, "the sum expires", func() bool {
		n, err := b.Take(ctx, key, 1, 3, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	eventually(t, "the record expires", func() bool {
		_, err := b.Get(ctx, "o", key)
		return errors.Is(err, store.ErrNotFound)
	})
	r.Expires = time.Now().Add(time.Hour)
	if v, err := b.Put(ctx, r); err != nil || v != 1 {
		t.Errorf("Put where a record has expired: version %d, %v", v, err)
	}
}

func testLease(t *testing.T, s *Suite) {
	ctx, stores := t.Context(), s.Open(t, 2)
	a, b := stores[0], stores[1]
	name := fmt.Sprint("lease ", time.Now().UnixNano())
	if err := a.Push(ctx, name, []byte("x")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	i, err := a.Pull(ctx, name)
	if err != nil || string(i.Data()) != "x" || i.Attempt() != 1 {
		t.Fatalf("Pull: %+v, %v", i, err)
	}
	if err := i.Extend(ctx); err != nil {
		t.Error(err)
	}
	again, err := b.Pull(ctx, name)
	if err != nil || again.Attempt() < 2 || time.Since(began) < s.Lease*9/10 {
		t.Fatalf("the item after %v of %v: %+v, %v", time.Since(began), s.Lease, again, err)
	}
	if err := again.Return(ctx); err != nil {
		t.Error(err)
	}
	last, err := a.Pull(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Done(ctx); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, s.Lease*3/2)
	defer cancel()
	if left, err := b.Pull(short, name); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Pull of an empty queue: %v, %v", left, err)
	}
}

// Release frees what this process has claimed, and nothing else.
func testRelease(t *testing.T, s *Suite) {
	ctx, stores := t.Context(), s.Open(t, 2)
	a, b := stores[0], stores[1]
	key := fmt.Sprint("release ", time.Now().UnixNano())
	claim := func(s store.Store, want bool) {
		t.Helper()
		if first, err := s.Claim(ctx, key, time.Now().Add(time.Hour)); err != nil || first != want {
			t.Errorf("Claim: %v, %v", first, err)
		}
	}
	if err := a.Release(ctx, key); err != nil {
		t.Errorf("Release of what is not claimed: %v", err)
	}
	claim(a, true)
	if a != b {
		if err := b.Release(ctx, key); err != nil {
			t.Errorf("Release by another: %v", err)
		}
		claim(b, false)
	}
	if err := a.Release(ctx, key); err != nil {
		t.Error(err)
	}
	claim(b, true)
}

// Items come in the order in which they were pushed, and keys may be any text.
func testOrder(t *testing.T, s *Suite) {
	ctx, stores := t.Context(), s.Open(t, 1)
	name := fmt.Sprint("order * > . \x00 é ", time.Now().UnixNano())
	var want, got []string
	for i := range 8 {
		want = append(want, strconv.Itoa(i))
		if err := stores[0].Push(ctx, name, []byte(want[i])); err != nil {
			t.Fatal(err)
		}
	}
	for range want {
		i, err := stores[0].Pull(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(i.Data()))
		if err := i.Done(ctx); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("pulled %q", got)
	}
	for _, key := range []string{name, strings.Repeat("k", 5000), ".", " ", ""} {
		first, err := stores[0].Claim(ctx, name+key, time.Now().Add(time.Hour))
		if err != nil || !first {
			t.Errorf("Claim %.20q: %v, %v", key, first, err)
		}
	}
}

func testClose(t *testing.T, s *Suite) {
	ctx, stores := t.Context(), s.Open(t, 1)
	a := stores[0]
	name := fmt.Sprint("close ", time.Now().UnixNano())
	pulled := make(chan error, 1)
	go func() {
		_, err := a.Pull(ctx, name)
		pulled <- err
	}()
	if _, err := a.Subscribe(ctx, name, func(store.Message) {}); err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := <-pulled; !errors.Is(err, store.ErrClosed) {
		t.Errorf("Pull while the store is closed: %v", err)
	}
	_, claim := a.Claim(ctx, name, time.Now().Add(time.Hour))
	_, take := a.Take(ctx, name, 1, 1, time.Now().Add(time.Hour))
	_, get := a.Get(ctx, name, name)
	push, publish := a.Push(ctx, name, nil), a.Publish(ctx, name, nil)
	for i, err := range []error{claim, take, get, push, publish} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("operation %d after Close: %v", i, err)
		}
	}
}
