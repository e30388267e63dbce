package share

import (
	"container/heap"
	"iter"

	"github.com/farcall-dev/farcall/internal/chain"
	"github.com/farcall-dev/farcall/internal/owner"
)

// A Table is a map with entries that have owners and may be dropped: when it is full, the owner
// that holds most makes room, by its oldest entry that is not in use. Only when all of its entries
// are in use does one of these go, and only for an owner that holds less.
//
// Entries are found by their key alone with Get, and only by their owner with Find.
type Table[K comparable, V any] struct {
	bounds  Bounds // Group and Ratio mean nothing here
	used    int
	entries map[K]*entry[K, V]
	holders map[owner.Key]*holder[K, V]
	groups  ranking[K, V]           // the group that holds most is first
	idle    chain.List[entry[K, V]] // those not in use, the longest idle first
	counts  Counters
}

type entry[K comparable, V any] struct {
	key    K
	value  V
	weight int
	owner  *holder[K, V]
	users  int
	place  chain.Node[entry[K, V]] // in the list of its owner: idle or busy
	order  chain.Node[entry[K, V]] // in Table.idle, unless it is in use
}

// oldest returns the entry that came first; nil: there is none.
func oldest[K comparable, V any](l *chain.List[entry[K, V]]) *entry[K, V] {
	if l.First == nil {
		return nil
	}
	return l.First.Of
}

// A holder is an owner that has entries, or a group of owners.
type holder[K comparable, V any] struct {
	key        owner.Key
	used       int // with what its members hold
	direct     int // without
	rank       int // in the heap that it is in
	group      *holder[K, V]
	members    ranking[K, V]           // of a group
	idle, busy chain.List[entry[K, V]] // the oldest first
}

// Evicted is an entry that made room.
type Evicted[K comparable, V any] struct {
	Key   K
	Value V
}

// NewTable returns an empty table.
func NewTable[K comparable, V any](b Bounds) *Table[K, V] {
	return &Table[K, V]{
		bounds: b, entries: map[K]*entry[K, V]{},
		holders: map[owner.Key]*holder[K, V]{},
	}
}

// Put adds an entry of a weight that is not in use, or replaces the one with its key. What had to
// go for it is returned, for the caller to end. ok is false when there is no room: the entry is
// heavier than the bounds, or all that could go is in use and owned by those who hold no more than
// o.
func (t *Table[K, V]) Put(o owner.Key, k K, v V, weight int) (gone []Evicted[K, V], ok bool) {
	if weight > t.bounds.Total || t.bounds.Owner > 0 && weight > t.bounds.Owner {
		t.counts.Refused++
		return nil, false
	}
	t.Remove(k)
	for t.bounds.Owner > 0 && t.Of(o)+weight > t.bounds.Owner {
		e := oldest(&t.holders[o].idle)
		if e == nil {
			t.counts.Refused++
			return gone, false
		}
		gone = append(gone, t.evict(e))
	}
	for t.used+weight > t.bounds.Total {
		e := t.victim(o, weight)
		if e == nil {
			t.counts.Refused++
			return gone, false
		}
		gone = append(gone, t.evict(e))
	}
	h := t.holder(o)
	e := &entry[K, V]{key: k, value: v, weight: weight, owner: h}
	t.entries[k] = e
	e.place.Of, e.order.Of = e, e
	h.idle.Push(&e.place)
	t.idle.Push(&e.order)
	t.change(h, weight)
	return gone, true
}

// Get returns an entry, no matter who owns it.
func (t *Table[K, V]) Get(k K) (v V, o owner.Key, ok bool) {
	if e := t.entries[k]; e != nil {
		return e.value, e.owner.key, true
	}
	return v, o, false
}

// Find returns an entry of an owner: what another owns does not exist for it.
func (t *Table[K, V]) Find(o owner.Key, k K) (v V, ok bool) {
	if e := t.entries[k]; e != nil && e.owner.key == o {
		return e.value, true
	}
	return v, false
}

// Hold begins a use of an entry, until Release. It reports false when there is none.
func (t *Table[K, V]) Hold(k K) bool {
	e := t.entries[k]
	if e == nil {
		return false
	}
	if e.users++; e.users == 1 {
		e.owner.idle.Remove(&e.place)
		t.idle.Remove(&e.order)
		e.owner.busy.Push(&e.place)
	}
	return true
}

// Release ends a use. An entry that is not in use any more is the youngest of those.
func (t *Table[K, V]) Release(k K) {
	e := t.entries[k]
	if e == nil || e.users == 0 {
		return
	}
	if e.users--; e.users == 0 {
		e.owner.busy.Remove(&e.place)
		e.owner.idle.Push(&e.place)
		t.idle.Push(&e.order)
	}
}

// Oldest returns the entry that has not been in use for the longest time.
func (t *Table[K, V]) Oldest() (k K, v V, ok bool) {
	if e := oldest(&t.idle); e != nil {
		return e.key, e.value, true
	}
	return k, v, false
}

// Remove removes an entry. It reports false when there was none.
func (t *Table[K, V]) Remove(k K) (v V, ok bool) {
	e := t.entries[k]
	if e == nil {
		return v, false
	}
	t.drop(e)
	return e.value, true
}

// All yields all entries, in no order. The table must not be changed meanwhile.
func (t *Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, e := range t.entries {
			if !yield(k, e.value) {
				return
			}
		}
	}
}

// Of returns the weight of what an owner holds.
func (t *Table[K, V]) Of(o owner.Key) int {
	if h := t.holders[o]; h != nil {
		return h.direct
	}
	return 0
}

// Len returns the number of entries.
func (t *Table[K, V]) Len() int { return len(t.entries) }

// Counters returns what has happened so far.
func (t *Table[K, V]) Counters() Counters {
	c := t.counts
	c.Used = t.used
	for _, h := range t.holders {
		if h.direct > 0 {
			c.Owners++
		}
	}
	return c
}

// victim returns the entry that is to make room for an owner: of the group that holds most, of the
// owner that holds most of it, the oldest. Nil: the owner would hold more than any other with the
// room that it could take.
func (t *Table[K, V]) victim(o owner.Key, weight int) *entry[K, V] {
	top, mine := t.groups[0], t.holders[o.Group()]
	var after, most int // what the owner would hold, and what the one holds with an entry that goes
	if mine != nil && mine.used+weight > top.used {
		top = mine // it would hold most itself
	}
	h := top.greatest(t.holders[o])
	if top == mine {
		after, most = t.Of(o)+weight, h.used
		if h.key == o.Group() {
			most = h.direct
		}
	} else {
		after, most = weight, top.used
		if mine != nil {
			after += mine.used
		}
	}
	if e := oldest(&h.idle); e != nil {
		return e
	}
	if h.key != o && after < most {
		return oldest(&h.busy)
	}
	// Others may hold as much, with something that is not in use.
	if e := oldest(&t.idle); e != nil && e.owner.root().used >= after &&
		(top != mine || e.owner.root() == top) {
		return e
	}
	return nil
}

// greatest returns the holder in a group that holds most: a member or, by what it holds directly,
// the group itself. Of those that hold as much it is self.
func (h *holder[K, V]) greatest(self *holder[K, V]) *holder[K, V] {
	best, used := h, h.direct
	if len(h.members) > 0 && h.members[0].used > used {
		best, used = h.members[0], h.members[0].used
	}
	if self != nil && self.root() == h && self.direct >= used {
		return self
	}
	return best
}

// root returns the group of a holder.
func (h *holder[K, V]) root() *holder[K, V] {
	if h.group != nil {
		return h.group
	}
	return h
}

func (t *Table[K, V]) evict(e *entry[K, V]) Evicted[K, V] {
	t.drop(e)
	t.counts.Evicted++
	return Evicted[K, V]{e.key, e.value}
}

func (t *Table[K, V]) drop(e *entry[K, V]) {
	delete(t.entries, e.key)
	if e.users > 0 {
		e.owner.busy.Remove(&e.place)
	} else {
		e.owner.idle.Remove(&e.place)
		t.idle.Remove(&e.order)
	}
	t.change(e.owner, -e.weight)
}

// holder returns what an owner holds, and makes it and its group.
func (t *Table[K, V]) holder(o owner.Key) *holder[K, V] {
	h := t.holders[o]
	if h != nil {
		return h
	}
	h = &holder[K, V]{key: o, rank: -1}
	t.holders[o] = h
	if g := o.Group(); g != o {
		h.group = t.holder(g)
		heap.Push(&h.group.members, h)
	} else {
		heap.Push(&t.groups, h)
	}
	return h
}

// change counts what an owner got or gave back, and forgets those that hold nothing.
func (t *Table[K, V]) change(h *holder[K, V], weight int) {
	t.used += weight
	h.direct += weight
	for h != nil {
		h.used += weight
		in := &t.groups
		if h.group != nil {
			in = &h.group.members
		}
		heap.Fix(in, h.rank)
		if len(h.members) == 0 && h.idle.First == nil && h.busy.First == nil {
			heap.Remove(in, h.rank)
			delete(t.holders, h.key)
		}
		h = h.group
	}
}

// A ranking is a heap of holders: the one that holds most is first.
type ranking[K comparable, V any] []*holder[K, V]

// Len implements heap.Interface.
func (r ranking[K, V]) Len() int { return len(r) }

// Less implements heap.Interface.
func (r ranking[K, V]) Less(i, j int) bool { return r[i].used > r[j].used }

// Swap implements heap.Interface.
func (r ranking[K, V]) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].rank, r[j].rank = i, j
}

// Push implements heap.Interface.
func (r *ranking[K, V]) Push(x any) {
	h, _ := x.(*holder[K, V])
	h.rank = len(*r)
	*r = append(*r, h)
}

// Pop implements heap.Interface.
func (r *ranking[K, V]) Pop() any {
	last := len(*r) - 1
	h := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	h.rank = -1
	return h
}
