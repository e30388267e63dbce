package share

import (
	"iter"

	"github.com/farcall-dev/farcall/internal/chain"
	"github.com/farcall-dev/farcall/internal/owner"
)

// A Queue is a list of what waits, in rounds: in each, every group of owners has one turn, and the
// owners of a group take its turns one after the other. So an owner that queues much waits behind
// itself, not before others, and opening more sessions wins no more turns.
//
// The zero value is an empty queue. Its user bounds it: see Displace.
type Queue[T any] struct {
	turns  chain.List[turn[T]]
	n      int
	round  uint64 // of what was served last
	groups map[owner.Key]*waiting[T]
}

// An Item is what waits in a Queue.
type Item[T any] struct {
	Value T
	owner *waiting[T]
	order uint64   // its round among those of its group
	turn  *turn[T] // nil: it waits no more
}

// A turn is a position in the queue. Turns are the group's: when another owner of it comes, its
// items move to other turns.
type turn[T any] struct {
	round uint64
	item  *Item[T]
	place chain.Node[turn[T]] // in the queue
	order chain.Node[turn[T]] // among those of the group
}

// waiting is what an owner or a group has in a queue.
type waiting[T any] struct {
	key     owner.Key
	n       int
	last    uint64 // the round of its last item: in the queue for a group, in its group for an owner
	served  uint64 // of a group: the order of what was served last
	group   *waiting[T]
	members map[owner.Key]*waiting[T] // of a group
	// The turns of a group, in order.
	turns chain.List[turn[T]]
}

// Push puts something into the queue.
func (q *Queue[T]) Push(o owner.Key, v T) *Item[T] {
	g := q.groups[o.Group()]
	if g == nil {
		g = &waiting[T]{key: o.Group(), last: q.round, members: map[owner.Key]*waiting[T]{}}
		if q.groups == nil {
			q.groups = map[owner.Key]*waiting[T]{}
		}
		q.groups[g.key] = g
	} else {
		g.last = max(g.last+1, q.round)
	}
	m := g.members[o]
	if m == nil {
		m = &waiting[T]{key: o, last: g.served, group: g}
		g.members[o] = m
	} else {
		m.last = max(m.last+1, g.served)
	}
	it := &Item[T]{Value: v, owner: m, order: m.last}
	t := &turn[T]{round: g.last}
	t.place.Of, t.order.Of = t, t
	behind := q.turns.Last // those of its round
	for behind != nil && behind.Of.round > t.round {
		behind = behind.Prev
	}
	q.turns.Insert(&t.place, behind)
	g.turns.Push(&t.order)
	for fore := t.order.Prev; fore != nil && fore.Of.item.order > it.order; fore = fore.Prev {
		t.item, fore.Of.item.turn = fore.Of.item, t // those of later rounds of the group make way
		t = fore.Of
	}
	t.item, it.turn = it, t
	q.n++
	g.n++
	m.n++
	return it
}

// Serve removes an item with a turn that has come.
func (q *Queue[T]) Serve(it *Item[T]) {
	q.round = max(q.round, it.turn.round)
	g := it.owner.group
	g.served = max(g.served, it.order)
	q.Remove(it)
}

// Remove removes an item that does not wait any more.
func (q *Queue[T]) Remove(it *Item[T]) {
	t, m := it.turn, it.owner
	g := m.group
	it.turn = nil
	q.turns.Remove(&t.place)
	g.turns.Remove(&t.order)
	q.n--
	g.n--
	if m.n--; m.n == 0 {
		delete(g.members, m.key)
	}
	if g.n == 0 {
		delete(q.groups, g.key)
	}
}

// Displace returns the item that is to make room for one more of an owner when the queue is full:
// the last one of the group that has most, and in it of the owner that has most. It returns nil
// when no other would still have as much as the owner then: the queue is full for it.
func (q *Queue[T]) Displace(o owner.Key) *Item[T] {
	mine := q.groups[o.Group()]
	if n := most(q.groups); n >= mine.count()+2 {
		t := q.turns.Last
		for t.Of.item.owner.group.n != n {
			t = t.Prev
		}
		g := t.Of.item.owner.group
		return g.lastOf(most(g.members))
	}
	if mine == nil {
		return nil
	}
	if n := most(mine.members); n >= mine.members[o].count()+2 {
		return mine.lastOf(n)
	}
	return nil
}

// most returns how many items the one has that has most.
func most[T any](all map[owner.Key]*waiting[T]) (n int) {
	for _, w := range all {
		n = max(n, w.n)
	}
	return n
}

// count returns how many items wait, of nil none.
func (g *waiting[T]) count() int {
	if g == nil {
		return 0
	}
	return g.n
}

// lastOf returns the last item in a group of an owner that has n.
func (g *waiting[T]) lastOf(n int) *Item[T] {
	t := g.turns.Last
	for t.Of.item.owner.n != n {
		t = t.Prev
	}
	return t.Of.item
}

// Len returns how many items wait.
func (q *Queue[T]) Len() int { return q.n }

// Of returns how many items of an owner's group wait.
func (q *Queue[T]) Of(o owner.Key) int {
	if g := q.groups[o.Group()]; g != nil {
		return g.n
	}
	return 0
}

// First returns the item that waits in front of all others, nil when there is none.
func (q *Queue[T]) First() *Item[T] {
	if q.turns.First == nil {
		return nil
	}
	return q.turns.First.Of.item
}

// All yields the items in their order. The one that was yielded may be removed, others may not.
func (q *Queue[T]) All() iter.Seq[*Item[T]] {
	return func(yield func(*Item[T]) bool) {
		for t := q.turns.First; t != nil; {
			next := t.Next
			if !yield(t.Of.item) {
				return
			}
			t = next
		}
	}
}
