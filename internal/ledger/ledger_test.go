package ledger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/store"
)

func callOf(who, key, args string) *Call {
	return &Call{
		Owner: owner.Principal("key", "user", "", who), Key: key, Digest: sha256.Sum256([]byte(args)),
	}
}

// answers returns an execution that ends after a while, and counts.
func answers(n *atomic.Int64, after time.Duration, e Effect) func(context.Context) ([]byte,
	Effect) {
	return func(context.Context) ([]byte, Effect) {
		i := n.Add(1)
		<-time.After(after)
		return fmt.Append(nil, "answer ", i), e
	}
}

// processes are ledgers over one store.
func processes(n int, s store.Records) (all []*Ledger) {
	for range n {
		all = append(all, New(s, nil))
	}
	return all
}

func inBubble(t *testing.T, f func(t *testing.T, s *store.Memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(nil)
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, s)
	})
}

// A hundred calls of one key in three processes are one execution and one answer, for longer than a
// lease as well.
func TestOnce(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Second, 5 * defaultLease} {
		inBubble(t, func(t *testing.T, s *store.Memory) {
			all := processes(3, s)
			var ran atomic.Int64
			var wg sync.WaitGroup
			for i := range 100 {
				wg.Go(func() {
					<-time.After(time.Duration(i) * takes / 80) // the last ones come when it has ended
					got, err := all[i%3].Do(t.Context(), callOf("a", "k", "x"), answers(&ran, takes, Done))
					if err != nil || string(got) != "answer 1" {
						t.Errorf("%q, %v", got, err)
					}
				})
			}
			wg.Wait()
			if n := ran.Load(); n != 1 {
				t.Errorf("%d executions", n)
			}
		})
	}
}

func TestOtherArguments(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store.Memory) {
		all := processes(2, s)
		var ran atomic.Int64
		begun := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := all[0].Do(t.Context(), callOf("a", "k", "x"),
				func(ctx context.Context) ([]byte, Effect) {
					close(begun)
					return answers(&ran, time.Second, Done)(ctx)
				})
			if err != nil {
				t.Error(err)
			}
		})
		<-begun
		for _, when := range []string{"in flight", "ended"} {
			for i, l := range all {
				if _, err := l.Do(t.Context(), callOf("a", "k", "y"), answers(&ran, 0,
					Done)); !errors.Is(err, ErrOther) {
					t.Errorf("%s, process %d: %v", when, i, err)
				}
			}
			wg.Wait()
		}
		// Other owners have their own keys.
		if got, err := all[1].Do(t.Context(), callOf("b", "k", "y"), answers(&ran, 0,
			Done)); err != nil || string(got) != "answer 2" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// What was not executed may be executed by the next one; what has asked goes on by a continuation.
func TestEffects(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store.Memory) {
		all := processes(2, s)
		var ran atomic.Int64
		do := func(i int, key string, goesOn bool, e Effect) string {
			c := callOf("a", key, "x")
			c.Continues = goesOn
			got, err := all[i].Do(t.Context(), c, answers(&ran, 0, e))
			return fmt.Sprint(string(got), " ", err)
		}
		for i, step := range []struct {
			key    string
			goesOn bool
			e      Effect
			want   string
		}{
			{"free", false, None, "answer 1 <nil>"},
			{"free", false, Done, "answer 2 <nil>"},
			{"free", false, Done, "answer 2 <nil>"},
			{"asks", false, Asked, "answer 3 <nil>"},
			{"asks", false, Done, " " + ErrAsked.Error()},
			{"asks", true, Asked, "answer 4 <nil>"},
			{"asks", true, Done, "answer 5 <nil>"},
			{"asks", false, Done, "answer 5 <nil>"},
			{"unknown", false, Unknown, "answer 6 " + ErrLost.Error()},
			{"unknown", false, Done, " " + ErrLost.Error()},
		} {
			if got := do(i%2, step.key, step.goesOn, step.e); got != step.want {
				t.Errorf("step %d: %q, want %q", i, got, step.want)
			}
		}
		big := func(context.Context) ([]byte, Effect) { return make([]byte, maxValue+1), Done }
		if got, err := all[0].Do(t.Context(), callOf("a", "big", ""),
			big); err != nil || len(got) != maxValue+1 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if _, err := all[1].Do(t.Context(), callOf("a", "big", ""), big); !errors.Is(err, ErrLarge) {
			t.Error(err)
		}
	})
}

// A call of a process that stops for longer than a lease has an unknown outcome for all, its
// process
// included; a client that leaves ends nothing.
func TestLost(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store.Memory) {
		stopped := &faulty{Records: s}
		first, second := New(stopped, nil), New(s, nil)
		var ran atomic.Int64
		begun := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := first.Do(t.Context(), callOf("a", "k", "x"),
				func(ctx context.Context) ([]byte, Effect) {
					stopped.down.Store(true)
					close(begun)
					defer stopped.down.Store(false)
					return answers(&ran, 3*defaultLease, Done)(ctx)
				})
			if !errors.Is(err, ErrLost) {
				t.Errorf("of the process that executes it: %v", err)
			}
		})
		<-begun
		began := time.Now()
		if _, err := second.Do(t.Context(), callOf("a", "k", "x"), answers(&ran, 0,
			Done)); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		if took := time.Since(began); took < defaultLease || took > 2*defaultLease {
			t.Errorf("lost after %v", took)
		}
		wg.Wait()
		if ran.Load() != 1 {
			t.Errorf("%d executions", ran.Load())
		}

		ctx, cancel := context.WithCancel(t.Context())
		got, err := first.Do(ctx, callOf("a", "left", "x"), func(ctx context.Context) ([]byte, Effect) {
			cancel()
			if ctx.Err() != nil {
				t.Error("it ends with its client")
			}
			return answers(&ran, time.Minute, Done)(ctx)
		})
		again, err2 := second.Do(t.Context(), callOf("a", "left", "x"), answers(&ran, 0, Done))
		if err != nil || err2 != nil || string(got) != "answer 2" || string(again) != "answer 2" {
			t.Errorf("%q, %v, then %q, %v", got, err, again, err2)
		}
	})
}

// A panic leaves an unknown outcome, and no call that is under way.
func TestPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store.Memory) {
		l := New(s, nil)
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Do(t.Context(), callOf("a", "k", ""), func(context.Context) ([]byte,
				Effect,
			) {
				panic("it")
			})
		}()
		if _, err := l.Do(t.Context(), callOf("a", "k", ""), answers(new(atomic.Int64), 0,
			Done)); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		if len(l.running) != 0 || l.held.Used() != 0 {
			t.Errorf("%d calls are under way", len(l.running))
		}
	})
}

// Calls under way are bounded for each owner, and none takes the room of another.
func TestOwners(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store.Memory) {
		l := New(s, &Options{Calls: 100})
		var wg sync.WaitGroup
		var full, ran atomic.Int64
		for i := range 200 {
			wg.Go(func() {
				_, err := l.Do(t.Context(), callOf("greedy", fmt.Sprint(i), ""), answers(&ran,
					time.Minute, Done))
				if errors.Is(err, ErrFull) {
					full.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := 200 - full.Load(); n < 1 || n > leastShare {
			t.Errorf("%d are under way", n)
		}
		if _, err := l.Do(t.Context(), callOf("modest", "0", ""), answers(new(atomic.Int64), 0,
			Done)); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// faulty is a store that can be out of reach, and fail before or after it has done its work.
type faulty struct {
	store.Records

	down atomic.Bool
	mu   sync.Mutex
	dice *rand.Rand // nil: it does not fail
}

var errFault = errors.New("a fault")

func (f *faulty) roll() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dice == nil {
		return 99
	}
	return f.dice.IntN(100)
}

func (f *faulty) Put(ctx context.Context, r *store.Record) (uint64, error) {
	n := f.roll()
	<-time.After(time.Duration(n) * 10 * time.Millisecond)
	switch {
	case f.down.Load(), n < 10:
		return 0, store.ErrUnavailable
	case n < 20:
		_, _ = f.Records.Put(ctx, r) // its outcome is not told
		return 0, errFault
	case n < 30:
		return 0, errFault
	}
	return f.Records.Put(ctx, r)
}

func (f *faulty) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	if n := f.roll(); f.down.Load() || n < 10 {
		return nil, store.ErrUnavailable
	}
	return f.Records.Get(ctx, owner, id)
}

// Whatever the stores of three processes do, no call is executed twice but where its execution said
// that it did nothing, and all answers that clients get are those of one execution or unknown.
func TestFaults(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		inBubble(t, func(t *testing.T, s *store.Memory) {
			var all []*Ledger
			for i := range uint64(3) {
				all = append(all, New(&faulty{Records: s, dice: rand.New(rand.NewPCG(seed, i))}, nil))
			}
			dice := rand.New(rand.NewPCG(seed, 99))
			var ran atomic.Int64
			var mu sync.Mutex
			got := map[string]int{}
			var wg sync.WaitGroup
			for range 30 {
				l, wait, takes := all[dice.IntN(3)], dice.IntN(20), dice.IntN(30)
				leaves := dice.IntN(4) == 0
				wg.Go(func() {
					<-time.After(time.Duration(wait) * time.Second)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if leaves {
						defer time.AfterFunc(time.Second, cancel).Stop()
					}
					value, err := l.Do(ctx, callOf("a", "k", "x"), answers(&ran,
						time.Duration(takes)*time.Second, Done))
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						got[string(value)]++
					} else {
						got["error: "+err.Error()]++
					}
				})
			}
			wg.Wait()
			kinds := 0
			for answer := range got {
				if !strings.HasPrefix(answer, "error: ") {
					kinds++
				}
			}
			if ran.Load() > 1 || kinds > 1 {
				t.Errorf("seed %d: %d executions: %v", seed, ran.Load(), got)
			}
		})
	}
}
