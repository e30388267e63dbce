package limit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
)

// house simulates handlers: the more calls are under way, the longer each takes.
type house struct {
	l     *Limiter
	total int

	mu   sync.Mutex
	busy int
	most int
}

func (h *house) call(c *Caller) error {
	release, err := h.l.Take(c, "x")
	if err != nil {
		return err
	}
	defer release()
	h.mu.Lock()
	h.busy++
	h.most = max(h.most, h.busy)
	d := 10 * time.Millisecond * time.Duration(h.total+h.busy) / time.Duration(h.total)
	h.mu.Unlock()
	<-time.After(d)
	h.mu.Lock()
	h.busy--
	h.mu.Unlock()
	return nil
}

// normal makes calls one after the other and returns how long each took, with what it had to wait.
func (h *house) normal(name string, seed uint64) (took []time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &Caller{Owner: owner.Named(name)}
	for range 60 {
		<-time.After(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
		began := time.Now()
		var refused *Exceeded
		for errors.As(h.call(c), &refused) {
			<-time.After(refused.RetryAfter)
		}
		took = append(took, time.Since(began))
	}
	return took
}

// flood calls from many goroutines that each try again at once, until stop. It returns how many
// calls came through.
func (h *house) flood(stop chan struct{}) (through int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	c := &Caller{Owner: owner.Named("flood")}
	for range 200 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if h.call(c) == nil {
					mu.Lock()
					through++
					mu.Unlock()
				} else {
					<-time.After(5 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	return through
}

func p99(t *testing.T, total, callers int, flood bool) (result time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{l: New(&Options{Total: total}), total: total}
		stop, through := make(chan struct{}), make(chan int, 1)
		if flood {
			go func() { through <- h.flood(stop) }()
			<-time.After(300 * time.Millisecond) // it has all it can get
		}
		began := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var all []time.Duration
		for i := range callers {
			wg.Go(func() {
				took := h.normal(fmt.Sprint("n", i), uint64(i))
				mu.Lock()
				all = append(all, took...)
				mu.Unlock()
			})
		}
		wg.Wait()
		seconds := time.Since(began).Seconds()
		close(stop)
		if flood {
			t.Logf("total %d: %.0f calls a second of the flood came through", total,
				float64(<-through)/seconds)
		}
		if h.most > total {
			t.Errorf("%d at once, of %d", h.most, total)
		}
		slices.Sort(all)
		result = all[len(all)*99/100]
		t.Logf("total %d, flood %v: p99 %v, max %v", total, flood, result, all[len(all)-1])
	})
	return result
}

// One who floods leaves the others' p99 within twice what it is without the flood.
func TestFair(t *testing.T) {
	t.Parallel()
	for _, total := range []int{8, 16, 48} {
		quiet, flooded := p99(t, total, 5, false), p99(t, total, 5, true)
		if flooded > 2*quiet {
			t.Errorf("total %d: p99 %v, without the flood %v", total, flooded, quiet)
		}
	}
}

// Alone, one gets nearly all.
func TestAlone(t *testing.T) {
	t.Parallel()
	for total, want := range map[int]int{1: 1, 3: 3, 4: 3, 8: 7, 64: 56, 1000: 875} {
		l := New(&Options{Total: total})
		n := 0
		for {
			if _, err := l.Take(alice, "x"); err != nil {
				break
			}
			n++
		}
		if n != want {
			t.Errorf("%d of %d", n, total)
		}
		if total < 4 {
			continue
		}
		if _, err := l.Take(bob, "x"); err != nil {
			t.Errorf("total %d: another one: %v", total, err)
		}
	}
}

// Several who flood come to have the same.
func TestShares(t *testing.T) {
	t.Parallel()
	l := New(&Options{Total: 80})
	releases := map[string][]func(){}
	fill := func(names ...string) {
		for range 90 {
			for _, name := range names {
				if release, err := l.Take(&Caller{Owner: owner.Named(name)}, "x"); err == nil {
					releases[name] = append(releases[name], release)
				}
			}
		}
	}
	fill("a")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		names := []string{"a", "b", "c"}
		name := names[rng.IntN(3)]
		if held := releases[name]; len(held) > 0 {
			held[0]()
			releases[name] = held[1:]
		}
		fill(names...)
	}
	for name, held := range releases {
		if len(held) < 20 || len(held) > 30 {
			t.Errorf("%s has %d of 80", name, len(held))
		}
	}
}

// The hint is about how long calls take.
func TestHint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(&Options{Concurrent: 1})
		for range 200 {
			release, _ := l.Take(alice, "x")
			<-time.After(3 * time.Second)
			release()
		}
		_, _ = l.Take(alice, "x")
		if _, after := wait(t, l, alice, "x"); after < 2900*time.Millisecond || after > 3*time.Second {
			t.Error(after)
		}
	})
}
