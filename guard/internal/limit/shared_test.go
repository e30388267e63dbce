package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
)

// sums is a Counter in memory that can be lost. Each question takes a millisecond.
type sums struct {
	mu    sync.Mutex
	of    map[string]int64
	asked atomic.Int64
	lost  atomic.Bool
}

func (s *sums) Take(_ context.Context, key string, n, limit int64, until time.Time) (int64, error) {
	s.asked.Add(1)
	<-time.After(time.Millisecond)
	if s.lost.Load() {
		return 0, errors.New("no quorum")
	}
	if !until.After(time.Now()) {
		return 0, errors.New("the time is over")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	granted := max(min(n, limit-s.of[key]), 0)
	s.of[key] += granted
	return granted, nil
}

func limiters(n int, c Counter, rates ...Rate) (all []*Limiter) {
	for range n {
		all = append(all, New(&Options{
			Rates: rates, Shared: &Shared{Counter: c, Nodes: func() int { return n }},
		}))
	}
	return all
}

var anyone = &Caller{Owner: owner.Named("anyone")}

// passed calls each limiter from several goroutines for a time, and returns how many calls passed.
func passed(t *testing.T, all []*Limiter, during time.Duration) (n int64) {
	t.Helper()
	var count atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(during)
	for _, l := range all {
		for range 8 {
			wg.Go(func() {
				for time.Now().Before(end) {
					if _, err := l.TakeShared(t.Context(), anyone, "x"); err == nil {
						count.Add(1)
					}
					<-time.After(2 * time.Millisecond)
				}
			})
		}
	}
	wg.Wait()
	return count.Load()
}

// Three processes let pass what one would: 100 a second and a burst of 100, and no call is lost.
func TestSharedRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &sums{of: map[string]int64{}}
		all := limiters(3, c, Rate{Limit: 100, Every: time.Second})
		if n := passed(t, all, 10*time.Second); n > 1111 || n < 1080 {
			t.Errorf("%d calls in 10 s, want 1100", n)
		}
		// A full bucket holds Burst, however long nothing was called.
		<-time.After(time.Minute)
		if n := passed(t, all, 10*time.Second); n > 1111 || n < 1080 {
			t.Errorf("%d calls in 10 s after a pause, want 1100", n)
		}
	})
}

// A quota of a day is met to the call, by whichever process, and begins again at midnight.
func TestSharedQuota(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{7, 5000} {
		synctest.Test(t, func(t *testing.T) {
			c := &sums{of: map[string]int64{}}
			all := limiters(3, c, Rate{Limit: limit, Every: day})
			if n := passed(t, all, 10*time.Second); n != int64(limit) {
				t.Errorf("%d calls on the first day, want %d", n, limit)
			}
			<-time.After(day)
			if n := passed(t, all, 10*time.Second); n != int64(limit) {
				t.Errorf("%d calls on the next day, want %d", n, limit)
			}
		})
	}
}

// Without the Counter each process lets its share of a rate pass, and nothing of a quota; what was
// granted before is still good.
func TestSharedLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &sums{of: map[string]int64{}}
		c.lost.Store(true)
		all := limiters(3, c, Rate{Limit: 90, Every: time.Second})
		if n := passed(t, all, 10*time.Second); n > 1000 || n < 850 {
			t.Errorf("%d calls in 10 s without the counter, want about 990", n)
		}
		c.lost.Store(false)
		<-time.After(2 * lostTime)
		before := c.asked.Load()
		if n := passed(t, all, 10*time.Second); n > 999 || n < 970 || c.asked.Load() == before {
			t.Errorf("%d calls in 10 s with the counter again, want 990", n)
		}
		quota := limiters(1, c, Rate{Limit: 5000, Every: day})[0]
		if _, err := quota.TakeShared(t.Context(), anyone, "x"); err != nil {
			t.Error(err)
		}
		c.lost.Store(true)
		left := 0
		for range 100 {
			if _, err := quota.TakeShared(t.Context(), anyone, "x"); err == nil {
				left++
			}
		}
		if left != 4 {
			t.Errorf("%d calls of a lease of 5 after the first", left)
		}
	})
}

// Buckets are apart by what they are for, and processes name them alike.
func TestSharedNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &sums{of: map[string]int64{}}
		rates := []Rate{
			{Limit: 5, Every: day},
			{Per: "address", Limit: 3, Every: day},
			{Each: true, Limit: 2, Every: day},
		}
		all := limiters(2, c, rates...)
		var got []string
		for i, call := range []string{"a", "a", "a", "b", "b"} {
			by := &Caller{Owner: anyone.Owner, Address: fmt.Sprintf("10.0.0.%d:99", i%2)}
			_, err := all[i%2].TakeShared(t.Context(), by, call)
			got = append(got, fmt.Sprint(err == nil))
		}
		if fmt.Sprint(got) != "[true true false true true]" {
			t.Error(got)
		}
		// Two callers of an address, at two processes.
		for i, want := range []bool{true, false} {
			by := &Caller{Owner: owner.Named(fmt.Sprint("other ", i)), Address: "10.0.0.0:1"}
			if _, err := all[1].TakeShared(t.Context(), by, "c"); (err == nil) != want {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		if len(c.of) == 0 {
			t.Error("nothing was counted")
		}
	})
}

// A caller that has gone does not wait.
func TestSharedCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiters(1, &sums{of: map[string]int64{}}, Rate{Limit: 5, Every: day})[0]
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.TakeShared(ctx, anyone, "x"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A call with a lease costs no more than one of a limiter alone, about.
func BenchmarkTakeShared(b *testing.B) {
	for _, shared := range []bool{false, true} {
		b.Run(fmt.Sprint("shared=", shared), func(b *testing.B) {
			o := Options{Rates: []Rate{{Limit: 1 << 30, Every: time.Second}}}
			if shared {
				o.Shared = &Shared{Counter: unlimited{}}
			}
			l := New(&o)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.TakeShared(b.Context(), anyone, "x"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type unlimited struct{}

func (unlimited) Take(_ context.Context, _ string, n, _ int64, _ time.Time) (int64, error) {
	return n, nil
}
