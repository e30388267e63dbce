package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// key is the values of the labels of a series, before they are resolved. copied returns one that keeps no memory
// of a message.
type key[K any] interface {
	comparable
	copied() K
}

// bounded finds what belongs to a key, without a lock and without an allocation once the key is known. It
// has at most a number of keys; all others get the overflow.
type bounded[K key[K], V any] struct {
	known atomic.Pointer[map[K]V] // it is not changed

	mu       sync.Mutex
	all      map[K]V // those of known, and the newer ones
	shared   bool    // all is known
	missed   int     // look-ups of newer ones
	most     int
	create   func(K) V
	overflow func() V
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

// find makes what is missing. The newer keys become known when they have been looked up as often as the
// copy of all of them costs.
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
