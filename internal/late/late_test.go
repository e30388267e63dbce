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
	late  time.Duration // when it was told
	told  atomic.Int32
}

func (t *thing) Late() {
	t.late = time.Since(t.begun)
	t.told.Add(1)
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		all := make([]*thing, 50)
		for i := range all {
			all[i] = &thing{begun: time.Now()}
			w.Enter(&all[i].entry, all[i])
			<-time.After(time.Millisecond)
		}
		for i, x := range all {
			if i%3 == 0 {
				w.Leave(&x.entry)
				w.Leave(&x.entry)
			}
		}
		early := 0
		<-time.After(2 * After)
		for i, x := range all {
			n := x.told.Load()
			if i%3 == 0 && n == 0 {
				early++
				continue
			}
			if n != 1 || x.late < After || x.late > 2*After {
				t.Errorf("%d was told %d times, after %v", i, n, x.late)
			}
			w.Leave(&x.entry)
		}
		if early == 0 {
			t.Error("what has ended was told")
		}
		if w.first != nil || w.last != nil {
			t.Error("something is left")
		}
		<-time.After(After)
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
