package metrics

import (
	"strconv"
	"sync"
	"testing"
)

// TestBoundedTogether: whichever look-up is the first, each key has one value, and the keys beyond
// the bound share one.
func TestBoundedTogether(t *testing.T) {
	t.Parallel()
	const keys, most = 200, 150
	var overflow int
	b := newBounded(most, func(text) *int { return new(int) }, func() *int { return &overflow })
	var all [8][keys]*int
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for range 50 {
				for k := range keys {
					all[i][k] = b.get(text(strconv.Itoa(k)))
				}
			}
		})
	}
	wg.Wait()
	made := map[*int]int{}
	for k := range keys {
		made[all[0][k]]++
		for i := range all {
			if all[i][k] != all[0][k] {
				t.Fatalf("key %d has two values", k)
			}
		}
	}
	if len(made) != most+1 || made[&overflow] != keys-most {
		t.Errorf("%d values, %d keys beyond the bound", len(made), made[&overflow])
	}
}

// TestBoundedFirst: the first look-ups may come together.
func TestBoundedFirst(t *testing.T) {
	t.Parallel()
	for range 2000 {
		b := newBounded(10, func(text) *int { return new(int) }, func() *int { return nil })
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() {
				<-begin
				b.get(text(strconv.Itoa(k)))
			})
		}
		close(begin)
		wg.Wait()
	}
}
