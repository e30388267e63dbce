package share

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/owner"
)

// line is a queue of names: an owner and a number.
type line struct {
	Queue[string]
	items map[string]*Item[string]
}

func (l *line) push(name string) {
	if l.items == nil {
		l.items = map[string]*Item[string]{}
	}
	l.items[name] = l.Push(nameOwner(name), name)
}

// nameOwner: a and b are connections of one address, c is one of another, all others are
// principals.
func nameOwner(name string) owner.Key {
	switch name[:1] {
	case "a", "b":
		return owner.Connection(name[:1], "192.0.2.1")
	case "c":
		return owner.Connection("c", "192.0.2.2")
	}
	return owner.Named(name[:1])
}

func (l *line) order() string {
	var names []string
	for it := range l.All() {
		names = append(names, it.Value)
	}
	return strings.Join(names, " ")
}

// Groups take turns, and in a group its owners.
func TestQueueOrder(t *testing.T) {
	var l line
	for name := range strings.FieldsSeq("a1 a2 a3 a4 p1 p2 c1 b1 b2 q1") {
		l.push(name)
	}
	const want = "a1 p1 c1 q1 b1 p2 a2 b2 a3 a4"
	if got := l.order(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var served []string
	for i := 0; l.Len() > 0; i++ {
		it := l.First()
		l.Serve(it)
		served = append(served, it.Value)
		if i == 1 { // those that come now are behind those of this round
			l.push("r1")
			l.push("b3")
		}
	}
	if got := strings.Join(served, " "); got != "a1 p1 c1 q1 r1 b1 p2 a2 b2 a3 b3 a4" {
		t.Errorf("served: %s", got)
	}
	if len(l.groups) != 0 || l.turns.First != nil || l.turns.Last != nil {
		t.Errorf("%d groups are left", len(l.groups))
	}
}

// When it is full, the last item of the group and owner with most makes room, unless that would be
// the one that comes.
func TestQueueDisplace(t *testing.T) {
	for _, test := range []struct{ waiting, comes, gone string }{
		{"a1 a2 a3", "p", "a3"},
		{"a1 a2 a3", "b", "a3"},
		{"a1 a2 a3", "a", ""},
		{"a1 b1 p1 p2", "b", ""},
		{"a1 b1 p1", "q", "b1"},
		{"a1 a2 b1 p1 p2", "q", "a2"},
		{"a1 a2 b1 p1 p2 p3 p4 p5", "b", "p5"},
		{"p1 q1 r1", "s", ""},
		{"p1 p2 q1 r1", "s", "p2"},
		{"", "p", ""},
	} {
		var l line
		for name := range strings.FieldsSeq(test.waiting) {
			l.push(name)
		}
		got := ""
		if it := l.Displace(nameOwner(test.comes)); it != nil {
			got = it.Value
		}
		if got != test.gone {
			t.Errorf("%s, and %s comes: %q makes room, want %q", test.waiting, test.comes, got, test.gone)
		}
	}
}

// Two owners of every pair: one fills the queue, and the other still gets a place, before the
// second of the first one.
func TestQueueLeavesRoom(t *testing.T) {
	for _, greedy := range owners() {
		for _, other := range owners() {
			if greedy == other {
				continue
			}
			var q Queue[string]
			for i := range 8 {
				q.Push(greedy, fmt.Sprint(i))
			}
			it := q.Displace(other)
			if it == nil || it.Value != "7" {
				t.Fatalf("%v fills the queue, and nothing makes room for %v", greedy, other)
			}
			q.Remove(it)
			q.Serve(q.First())
			it = q.Push(other, "other")
			if q.First() != it && q.turns.First.Next.Of.item != it {
				t.Errorf("%v waits behind more than one of %v", other, greedy)
			}
		}
	}
}

// A history of random changes: every item is found once, in the order of rounds, and each owner's
// items stay in their order.
func TestQueueHistory(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	all := owners()
	var q Queue[int]
	held := map[*Item[int]]owner.Key{}
	for i := range 20_000 {
		switch n := rng.IntN(5); {
		case n < 2 || len(held) == 0:
			o := all[rng.IntN(len(all))]
			held[q.Push(o, i)] = o
		case n == 2:
			it := q.First()
			q.Serve(it)
			delete(held, it)
		case n == 3 && len(held) > 30:
			if it := q.Displace(all[rng.IntN(len(all))]); it != nil {
				q.Remove(it)
				delete(held, it)
			}
		default:
			for it := range held { // any
				q.Remove(it)
				delete(held, it)
				break
			}
		}
		if i%50 == 0 {
			checkQueue(t, &q, held)
		}
	}
}

func checkQueue(t *testing.T, q *Queue[int], held map[*Item[int]]owner.Key) {
	t.Helper()
	newest, n, round := map[owner.Key]int{}, 0, uint64(0)
	for it := range q.All() {
		o, ok := held[it]
		switch {
		case !ok || it.turn == nil || it.turn.item != it:
			t.Fatalf("item %d does not wait", it.Value)
		case it.turn.round < round:
			t.Fatalf("round %d comes after round %d", it.turn.round, round)
		case it.Value < newest[o]:
			t.Fatalf("of %v, item %d comes after item %d", o, it.Value, newest[o])
		}
		newest[o], round = it.Value, it.turn.round
		n++
	}
	members := 0
	for _, g := range q.groups {
		of := 0
		for _, m := range g.members {
			of += m.n
		}
		if of != g.n {
			t.Fatalf("a group has %d, its members %d", g.n, of)
		}
		members += of
	}
	if n != len(held) || n != q.Len() || n != members {
		t.Fatalf("%d items, %d in the queue, %d of owners, want %d", n, q.Len(), members, len(held))
	}
}
