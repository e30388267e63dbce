// Package trie is maps that share what they have in common: how does a change of a large one cost
// no copy of it?
//
// A map is not changed. Putting a value into it, or removing one, returns another map, which has
// new nodes on the path to the value and shares all others: 5 of them for 50,000 values. So a
// reader of a map needs no lock, and sees no change.
package trie

import (
	"hash/maphash"
	"iter"
	"math/bits"
)

const (
	step = 4 // bits of a key that one node decides
	fan  = 1 << step
)

// Ordered is a map of numbers, in their order. The zero value is empty.
type Ordered[V any] struct {
	root *node[V]
	size int
}

// node is a branch, or a leaf with the value of key. The keys below a branch have the bits of key
// above those that it decides, which shift is below.
//
//	root       shift 8   key 0x0__    decides bits 8-11
//	 ├─ 0: branch  shift 0   key 0x00_    decides bits 0-3
//	 │   ├─ 1: leaf  0x001
//	 │   └─ 7: leaf  0x007
//	 └─ 2: leaf  0x2a0                    alone, so without a branch between
type node[V any] struct {
	key   uint64
	shift uint8
	below *[fan]*node[V] // nil: a leaf
	value V
}

// Len returns the number of values.
func (m Ordered[V]) Len() int { return m.size }

// Get returns the value of a key.
func (m Ordered[V]) Get(key uint64) (value V, ok bool) {
	n := m.root
	for n != nil && n.below != nil {
		if !n.covers(key) {
			return value, false
		}
		n = n.below[n.slot(key)]
	}
	if n == nil || n.key != key {
		return value, false
	}
	return n.value, true
}

// With returns the map with a value, in the place of the one with the same key if there is one.
func (m Ordered[V]) With(key uint64, value V) Ordered[V] {
	root, added := m.root.with(&node[V]{key: key, value: value})
	if added {
		m.size++
	}
	m.root = root
	return m
}

// Without returns the map without a key.
func (m Ordered[V]) Without(key uint64) Ordered[V] {
	root, removed := m.root.without(key)
	if removed {
		m.root = root
		m.size--
	}
	return m
}

// From yields what has a key of at least first, in the order of the keys.
func (m Ordered[V]) From(first uint64) iter.Seq2[uint64, V] {
	return func(yield func(uint64, V) bool) { m.root.from(first, yield) }
}

func (n *node[V]) covers(key uint64) bool { return (n.key^key)>>n.shift>>step == 0 }
func (n *node[V]) slot(key uint64) int    { return int(key >> n.shift & (fan - 1)) }

// last returns the highest key that may be below a node.
func (n *node[V]) last() uint64 {
	if n.below == nil {
		return n.key
	}
	return n.key | (1<<n.shift<<step - 1)
}

func (n *node[V]) with(leaf *node[V]) (root *node[V], added bool) {
	switch {
	case n == nil:
		return leaf, true
	case n.below == nil && n.key == leaf.key:
		return leaf, false
	case n.below == nil || !n.covers(leaf.key):
		return join(n, leaf), true
	}
	own := n.copied()
	at := n.slot(leaf.key)
	own.below[at], added = n.below[at].with(leaf)
	return own, added
}

// join returns a branch above two nodes that do not cover one another.
func join[V any](a, b *node[V]) *node[V] {
	highest := bits.Len64(a.key^b.key) - 1 // where they differ
	shift := uint8(highest / step * step)
	key := a.key >> shift >> step << shift << step
	n := &node[V]{key: key, shift: shift, below: new([fan]*node[V])}
	n.below[n.slot(a.key)], n.below[n.slot(b.key)] = a, b
	return n
}

func (n *node[V]) without(key uint64) (root *node[V], removed bool) {
	switch {
	case n == nil || n.below == nil && n.key != key || n.below != nil && !n.covers(key):
		return n, false
	case n.below == nil:
		return nil, true
	}
	at := n.slot(key)
	rest, removed := n.below[at].without(key)
	if !removed {
		return n, false
	}
	own := n.copied()
	own.below[at] = rest
	if only := own.only(); only != nil {
		return only, true // a branch decides between two at least
	}
	return own, true
}

func (n *node[V]) copied() *node[V] {
	below := *n.below
	return &node[V]{key: n.key, shift: n.shift, below: &below}
}

// only returns what is below a branch when there is one node.
func (n *node[V]) only() (only *node[V]) {
	for _, b := range n.below {
		switch {
		case b == nil:
		case only != nil:
			return nil
		default:
			only = b
		}
	}
	return only
}

func (n *node[V]) from(first uint64, yield func(uint64, V) bool) bool {
	switch {
	case n == nil || n.last() < first:
		return true
	case n.below == nil:
		return yield(n.key, n.value)
	}
	for _, b := range n.below {
		if !b.from(first, yield) {
			return false
		}
	}
	return true
}

// Named is a map of names. NewNamed makes one.
type Named[V any] struct {
	seed maphash.Seed
	hash func(seed maphash.Seed, name []byte) uint64
	of   Ordered[*named[V]]
}

// named is a value, and the next of those with the same hash.
type named[V any] struct {
	name  string
	value V
	next  *named[V]
}

// NewNamed returns an empty map.
func NewNamed[V any]() Named[V] { return Named[V]{seed: maphash.MakeSeed(), hash: maphash.Bytes} }

// Get returns the value of a name. It allocates nothing.
func (m Named[V]) Get(name []byte) (value V, ok bool) {
	for at, _ := m.of.Get(m.hash(m.seed, name)); at != nil; at = at.next {
		if at.name == string(name) {
			return at.value, true
		}
	}
	return value, false
}

// With returns the map with a value, in the place of the one with the same name if there is one.
func (m Named[V]) With(name string, value V) Named[V] {
	h := m.hash(m.seed, []byte(name))
	same, _ := m.of.Get(h)
	m.of = m.of.With(h, &named[V]{name, value, same.without(name)})
	return m
}

// Without returns the map without a name.
func (m Named[V]) Without(name string) Named[V] {
	h := m.hash(m.seed, []byte(name))
	same, _ := m.of.Get(h)
	if rest := same.without(name); rest != nil {
		m.of = m.of.With(h, rest)
	} else {
		m.of = m.of.Without(h)
	}
	return m
}

func (n *named[V]) without(name string) *named[V] {
	switch {
	case n == nil:
		return nil
	case n.name == name:
		return n.next
	}
	return &named[V]{n.name, n.value, n.next.without(name)}
}
