package mcp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/store"
)

// sealedCaller is the client of a session that each replica can serve.
type sealedCaller struct{ farcall.Caller }

func (sealedCaller) Sealed() (id string, until time.Time) {
	return "sealed", time.Now().Add(time.Hour)
}

// A level that one replica has set holds at all that share the values of sessions: at once where
// the session is new, within a second where it is known. A store that fails changes nothing.
func TestLevelOfReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := &faultyStore{Records: store.New(nil)}
		replica := func() *session {
			s := NewServer("replica", "1", &ServerOptions{Keys: sealKeys("k"), Sessions: kept})
			return s.newSession(t.Context(), sealedCaller{})
		}
		a, b := replica(), replica()
		b.owner = a.owner // the context of a request has it
		levels := func(wantA, wantB string) {
			t.Helper()
			if a, b := a.level(), b.level(); a != wantA || b != wantB {
				t.Errorf("levels %q and %q, want %q and %q", a, b, wantA, wantB)
			}
		}
		if err := a.setLevel("error"); err != nil {
			t.Fatal(err)
		}
		levels("error", "error")
		if a.Local() || b.Local() {
			t.Error("a session with its own level stays in memory")
		}
		if err := b.setLevel("debug"); err != nil {
			t.Fatal(err)
		}
		levels("error", "debug")
		<-time.After(levelAge)
		levels("debug", "debug")
		kept.fail(func(*store.Record) error { return store.ErrFull })
		if err := a.setLevel("alert"); !errors.Is(err, store.ErrFull) {
			t.Error(err)
		}
		levels("debug", "debug")
		kept.fail(nil)
		if err := b.public.SetValue("key", "value"); err != nil {
			t.Error(err)
		}
		<-time.After(levelAge)
		levels("debug", "debug")
		var text string
		if ok, err := a.public.Value("key", &text); !ok || err != nil || text != "value" {
			t.Error(ok, err, text)
		}
	})
}

// A store that is slow holds up a message for a second at most, and not each one.
func TestLevelOfSlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := &slowStore{Records: store.New(nil)}
		s := NewServer("slow", "1", &ServerOptions{Keys: sealKeys("k"), Sessions: kept})
		x := s.newSession(t.Context(), sealedCaller{})
		began := time.Now()
		for range 10 {
			x.level()
		}
		if took := time.Since(began); took != levelAge || kept.gets != 1 {
			t.Errorf("%d reads in %v", kept.gets, took)
		}
	})
}

// A slowStore does not answer to Get.
type slowStore struct {
	store.Records
	gets int
}

func (s *slowStore) Get(ctx context.Context, _, _ string) (*store.Record, error) {
	s.gets++
	<-ctx.Done()
	return nil, ctx.Err()
}
