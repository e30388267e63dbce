package budget

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/internal/owner"
)

const kb = 1 << 10

// evicted is a frame that learns when it makes room.
type evicted func()

func (evicted) Remote() string { return "" }
func (f evicted) Evicted()     { f() }

func used(t *testing.T, b *Budget, want, wantFew int64) {
	t.Helper()
	if n, few := b.Used(); n != want || few != wantFew {
		t.Errorf("%d and %d bytes are held, want %d and %d", n, few, want, wantFew)
	}
}

func TestSmallFramesDrawNothing(t *testing.T) {
	b := New(1<<20, 0)
	l := Lend(b)
	if !l.Grow(Free) {
		t.Error("a frame of 64 KiB finds no room")
	}
	used(t, b, 0, 0)
	if n := testing.AllocsPerRun(100, func() { l.Grow(Free); l.Force(100); l.Grow(0) }); n != 0 {
		t.Errorf("%v allocations for a small frame", n)
	}
}

func TestGrowAndShrink(t *testing.T) {
	b := New(1<<20, 0)
	l := Lend(b)
	for _, size := range []int{Free + 1, 128 * kb, 512 * kb, 200 * kb, 0, 100 * kb} {
		if !l.Grow(size) {
			t.Fatalf("%d bytes find no room", size)
		}
		used(t, b, int64(size), 0)
	}
	if l.Grow(512*kb + 1) {
		t.Error("one owner holds more than it leaves free for the others")
	}
	used(t, b, 100*kb, 0)
	l.Force(2 << 20)
	used(t, b, 2<<20, 0)
	l.Close()
	used(t, b, 0, 0)
	l.Close()
	l.Force(100 * kb)
	if l.Grow(100 * kb) {
		t.Error("a closed loan draws")
	}
	used(t, b, 0, 0)
}

// One owner fills its share; another one still finds room, whatever it opens.
func TestOwnersLeaveRoom(t *testing.T) {
	b := New(64<<20, 0)
	bob, ada := b.Owner("bob"), b.Owner("ada")
	loans := make([]Loan, 1000)
	got := 0
	for i := range loans {
		loans[i] = Lend(bob)
		if loans[i].Grow(100 * kb) {
			got++
		}
	}
	if most := 32 << 20 / (100 * kb); got != most {
		t.Errorf("one owner has %d frames, want %d", got, most)
	}
	l := Lend(ada)
	if !l.Grow(15 << 20) {
		t.Error("the other owner finds no room")
	}
	for i := range loans {
		loans[i].Close()
	}
	l.Close()
	used(t, b, 0, 0)
	if n := b.books.all.ledger.Counters().Owners; n != 0 {
		t.Errorf("%d owners without bytes are remembered", n)
	}
}

// The oldest incomplete frame of an unauthenticated connection makes room.
func TestTheOldestIncompleteFrameGoesFirst(t *testing.T) {
	few := New(0, 1<<20).Unauthenticated()
	var gone []int
	loans := make([]Loan, 12)
	for i := range loans {
		loans[i] = Lend(few)
		if !loans[i].Begin(100*kb, evicted(func() { gone = append(gone, i) })) {
			t.Fatalf("frame %d finds no room", i)
		}
		if i == 0 {
			loans[0].Grow(100 * kb) // it is complete, and being handled
		}
	}
	if len(gone) != 2 || gone[0] != 1 || gone[1] != 2 {
		t.Errorf("%v were evicted, want 1 and 2", gone)
	}
	if loans[1].Grow(200*kb) || loans[1].Held() != 0 {
		t.Error("an evicted frame grows")
	}
	if !loans[11].Begin(512*kb, nil) || loans[11].Grow(600*kb) {
		t.Error("one connection must have a half at most")
	}
	for i := range loans {
		loans[i].Close()
	}
	used(t, few, 0, 0)
	if few.books.few.begun.First != nil || few.books.few.begun.Last != nil {
		t.Error("a closed loan may still be evicted")
	}
}

func TestNothingToEvict(t *testing.T) {
	few := New(0, 1<<20).Unauthenticated()
	a, b, c := Lend(few), Lend(few), Lend(few)
	if !a.Grow(500*kb) || !b.Grow(500*kb) ||
		c.Begin(100*kb, evicted(func() { t.Error("it was evicted") })) {
		t.Error("complete frames must keep what they hold")
	}
}

// The books agree whatever happens, from many goroutines.
func TestBooksAgree(t *testing.T) {
	b := New(8<<20, 2<<20)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 200 {
				of := []*Budget{b, b.Owner("a"), b.Unauthenticated()}[r.IntN(3)]
				l := Lend(of)
				for range r.IntN(10) {
					size := r.IntN(1 << 20)
					switch r.IntN(4) {
					case 0:
						l.Begin(size, evicted(func() {}))
					case 1:
						l.Force(size)
					default:
						l.Grow(size)
					}
				}
				l.Close()
			}
		})
	}
	wg.Wait()
	used(t, b, 0, 0)
}

func TestDefaults(t *testing.T) {
	if one, two := Or(nil), Or(nil); one == nil || one != two {
		t.Error("the process has one budget")
	}
	b := New(1<<20, 0)
	if Or(b) != b || b.books.few.ledger.Bounds().Total != 128*kb {
		t.Error("a budget is not what it was made as")
	}
}

// A flood from one address makes room for other addresses, and connections of one
// address share what it has.
func TestAddressesLeaveRoom(t *testing.T) {
	b := New(64<<20, 4<<20)
	at := func(i int, address string, unknown bool) *Budget {
		return By(b, func() (owner.Key, bool) {
			return owner.Connection(strconv.Itoa(i), address), unknown
		})
	}
	var gone []int
	first := Lend(at(-1, "192.0.2.1:1", true))
	first.Begin(100*kb, evicted(func() { t.Error("a frame of another address was evicted") }))
	loans := make([]Loan, 200)
	for i := range loans {
		loans[i] = Lend(at(i, "192.0.2.2:1", true))
		if !loans[i].Begin(100*kb, evicted(func() { gone = append(gone, i) })) {
			t.Fatalf("frame %d finds no room", i)
		}
	}
	if len(gone) == 0 || !slices.IsSorted(gone) || !first.Begin(1<<20, evicted(func() {})) {
		t.Errorf("%v were evicted", gone)
	}
	known := make([]Loan, 200)
	for i := range known {
		known[i] = Lend(at(i, "192.0.2.2:1", false))
		known[i].Grow(1 << 20)
	}
	if n, _ := b.Used(); n > 33<<20 {
		t.Errorf("one address holds %d bytes", n)
	}
	other := Lend(at(1, "192.0.2.3:1", false))
	if !other.Grow(10 << 20) {
		t.Error("another address finds no room")
	}
	for i := range loans {
		loans[i].Close()
		known[i].Close()
	}
	first.Close()
	other.Close()
	used(t, b, 0, 0)
}
