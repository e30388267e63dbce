package tails

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/store"
)

// replayed is what t has of a stream after event n.
func replayed(tb testing.TB, t *Tails, session string, stream, n uint64) (all []string) {
	tb.Helper()
	err := t.Replay(session, stream, n, func(n uint64, data []byte) error {
		all = append(all, fmt.Sprint(n, string(data)))
		return nil
	})
	if err != nil {
		tb.Error(err)
	}
	return all
}

// What one node appends is at another one, in its order, for its session and stream alone, until
// its time is over or the session has ended. What is too large is left out.
func TestReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := store.NewMemory(nil)
		defer kept.Close()
		here, there := New(kept, slog.New(slog.DiscardHandler)), New(kept, slog.New(slog.DiscardHandler))
		defer there.Close()
		for session, all := range map[string][]uint64{"a": {1, 2, 3, 5}, "b": {1}} {
			for _, n := range all {
				if err := here.Append("p", session, 7, n, []byte(session)); err != nil {
					t.Error(err)
				}
			}
		}
		for n := uint64(2); n < 50; n++ {
			if err := here.Append("p", "b", 7, n, make([]byte, largest+1)); !errors.Is(err, errLarge) {
				t.Errorf("a large one: %v", err)
			}
		}
		if err := here.Append("p", "b", 7, 50, []byte("b")); err != nil {
			t.Error(err)
		}
		here.Close() // all is written
		for _, v := range []struct {
			session   string
			stream, n uint64
			want      []string
		}{
			{"a", 7, 0, []string{"1a", "2a", "3a", "5a"}},
			{"a", 7, 2, []string{"3a", "5a"}},
			{"a", 7, 5, nil},
			{"b", 7, 0, []string{"1b", "50b"}},
			{"a", 6, 0, nil},
			{"c", 7, 0, nil},
		} {
			if got := replayed(t, there, v.session, v.stream, v.n); !slices.Equal(got, v.want) {
				t.Errorf("session %s, stream %d after %d: %q, want %q", v.session, v.stream, v.n, got, v.want)
			}
		}
		there.Drop("b")
		synctest.Wait()
		if got := replayed(t, there, "b", 7, 0); got != nil {
			t.Errorf("after the end: %q", got)
		}
		<-time.After(lasts + time.Second)
		if got := replayed(t, there, "a", 7, 0); got != nil {
			t.Errorf("later: %q", got)
		}
	})
}

// stuck is a store that writes nothing before it is let go.
type stuck struct {
	store.Records

	free chan struct{}
}

func (s *stuck) Put(ctx context.Context, r *store.Record) (uint64, error) {
	<-s.free
	return s.Records.Put(ctx, r)
}

// Two owners: one fills what it may have, the other works. Append waits for nothing, and what comes
// after Close is refused.
func TestRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := store.NewMemory(nil)
		defer kept.Close()
		s := &stuck{kept, make(chan struct{})}
		a := New(s, slog.New(slog.DiscardHandler))
		full := uint64(0)
		for n := uint64(1); full == 0; n++ {
			if err := a.Append("greedy", "a", 1, n, make([]byte, 1000)); errors.Is(err, errFull) {
				full = n
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if most := uint64(owned/(1000+cost) + 1); full != most {
			t.Errorf("the first owner has room for %d events, want %d", full-1, most-1)
		}
		if err := a.Append("other", "b", 1, 1, []byte("b")); err != nil {
			t.Errorf("the other owner: %v", err)
		}
		close(s.free)
		synctest.Wait()
		if err := a.Append("greedy", "a", 1, full+1, []byte("again")); err != nil {
			t.Errorf("when all is written: %v", err)
		}
		a.Close()
		if got := len(replayed(t, a, "a", 1, 0)); uint64(got) != full {
			t.Errorf("%d events are there, want %d", got, full)
		}
		if got := replayed(t, a, "b", 1, 0); !slices.Equal(got, []string{"1b"}) {
			t.Errorf("of the other owner: %q", got)
		}
		if err := a.Append("other", "b", 1, 3, nil); !errors.Is(err, errFull) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// hung is a store that never writes.
type hung struct{ store.Records }

func (hung) Put(ctx context.Context, _ *store.Record) (uint64, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// Close does not wait for a store that takes nothing, whatever waits to be written.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := store.NewMemory(nil)
		defer kept.Close()
		a := New(hung{kept}, slog.New(slog.DiscardHandler))
		for n := range uint64(100) {
			if err := a.Append("p", "a", 1, n+1, []byte("a")); err != nil {
				t.Error(err)
			}
		}
		began := time.Now()
		if a.Close(); time.Since(began) > 2*timeout {
			t.Errorf("it took %v", time.Since(began))
		}
	})
}
