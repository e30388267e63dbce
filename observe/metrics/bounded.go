package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// key is the values of the labels of a series, before they are resolved. copied returns one that
// keeps no memory of a message.
type key[K any] interface {
	comparable
	copied() K
}

// bounded finds what belongs to a key, without a lock and without an allocation once the key is
// known. It has at most a number of keys; all others get the overflow.
type bounded[K key[K], V any] struct {
	known atomic.Pointer[map[K]V] // it is not changed

	mu       sync.Mutex
	all      map[K]V // those of known, and the newer ones
	shared   bool    // all is known
	missed   int     // look-ups of newer ones
	most     int
	create   func(K) V
	overflow func() V

	slots [slots]atomic.Pointer[found[K, V]] // those that were looked up with the same hint
}

// slots is how many keys recent remembers. It is a power of two.
const slots = 1024

// found is a key with what belongs to it.
type found[K key[K], V any] struct {
	key   K
	value V
}

// recent is get for keys that come again and again: hint says where the key is likely to be. To
// compare with the key there is cheaper than to hash all texts of a key.
func (b *bounded[K, V]) recent(k *K, hint uint32) V {
	slot := &b.slots[hint%slots]
	if f := slot.Load(); f != nil && f.key == *k {
		return f.value
	}
	v := b.get(*k)
	if slot.Load() == nil && b.holds(*k) { // the first one stays: no allocations when two take turns
		slot.CompareAndSwap(nil, &found[K, V]{(*k).copied(), v})
	}
	return v
}

// holds reports whether a key is known without the lock. The others may belong to the overflow.
func (b *bounded[K, V]) holds(k K) bool {
	_, known := (*b.known.Load())[k]
	return known
}

func newBounded[K key[K], V any](most int, create func(K) V, overflow func() V) *bounded[K, V] {
	known := map[K]V{}
	b := &bounded[K, V]{all: known, shared: true, most: most, create: create, overflow: overflow}
	b.known.Store(&known)
	return b
}

func (b *bounded[K, V]) get(k K) V {
	if v, found := (*b.known.Load())[k]; found {
		return v
	}
	return b.find(k)
}

// find makes what is missing. The newer keys become known when they have been looked up as often as
// the copy of all of them costs.
func (b *bounded[K, V]) find(k K) V {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, found := b.all[k]
	if !found {
		if len(b.all) >= b.most {
			return b.overflow()
		}
		if b.shared {
			b.all, b.shared = maps.Clone(b.all), false
		}
		k = k.copied()
		v = b.create(k)
		b.all[k] = v
	}
	if b.missed++; b.missed >= len(b.all) && !b.shared {
		known := b.all
		b.known.Store(&known)
		b.shared, b.missed = true, 0
	}
	return v
}
