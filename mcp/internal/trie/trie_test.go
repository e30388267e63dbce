package trie

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A map is what a map of Go is, after any changes, and no change is seen in the map that it was
// made of.
func TestOrdered(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]func() uint64{
		"dense":  func() uint64 { return rand.Uint64N(300) },
		"spread": func() uint64 { return rand.Uint64N(16) << (4 * rand.IntN(16)) },
		"ends": func() uint64 {
			return []uint64{0, 1, 15, 16, math.MaxUint64, math.MaxUint64 - 1, 1 << 63}[rand.IntN(7)]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := map[uint64]int{}
			var m Ordered[int]
			for i := range 1_000 {
				k := key()
				old, was := m, maps.Clone(want)
				if rand.IntN(5) < 3 {
					m = m.With(k, i)
					want[k] = i
				} else {
					m = m.Without(k)
					delete(want, k)
				}
				if i%50 == 0 {
					checkOrdered(t, old, was, key())
				}
			}
			checkOrdered(t, m, want, key())
			for k := range want {
				m = m.Without(k)
			}
			if m.root != nil || m.Len() != 0 {
				t.Errorf("something is left: %d", m.Len())
			}
		})
	}
}

func checkOrdered(t *testing.T, m Ordered[int], want map[uint64]int, first uint64) {
	t.Helper()
	if m.Len() != len(want) || !maps.Equal(maps.Collect(m.From(0)), want) {
		t.Fatalf("got %v (%d), want %v", maps.Collect(m.From(0)), m.Len(), want)
	}
	for k, v := range want {
		if got, ok := m.Get(k); !ok || got != v {
			t.Fatalf("%#x: got %d, %v, want %d", k, got, ok, v)
		}
	}
	if _, had := want[first]; !had {
		if _, ok := m.Get(first); ok {
			t.Fatalf("%#x is there", first)
		}
	}
	keys := slices.Sorted(maps.Keys(want))
	at, _ := slices.BinarySearch(keys, first)
	var got []uint64
	for k := range m.From(first) {
		got = append(got, k)
	}
	if !slices.Equal(got, keys[at:]) {
		t.Fatalf("from %#x: got %#x, want %#x", first, got, keys[at:])
	}
	for k := range m.From(first) { // and not further than the reader wants
		if k != keys[at] {
			t.Fatalf("from %#x: got %#x first", first, k)
		}
		break
	}
}

// Names with equal hashes are different names.
func TestNamed(t *testing.T) {
	t.Parallel()
	few := func(_ maphash.Seed, name []byte) uint64 { return uint64(name[len(name)-1]) % 3 }
	for name, m := range map[string]Named[int]{"hashed": NewNamed[int](), "colliding": {hash: few}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := map[string]int{}
			m := m
			for i := range 1_000 {
				k := fmt.Sprint("name", rand.IntN(60))
				old, had := want[k]
				before := m
				if rand.IntN(5) < 3 {
					m = m.With(k, i)
					want[k] = i
				} else {
					m = m.Without(k)
					delete(want, k)
				}
				if v, ok := before.Get([]byte(k)); ok != had || v != old {
					t.Fatalf("a change of %s is seen in the map before it", k)
				}
				k = fmt.Sprint("name", rand.IntN(60))
				v, has := want[k]
				if got, ok := m.Get([]byte(k)); ok != has || got != v {
					t.Fatalf("%s: got %d, %v, want %d, %v", k, got, ok, v, has)
				}
			}
			for k := range want {
				m = m.Without(k)
			}
			if m.of.Len() != 0 {
				t.Errorf("%d are left", m.of.Len())
			}
		})
	}
}

// What is put into a large map costs the nodes on the way to it, and reading costs no memory.
func TestAllocations(t *testing.T) {
	m := NewNamed[int]()
	var o Ordered[int]
	const size = 10_000
	for i := range size {
		m, o = m.With(fmt.Sprint("name", i), i), o.With(uint64(i), i)
	}
	i := 0
	if n := testing.AllocsPerRun(1_000, func() { m.With("another", i); i++ }); n > 16 {
		t.Errorf("a name costs %v allocations", n)
	}
	if n := testing.AllocsPerRun(1_000, func() { o.With(size, i); i++ }); n > 11 {
		t.Errorf("a number costs %v allocations", n)
	}
	name := []byte("name4711")
	if n := testing.AllocsPerRun(1_000, func() {
		if v, ok := m.Get(name); !ok || v != 4711 {
			t.Fatal(v, ok)
		}
	}); n > 0 {
		t.Errorf("reading costs %v allocations", n)
	}
}

func BenchmarkGet(b *testing.B) {
	for _, size := range []int{10, 1_000, 50_000} {
		m, plain := NewNamed[int](), map[string]int{}
		for i := range size {
			m, plain[fmt.Sprint("name", i)] = m.With(fmt.Sprint("name", i), i), i
		}
		name := fmt.Append(nil, "name", size/2)
		b.Run(fmt.Sprint("trie/", size), func(b *testing.B) {
			for b.Loop() {
				m.Get(name)
			}
		})
		b.Run(fmt.Sprint("map/", size), func(b *testing.B) {
			for b.Loop() {
				_ = plain[string(name)]
			}
		})
	}
}
