package share

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/farcall-dev/farcall/internal/owner"
)

func principal(n int) owner.Key { return owner.Principal("key", "user", "", fmt.Sprint(n)) }

// sessionOf is a session of an address.
func sessionOf(address, n int) owner.Key {
	return owner.Session(fmt.Sprintf("%d-%d", address, n), fmt.Sprintf("192.0.2.%d", address))
}

// owners are of every kind: principals, sessions of several addresses and of none, addresses.
func owners() (all []owner.Key) {
	for i := range 4 {
		all = append(all, principal(i), sessionOf(1, i), sessionOf(2, i),
			owner.Connection(fmt.Sprint(i), ""))
	}
	return append(all, owner.Address("192.0.2.1"), owner.Address("192.0.2.3"), owner.Key{})
}

// Two owners of every pair: one takes all that it gets, and the other still gets something.
func TestLedgerLeavesRoom(t *testing.T) {
	for _, bounds := range []Bounds{
		{Total: 2},
		{Total: 10},
		{Total: 64, Ratio: 7},
		{Total: 1000, Owner: 16},
		{Total: 1000, Ratio: 3},
	} {
		for _, greedy := range owners() {
			for _, other := range owners() {
				if greedy == other || greedy.IsZero() || bounds.Total < 8 && greedy.Group() == other.Group() {
					continue
				}
				l := NewLedger(bounds)
				n := 0
				for l.Take(greedy, 1) {
					n++
				}
				if n == 0 || bounds.Owner > 0 && n > bounds.Owner {
					t.Errorf("%+v: %v got %d", bounds, greedy, n)
				}
				if !l.Take(other, 1) {
					t.Errorf("%+v: %v got %d, and nothing was left for %v", bounds, greedy, n, other)
				}
			}
		}
	}
}

// Opening sessions wins nothing: all of one address leave room for another address, and each other.
func TestLedgerGroups(t *testing.T) {
	l := NewLedger(Bounds{Total: 1000})
	n := 0
	for i := range 10_000 {
		for l.Take(sessionOf(1, i), 1) {
			n++
		}
	}
	if n > 500 {
		t.Errorf("the sessions of one address hold %d of 1000", n)
	}
	if n := fill(l, sessionOf(2, 1)); n < 50 {
		t.Errorf("a session of another address got %d", n)
	}
}

func fill(l *Ledger, o owner.Key) (n int) {
	for l.Take(o, 1) {
		n++
	}
	return n
}

func TestLedgerAlone(t *testing.T) {
	for _, tt := range []struct {
		bounds Bounds
		want   int
	}{
		{Bounds{Total: 64, Ratio: 7}, 56},
		{Bounds{Total: 1000}, 500},
		{Bounds{Total: 1}, 1},
		{Bounds{}, 0},
		{Bounds{Total: 100, Owner: 3}, 3},
	} {
		if n := fill(NewLedger(tt.bounds), principal(1)); n != tt.want {
			t.Errorf("%+v: one alone gets %d, want %d", tt.bounds, n, tt.want)
		}
	}
}

// The sums are right after any sequence, and everything can be given back.
func TestLedgerBalance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := owners()
	l, held := NewLedger(Bounds{Total: 200, Ratio: 2}), map[owner.Key]int{}
	sum := 0
	for range 100_000 {
		o, n := all[rng.IntN(len(all))], 1+rng.IntN(5)
		switch {
		case rng.IntN(2) == 0:
			if l.Take(o, n) {
				held[o] += n
				sum += n
			}
		case held[o] >= n:
			l.Give(o, n)
			held[o] -= n
			sum -= n
		}
		if l.Used() != sum || l.Of(o) != held[o] || sum > 200 {
			t.Fatalf("the ledger has %d and %d of %v, want %d and %d", l.Used(), l.Of(o), o, sum, held[o])
		}
	}
	for o, n := range held {
		if n > 0 {
			l.Give(o, n)
		}
	}
	if l.Used() != 0 || len(l.owners)+len(l.groups) != 0 {
		t.Errorf("left over: %d units, %d owners, %d groups", l.Used(), len(l.owners), len(l.groups))
	}
}

// Two owners of every pair: one fills the table, the other's entries come in and stay.
func TestTableKeepsTheSmall(t *testing.T) {
	for _, greedy := range owners() {
		for _, other := range owners() {
			if greedy == other {
				continue
			}
			for _, busy := range []bool{false, true} {
				table := NewTable[int, string](Bounds{Total: 20})
				put := func(o owner.Key, k int) bool {
					_, ok := table.Put(o, k, "", 1)
					if ok && busy {
						table.Hold(k)
					}
					return ok
				}
				for k := range 100 {
					put(greedy, k)
				}
				if !put(other, 1000) {
					t.Errorf("busy %v: %v filled the table, and %v gets nothing", busy, greedy, other)
				}
				for k := range 100 {
					put(greedy, 200+k)
				}
				if _, ok := table.Find(other, 1000); !ok {
					t.Errorf("busy %v: %v made %v lose its only entry", busy, greedy, other)
				}
				if _, ok := table.Find(greedy, 1000); ok {
					t.Errorf("%v sees what %v owns", greedy, other)
				}
			}
		}
	}
}

// A random history against a plain model: no bound is passed, the sums are right, and what is lost
// to another group was of one that held at least as much.
func TestTableHistory(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	all := owners()
	table := NewTable[int, owner.Key](Bounds{Total: 60, Owner: 30})
	type item struct {
		o      owner.Key
		weight int
	}
	model := map[int]item{}
	held := func(group owner.Key) (n int) {
		for _, i := range model {
			if i.o.Group() == group {
				n += i.weight
			}
		}
		return n
	}
	for range 20_000 {
		k := rng.IntN(200)
		switch o := all[min(rng.IntN(len(all)), rng.IntN(len(all)))]; rng.IntN(6) {
		case 0:
			_, ok := table.Remove(k)
			if _, want := model[k]; ok != want {
				t.Fatalf("Remove(%d) is %v", k, ok)
			}
			delete(model, k)
		case 1:
			table.Hold(k)
		case 2:
			table.Release(k)
		default:
			w := 1 + rng.IntN(4)
			gone, ok := table.Put(o, k, o, w)
			delete(model, k)
			for _, e := range gone {
				if g := e.Value.Group(); g != o.Group() && held(o.Group()) > 0 && held(g) < held(o.Group())+w {
					t.Fatalf("%v, which holds %d, lost an entry to %v, which holds %d", e.Value, held(g), o,
						held(o.Group()))
				}
				delete(model, e.Key)
			}
			if ok {
				model[k] = item{o, w}
			}
		}
		sum := 0
		for _, i := range model {
			sum += i.weight
		}
		if sum > 60 || table.Counters().Used != sum || table.Len() != len(model) {
			t.Fatalf("the table has %d in %d entries, want %d in %d", table.Counters().Used, table.Len(),
				sum, len(model))
		}
	}
	for k := range model {
		table.Remove(k)
	}
	if len(table.holders)+len(table.groups) != 0 || table.idle.First != nil {
		t.Errorf("left over: %d holders, %d groups, idle: %v", len(table.holders), len(table.groups),
			oldest(&table.idle))
	}
	if c := table.Counters(); c.Evicted == 0 || c.Refused == 0 {
		t.Errorf("the history has no eviction or no refusal: %+v", c)
	}
}

// The oldest goes first, and what was in use is young again.
func TestTableOrder(t *testing.T) {
	table := NewTable[string, int](Bounds{Total: 3})
	o := principal(1)
	for i, k := range []string{"a", "b", "c"} {
		table.Put(o, k, i, 1)
	}
	table.Hold("a")
	table.Release("a")
	if k, _, _ := table.Oldest(); k != "b" {
		t.Errorf("the oldest is %q", k)
	}
	gone, _ := table.Put(o, "d", 4, 1)
	if len(gone) != 1 || gone[0].Key != "b" {
		t.Errorf("gone: %+v", gone)
	}
	for _, k := range []string{"c", "a", "d"} {
		table.Hold(k)
	}
	if _, ok := table.Put(o, "e", 5, 1); ok {
		t.Error("an owner lost what it has in use to itself")
	}
	if _, _, ok := table.Oldest(); ok {
		t.Error("something is not in use")
	}
	if n := len(table.entries); n != 3 {
		t.Errorf("%d entries", n)
	}
}

func BenchmarkTablePut(b *testing.B) {
	table := NewTable[int, int](Bounds{Total: 10_000})
	all := make([]owner.Key, 5000)
	for i := range all {
		all[i] = sessionOf(i%250, i)
	}
	b.ReportAllocs()
	for i := range b.N {
		table.Put(all[i%len(all)], i, i, 1)
	}
}

func BenchmarkLedger(b *testing.B) {
	l := NewLedger(Bounds{Total: 10_000})
	o := sessionOf(1, 1)
	l.Take(o, 1)
	b.ReportAllocs()
	for range b.N {
		l.Take(o, 1)
		l.Give(o, 1)
	}
}
