package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func newClock() *clock { return &clock{time.Unix(1_700_000_000, 0)} }

// use uses a nonce as an owner that has no other.
func use(t *testing.T, m *Memory, nonce string, until time.Time, fresh bool, want error) {
	t.Helper()
	useAs(t, m, "the owner of "+nonce, nonce, until, fresh, want)
}

func useAs(t *testing.T, m *Memory, owner, nonce string, until time.Time, fresh bool, want error) {
	t.Helper()
	got, err := m.Use(context.Background(), owner, nonce, until)
	if got != fresh || !errors.Is(err, want) || (want == nil) != (err == nil) {
		t.Fatalf("%s of %s until %v: %v, %v; want %v, %v", nonce, owner, until, got, err, fresh, want)
	}
}

func TestUse(t *testing.T) {
	c := newClock()
	m := New(2, c.now)
	minute := c.t.Add(time.Minute)
	use(t, m, "a", minute, true, nil)
	use(t, m, "a", minute, false, nil)
	use(t, m, "b", minute.Add(time.Second), true, nil)
	use(t, m, "c", minute, false, ErrFull)
	use(t, m, "a", minute, false, nil) // known as used also when full
	c.t = minute.Add(-1)
	use(t, m, "a", minute, false, nil)
	use(t, m, "c", minute.Add(time.Minute), false, ErrFull)
	c.t = minute
	use(t, m, "a", minute, false, ErrPast)
	use(t, m, "c", minute.Add(time.Minute), true, nil)
	use(t, m, "d", minute.Add(time.Minute), false, ErrFull)
	use(t, New(0, nil), "a", time.Now().Add(time.Hour), false, ErrFull)
	use(t, New(1, nil), "a", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), true, nil)
	use(t, New(1, nil), "a", time.Time{}, false, ErrPast)
}

// Two nodes that share a store refuse each other's replays; two that do not cannot.
func TestSharedMemoryRefusesReplayOfTheOtherNode(t *testing.T) {
	type store interface {
		Use(ctx context.Context, owner, nonce string, until time.Time) (bool, error)
	}
	accept := func(node store) bool {
		fresh, err := node.Use(context.Background(), "ci", "ci|0123456789abcdef",
			time.Now().Add(time.Minute))
		return fresh && err == nil
	}
	shared := New(10, nil)
	if one, two := store(shared), store(shared); !accept(one) || accept(two) || accept(one) {
		t.Error("the second node took what the first had taken")
	}
	if one, two := New(10, nil), New(10, nil); !accept(one) || !accept(two) {
		t.Error("memories that are not shared know of each other")
	}
}

// A clock that goes back makes nothing new that was used: what was forgotten is refused.
func TestReplayWithClockSetBack(t *testing.T) {
	c := newClock()
	m := New(10, c.now)
	start := c.t
	use(t, m, "a", start.Add(time.Minute), true, nil)
	use(t, m, "b", start.Add(time.Hour), true, nil)
	c.t = start.Add(2 * time.Minute)
	use(t, m, "c", start.Add(time.Hour), true, nil)
	c.t = start.Add(-time.Hour)
	use(t, m, "a", start.Add(time.Minute), false, ErrPast)
	use(t, m, "b", start.Add(time.Hour), false, nil)
	use(t, m, "c", start.Add(time.Hour), false, nil)
	use(t, m, "d", start.Add(time.Hour), true, nil)
	if n := m.Len(); n != 3 {
		t.Errorf("%d nonces, want 3", n)
	}
}

// A refused nonce that would be good for longer stays refused for that long.
func TestReplayWithLaterUntil(t *testing.T) {
	c := newClock()
	m := New(10, c.now)
	start := c.t
	use(t, m, "a", start.Add(time.Minute), true, nil)
	use(t, m, "a", start.Add(time.Hour), false, nil)
	c.t = start.Add(2 * time.Minute)
	use(t, m, "a", start.Add(time.Hour), false, nil)
	c.t = start.Add(time.Hour)
	if n := m.Len(); n != 0 {
		t.Errorf("%d nonces, want none", n)
	}
}

// The model is a map; the clock goes on in steps of all sizes, and back.
func TestUseIsAMap(t *testing.T) {
	for seed := range uint64(20) {
		checkModel(t, rand.New(rand.NewPCG(seed, 1)))
	}
}

func checkModel(t *testing.T, r *rand.Rand) {
	t.Helper()
	c := newClock()
	most := 1 + r.IntN(3000)
	m := New(most, c.now)
	type entry struct {
		owner string
		end   int64
	}
	model := map[string]entry{}
	held := map[string]int{}
	drop := func(nonce string) {
		held[model[nonce].owner]--
		delete(model, nonce)
	}
	owners := 1 + r.IntN(20)
	latest := c.t.Unix()
	names := 1 + r.IntN(2*most)
	window := time.Duration(1+r.IntN(300)) * time.Second
	for range 10_000 {
		switch r.IntN(200) {
		case 0:
			c.t = c.t.Add(time.Duration(r.Int64N(int64(window))))
		case 1:
			c.t = c.t.Add(-time.Duration(r.Int64N(int64(window))))
		case 2:
			if r.IntN(10) == 0 {
				c.t = c.t.Add(24 * time.Hour)
			}
		default:
			c.t = c.t.Add(time.Duration(r.IntN(1e7)))
		}
		if now := c.t.Unix(); now > latest {
			latest = now
			for nonce, e := range model {
				if e.end <= now {
					drop(nonce)
				}
			}
		}
		// some use more than others
		nonce, owner := fmt.Sprint(r.IntN(names)), fmt.Sprint(r.IntN(1+r.IntN(owners)))
		until := c.t.Add(time.Duration(r.Int64N(int64(window))))
		end := until.Add(time.Second - 1).Unix()
		had, known := model[nonce]
		mine, free := held[owner], most-len(model)
		var wantErr error
		fresh := false
		switch {
		case end <= latest:
			wantErr = ErrPast
		case known:
			model[nonce] = entry{had.owner, max(had.end, end)}
		case free == 0:
			wantErr = ErrFull
		case mine > 0 && mine+1 > max(1, min(ratio, most-1))*free:
			wantErr = ErrShare
		default:
			fresh = true
			model[nonce] = entry{owner, end}
			held[owner]++
		}
		useAs(t, m, owner, nonce, until, fresh, wantErr)
		if fresh && r.IntN(10) == 0 {
			m.Forget(context.Background(), nonce)
			drop(nonce)
		}
	}
	if m.Len() != len(model) {
		t.Fatalf("%d nonces, the model has %d", m.Len(), len(model))
	}
}

// One owner that uses as many nonces as it can leaves room for others, also when many come after
// it, and gets room again when its nonces expire.
func TestOwnersHaveShares(t *testing.T) {
	c := newClock()
	m := New(1000, c.now)
	fill := func(owner string, until time.Time) (n int) {
		for ; ; n++ {
			if fresh, err := m.Use(context.Background(), owner,
				fmt.Sprintf("%s-%d-%d", owner, until.Unix(), n), until); !fresh {
				if !errors.Is(err, ErrShare) {
					t.Errorf("%s: %v", owner, err)
				}
				return n
			}
		}
	}
	minute := c.t.Add(time.Minute)
	for i, want := range []int{750, 187, 47, 12} {
		if n := fill(fmt.Sprint("signer ", i), minute.Add(time.Duration(i)*time.Minute)); n < want-1 ||
			n > want+1 {
			t.Errorf("signer %d: %d nonces, want about %d", i, n, want)
		}
	}
	use(t, m, "another", minute, true, nil)
	c.t = minute
	if n := fill("signer 0", minute.Add(time.Hour)); n < 550 || n > 570 {
		t.Errorf("signer 0 after its nonces have expired: %d", n)
	}
}

// What is forgotten is new again, and gives its place back.
func TestForget(t *testing.T) {
	c := newClock()
	m := New(4, c.now)
	minute := c.t.Add(time.Minute)
	for i := range 1000 {
		nonce := fmt.Sprint(i % 3)
		useAs(t, m, "ci", nonce, minute, true, nil)
		m.Forget(context.Background(), nonce)
		m.Forget(context.Background(), "never used")
	}
	if m.Len() != 0 || len(m.owners.index) != 0 || len(m.ends) != 0 {
		t.Errorf("%d nonces, %d owners, %d ends are left", m.Len(), len(m.owners.index), len(m.ends))
	}
	useAs(t, m, "ci", "x", minute, true, nil)
	c.t = minute
	m.Forget(context.Background(), "x") // it has expired
	useAs(t, m, "ci", "x", minute.Add(time.Minute), true, nil)
	if m.Len() != 1 {
		t.Errorf("%d nonces", m.Len())
	}
}

// Of many that use one nonce at once, one is first.
func TestUseAtOnce(t *testing.T) {
	m := New(100_000, nil)
	until := time.Now().Add(time.Hour)
	var fresh atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 10_000 {
				if ok, err := m.Use(context.Background(), "ci", fmt.Sprint(i), until); err != nil {
					t.Error(err)
				} else if ok {
					fresh.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := fresh.Load(); n != 10_000 {
		t.Errorf("%d were new, want 10000", n)
	}
}

// When all expire at once and others come one by one, no slot is lost.
func TestExpiredGoAsOthersCome(t *testing.T) {
	c := newClock()
	m := New(10_000, c.now)
	for round := range 20 {
		for i := range 9_000 {
			use(t, m, fmt.Sprintf("%d-%d", round, i), c.t.Add(time.Minute), true, nil)
		}
		use(t, m, fmt.Sprintf("%d-stays", round), c.t.Add(24*time.Hour), true, nil)
		if m.used > len(m.slots)/8*7 || len(m.slots) > 12_500 {
			t.Fatalf("%d of %d slots used", m.used, len(m.slots))
		}
		c.t = c.t.Add(time.Hour)
	}
	for round := range 20 {
		use(t, m, fmt.Sprintf("%d-stays", round), c.t.Add(time.Hour), false, nil)
	}
}

func BenchmarkUse(b *testing.B) {
	nonces := make([]string, 1<<20)
	for i := range nonces {
		nonces[i] = fmt.Sprintf("ci|%026d", i)
	}
	for _, bench := range []struct {
		name     string
		parallel bool
	}{{"sequential", false}, {"parallel", true}} {
		b.Run(bench.name, func(b *testing.B) {
			c := newClock()
			m := New(1_300_000, c.now)
			until := c.t.Add(time.Minute)
			for _, n := range nonces[:900_000] {
				m.Use(b.Context(), "ci", n, until)
			}
			b.ReportAllocs()
			var n atomic.Int64
			if bench.parallel {
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						m.Use(b.Context(), "ci", nonces[n.Add(1)&(1<<20-1)], until)
					}
				})
				return
			}
			for i := 0; b.Loop(); i++ {
				m.Use(b.Context(), "ci", nonces[i&(1<<20-1)], until)
			}
		})
	}
	b.Run("full", func(b *testing.B) {
		c := newClock()
		m := New(100_000, c.now)
		for i := 0; b.Loop(); i++ {
			m.Use(b.Context(), "ci", nonces[i&(1<<20-1)],
				c.t.Add(time.Minute+time.Duration(i&63)*time.Second))
		}
	})
	b.Run("come and go", func(b *testing.B) {
		c := newClock()
		m := New(1_000_000, c.now)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c.t = c.t.Add(330 * time.Microsecond)
			m.Use(b.Context(), "ci", nonces[i&(1<<20-1)], c.t.Add(330*time.Second))
		}
	})
}
