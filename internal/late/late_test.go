package late

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

type thing struct {
	entry Entry
	begun time.Time
	late  time.Duration // when Late was called
	told  atomic.Int32
}

func (t *thing) Late() {
	t.late = time.Since(t.begun)
	t.told.Add(1)
}

func TestWatch(t *testing.T) {
	t.Run("default", func(t *testing.T) { testWatch(t, 0, After) })
	t.Run("1ms", func(t *testing.T) { testWatch(t, time.Millisecond, time.Millisecond) })
}

func testWatch(t *testing.T, given, after time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		w := Watch{After: given}
		all := make([]*thing, 50)
		for i := range all {
			all[i] = &thing{begun: time.Now()}
			w.Enter(&all[i].entry, all[i])
			<-time.After(after / 10)
		}
		for i, x := range all {
			if i%3 == 0 {
				w.Leave(&x.entry)
				w.Leave(&x.entry)
			}
		}
		early := 0
		<-time.After(2 * after)
		for i, x := range all {
			n := x.told.Load()
			if i%3 == 0 && n == 0 {
				early++
				continue
			}
			if n != 1 || x.late < after || x.late > 2*after {
				t.Errorf("%d was called %d times, after %v", i, n, x.late)
			}
			w.Leave(&x.entry)
		}
		if early == 0 {
			t.Error("Late was called after the end")
		}
		if w.entries.First != nil || w.entries.Last != nil {
			t.Error("something is left")
		}
		<-time.After(after)
		if w.running {
			t.Error("the timer runs for nothing")
		}
	})
}

func TestWatchConcurrently(t *testing.T) {
	var w Watch
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				x := &thing{begun: time.Now()}
				w.Enter(&x.entry, x)
				w.Leave(&x.entry)
				if n := x.told.Load(); n > 1 {
					t.Errorf("told %d times", n)
				}
			}
		})
	}
	all.Wait()
	if n := testing.AllocsPerRun(100, func() {
		var x thing
		w.Enter(&x.entry, &x)
		w.Leave(&x.entry)
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
