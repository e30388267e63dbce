package store_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/storetest"
	"github.com/farcall-dev/farcall/store"
)

func memory(t *testing.T, o *store.Options) *store.Memory {
	t.Helper()
	m := store.NewMemory(o)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestMemory(t *testing.T) {
	const lease = 50 * time.Millisecond
	storetest.Run(t, storetest.Suite{
		Lease:  lease,
		Rounds: 50,
		Open: func(t *testing.T, n int) []store.Store {
			m := memory(t, &store.Options{Lease: lease})
			all := make([]store.Store, n)
			for i := range all {
				all[i] = m
			}
			return all
		},
	})
}

// A subscriber that is slow learns that it missed messages, also when no other message follows.
func TestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory(t, nil)
		hold, got := make(chan struct{}), []store.Message{}
		stop, err := m.Subscribe(t.Context(), "t", func(msg store.Message) {
			got = append(got, msg)
			<-hold
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			if err := m.Publish(t.Context(), "t", fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				synctest.Wait() // it has the first one
			}
		}
		close(hold)
		synctest.Wait()
		stop()
		stop()
		if last := got[len(got)-1]; !last.Gap || len(got) != 258 {
			t.Errorf("%d messages, the last %+v", len(got), last)
		}
	})
}

// Each table of a store in memory has an end, and what expires makes room.
func TestMemoryFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory(t, &store.Options{MaxBytes: 1 << 20})
		ctx, n := t.Context(), 0
		long := make([]byte, 64<<10)
		for ; ; n++ {
			_, err := m.Claim(ctx, fmt.Sprint(n, string(long)), time.Now().Add(time.Minute))
			if errors.Is(err, store.ErrFull) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if n < 900 || n > 1024 {
			t.Errorf("%d claims of 64 KiB", n)
		}
		if _, err := m.Take(ctx, "k", 1, 1, time.Now().Add(time.Minute)); err != nil {
			t.Errorf("claims take the room of sums: %v", err)
		}
		items := 0
		for ; m.Push(ctx, "q", long) == nil; items++ {
		}
		if items != 15 {
			t.Errorf("%d items of 64 KiB in 1 MiB", items)
		}
		i, err := m.Pull(ctx, "q")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(i.Done(ctx), i.Done(ctx), m.Push(ctx, "q", long)); err != nil {
			t.Error(err)
		}
		<-time.After(time.Minute)
		if first, err := m.Claim(ctx, "again", time.Now().Add(time.Minute)); err != nil || !first {
			t.Errorf("after all have expired: %v, %v", first, err)
		}
	})
}

func BenchmarkMemoryClaim(b *testing.B) {
	m := store.NewMemory(nil)
	defer m.Close()
	until := time.Now().Add(time.Minute)
	for i := 0; b.Loop(); i++ {
		if _, err := m.Claim(b.Context(), fmt.Sprint(i%100_000), until); err != nil {
			b.Fatal(err)
		}
	}
}
