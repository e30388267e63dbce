package trie

import "hash/maphash"

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
