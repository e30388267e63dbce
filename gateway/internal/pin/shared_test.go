package pin

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/store"
)

// tool is a list with one tool.
func tool(description string) map[string][]jsonrpc.Raw {
	return map[string][]jsonrpc.Raw{
		Tools: raws([]string{`{"name":"tell","description":"` + description + `"}`}),
	}
}

// A sharer is a process with a lock file, and a store that it shares with others.
type sharer struct {
	Shared
	file    string
	changed []string
}

func newSharer(t *testing.T, records store.Records) *sharer {
	t.Helper()
	s := &sharer{file: filepath.Join(t.TempDir(), "farcall.lock")}
	s.Shared = Shared{File: s.file, Records: records, Changed: func(source string) {
		s.changed = append(s.changed, source)
	}}
	s.save(t, "")
	return s
}

// save writes the lock file, with a definition of the tool of a; "": with none.
func (s *sharer) save(t *testing.T, description string) {
	t.Helper()
	l := New()
	if description != "" {
		if err := l.AcceptAll("a", tool(description)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Save(s.file); err != nil {
		t.Fatal(err)
	}
}

// load returns what is accepted of a, by its description, and the lock.
func (s *sharer) load(t *testing.T) (string, *Lock) {
	t.Helper()
	l, err := s.Load(t.Context(), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	for _, description := range []string{"one", "two", "three"} {
		if allowed(l, "a", Tools, tool(description)[Tools][0]) {
			return description, l
		}
	}
	return "", l
}

// Of two processes that accept other definitions at once, one is refused. Both go by the same.
func TestShared(t *testing.T) {
	records := store.New(nil)
	one, two := newSharer(t, records), newSharer(t, records)
	_, first := one.load(t)
	_, second := two.load(t)
	if err := one.Accept(t.Context(), first, "a", tool("one")); err != nil {
		t.Fatal(err)
	}
	if err := two.Accept(t.Context(), second, "a", tool("two")); !errors.Is(err, ErrOther) {
		t.Errorf("the second one: %v", err)
	}
	if err := two.Accept(t.Context(), second, "a", tool("one")); err != nil {
		t.Errorf("the same: %v", err)
	}
	if !slices.Equal(one.changed, []string{"a"}) || len(two.changed) > 0 {
		t.Errorf("%q, %q", one.changed, two.changed)
	}
	for _, s := range []*sharer{one, two} {
		got, l := s.load(t)
		if got != "one" || l.Same(first) {
			t.Errorf("it goes by %q", got)
		}
		if again, same := s.load(t); again != "one" || !same.Same(l) {
			t.Errorf("again %q", again)
		}
		if err := s.Accept(t.Context(), l, "b", tool("x")); err != nil && s == one {
			t.Error(err)
		}
	}
}

// A lock file is taken once: when it is new to all. What was accepted after it stays, also for a
// process that has the old file.
func TestSharedFile(t *testing.T) {
	records := store.New(nil)
	one, two := newSharer(t, records), newSharer(t, records)
	expect := func(when, want string) (l *Lock) {
		t.Helper()
		for _, s := range []*sharer{one, two, one} {
			var got string
			if got, l = s.load(t); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		return l
	}
	one.save(t, "one")
	two.save(t, "one")
	l := expect("the first file", "one")
	if err := two.Accept(t.Context(), l, "a", tool("two")); err != nil {
		t.Fatal(err)
	}
	expect("accepted later", "two")
	one.save(t, "three")
	if got, _ := one.load(t); got != "three" {
		t.Errorf("a new file: %q", got)
	}
	expect("a new file at one of them", "three")
	two.save(t, "two")
	l = expect("what was replaced", "three")
	if err := two.Accept(t.Context(), l, "a", tool("one")); err != nil {
		t.Fatal(err)
	}
	expect("accepted again", "one")
}

// While the store does not answer, nothing is known and nothing accepted.
func TestSharedWithoutStore(t *testing.T) {
	records := store.New(nil)
	s := newSharer(t, records)
	s.save(t, "one")
	_, l := s.load(t)
	if err := records.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), []string{"a"}); !errors.Is(err, ErrStore) {
		t.Errorf("it loads: %v", err)
	}
	if err := s.Accept(t.Context(), l, "a", tool("two")); !errors.Is(err, ErrStore) {
		t.Errorf("it accepts: %v", err)
	}
}

// readable is a store without a quorum that still answers reads.
type readable struct{ store.Records }

func (readable) Put(context.Context, *store.Record) (uint64, error) {
	return 0, store.ErrUnavailable
}

// What was accepted already is accepted again only where the store decides: what it reads may be
// old.
func TestSharedDecidesByWriting(t *testing.T) {
	records := store.New(nil)
	s := newSharer(t, records)
	s.save(t, "one")
	_, l := s.load(t)
	if err := s.Accept(t.Context(), l, "a", tool("one")); err != nil {
		t.Error(err)
	}
	_, l = s.load(t)
	s.Records = readable{records}
	if err := s.Accept(t.Context(), l, "a", tool("one")); !errors.Is(err, ErrStore) {
		t.Errorf("it accepts: %v", err)
	}
}
