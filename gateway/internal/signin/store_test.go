package signin

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/seal"
	"github.com/farcall-dev/farcall/store"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

func newKey() []byte {
	key := make([]byte, seal.KeySize)
	rand.Read(key)
	return key
}

func open(t *testing.T, dir string, keys ...[]byte) *Store {
	t.Helper()
	s, err := Open(dir, keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func idOf(who, upstream string) ID {
	return ID{owner.Principal("jwt", "user", "https://issuer.example/"+strings.Repeat("x", 150),
		who).Text(), upstream}
}

func (s *Store) put(t *testing.T, id ID, key, value string) {
	t.Helper()
	if err := s.Tokens(id, "name of "+id.Upstream, false).Save(t.Context(), key,
		fmt.Appendf(nil, "%q", value)); err != nil {
		t.Fatal(err)
	}
}

func (s *Store) get(t *testing.T, id ID, key string) string {
	t.Helper()
	text, err := s.Tokens(id, "", false).Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(text), `"`)
}

const tokenKey = "tokens https://far.example/mcp"

// Over random changes each owner gets from each upstream what was kept for it, and nothing else,
// whichever process reads, whichever keys there are, and when the process has ended.
func TestStoreKeepsOwnersApart(t *testing.T) {
	for _, kind := range []string{"memory", "files", "shared"} {
		t.Run(kind, func(t *testing.T) {
			r := mathrand.New(mathrand.NewPCG(1, 2))
			dir, keys := "", [][]byte{newKey()}
			if kind == "files" {
				dir = filepath.Join(t.TempDir(), "deep", "sign-in")
			}
			shared := store.NewMemory(nil)
			defer shared.Close()
			begin := func() *Store {
				if kind != "shared" {
					return open(t, dir, keys...)
				}
				s, err := OpenShared(shared, keys)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := begin()
			want := map[ID]string{}
			var ids []ID
			for _, who := range []string{"ann", "bob", "ann/", ""} {
				for _, upstream := range []string{"a", "b", "ab"} {
					ids = append(ids, idOf(who, upstream))
				}
			}
			for n := range 400 {
				id := ids[r.IntN(len(ids))]
				switch r.IntN(8) {
				case 0:
					if err := s.Remove(id); err != nil {
						t.Fatal(err)
					}
					delete(want, id)
				case 1:
					if kind == "memory" {
						continue
					}
					if r.IntN(2) == 0 { // the key is changed
						keys = append([][]byte{newKey()}, keys[0])
					}
					begin()
					keys = keys[:1]
					s = begin() // everything was sealed again
				default:
					want[id] = fmt.Sprintf("secret-%d", n)
					s.put(t, id, tokenKey, want[id])
				}
				for _, id := range ids {
					if got := s.get(t, id, tokenKey); got != want[id] {
						t.Fatalf("%q has %q, not %q", id, got, want[id])
					}
				}
			}
			all, damaged, err := s.List()
			if err != nil || damaged > 0 || len(all) != len(want) {
				t.Errorf("%v, %d, %v", all, damaged, err)
			}
			for _, e := range all {
				if want[e.ID] == "" || e.Principal != "name of "+e.Upstream {
					t.Errorf("listed: %q", e)
				}
			}
		})
	}
}

// Registrations are the gateway's, for all owners of an upstream, and outlive a sign-out.
func TestStoreRegistrations(t *testing.T) {
	s := open(t, "")
	s.put(t, idOf("ann", "a"), "client https://as.example", "registration")
	s.put(t, idOf("ann", "a"), tokenKey, "ann's")
	if s.get(t, idOf("bob", "a"), "client https://as.example") != "registration" ||
		s.get(t, idOf("bob", "b"), "client https://as.example") != "" {
		t.Error("a registration is not that of its upstream")
	}
	leaving := s.Tokens(idOf("ann", "a"), "", true)
	for _, key := range []string{"client https://as.example", tokenKey} {
		if err := leaving.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if s.get(t, idOf("ann", "a"), tokenKey) != "" ||
		s.get(t, idOf("bob", "a"), "client https://as.example") == "" {
		t.Error("a sign-out has kept the tokens, or removed the registration")
	}
	if all, _, err := s.List(); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// What is on the disk says nothing: not who, not where, no token. Files are for one user only.
func TestStoreFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sign-in")
	s := open(t, dir, newKey())
	s.put(t, idOf("ann-of-the-tests", "upstream-name"), tokenKey, "planted-secret")
	for name, text := range filesOf(t, dir) {
		for _, secret := range []string{
			"ann-of-the-tests", "upstream-name", "planted-secret", "far.example",
		} {
			if strings.Contains(name+string(text), secret) {
				t.Errorf("%s has %q", name, secret)
			}
		}
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil ||
			runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v %v", s, s, s,
		s.Tokens(idOf("ann", "a"), "", false)); len(text) > 200 {
		t.Errorf("it prints as %s", text)
	}
	if runtime.GOOS == "windows" {
		return
	}
	for _, name := range []string{".", recordsOf(t, dir)[0]} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, info.Mode().Perm()|0o040); err != nil {
			t.Fatal(err)
		}
		again, err := Open(dir, [][]byte{newKey()})
		if err == nil || !strings.Contains(err.Error(), "chmod") || again != nil && again.disk == nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Chmod(path, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

func filesOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range list {
		if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func recordsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	for name := range filesOf(t, dir) {
		if strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	return names
}

// A wrong key is an error that says so, and changes nothing. With the right one all is there.
func TestStoreWrongKey(t *testing.T) {
	dir, key := filepath.Join(t.TempDir(), "sign-in"), newKey()
	open(t, dir, key).put(t, idOf("ann", "a"), tokenKey, "ann's")
	before := filesOf(t, dir)
	if _, err := Open(dir, [][]byte{newKey(), newKey()}); !errors.Is(err, ErrKey) ||
		!strings.Contains(err.Error(), "1 of 1 records") || !strings.Contains(err.Error(), dir) {
		t.Errorf("a wrong key: %v", err)
	}
	for name, text := range filesOf(t, dir) {
		if !bytes.Equal(before[name], text) {
			t.Errorf("%s was changed", name)
		}
	}
	if got := open(t, dir, newKey(), key).get(t, idOf("ann", "a"), tokenKey); got != "ann's" {
		t.Errorf("lost: %q", got)
	}
	// where the name of the first key has a damaged record, the good one stays
	key, first := newKey(), newKey()
	damaged := open(t, filepath.Join(t.TempDir(), "sign-in"), key)
	damaged.put(t, idOf("ann", "a"), tokenKey, "ann's")
	k, err := newStoreKey(first)
	if err == nil {
		err = damaged.disk.write(k.nameOf(idOf("ann", "a")), []byte("x"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	open(t, damaged.disk.String(), first, key)
	if got := open(t, damaged.disk.String(), key).get(t, idOf("ann", "a"), tokenKey); got != "ann's" {
		t.Errorf("beside a damaged record: %q", got)
	}
	for _, keys := range [][][]byte{nil, {{}}, {make([]byte, 16)}} {
		if _, err := Open(dir, keys); err == nil {
			t.Errorf("opened with the keys %v", keys)
		}
	}
}

// A file that is copied to another owner or upstream, or changed in any byte, gives that owner
// nothing.
func TestStoreCopiedFile(t *testing.T) {
	dir, key := filepath.Join(t.TempDir(), "sign-in"), newKey()
	s := open(t, dir, key)
	ann := idOf("ann", "a")
	s.put(t, ann, tokenKey, "ann's")
	own := s.keys[0].nameOf(ann)
	text, _, err := s.disk.read(own)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []ID{idOf("bob", "a"), idOf("ann", "b"), {Owner: "", Upstream: "a"}} {
		if err := s.disk.write(s.keys[0].nameOf(other), text, 0); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Tokens(other, "", false).Load(t.Context(), tokenKey); err != nil || got != nil {
			t.Errorf("%q gets %q, %v", other, got, err)
		}
	}
	if all, damaged, err := s.List(); err != nil || damaged != 3 || len(all) != 1 {
		t.Errorf("%v, %d, %v", all, damaged, err)
	}
	s.put(t, idOf("bob", "a"), tokenKey, "bob's") // who signs in gets a record that is whole
	if got := open(t, dir, key).get(t, idOf("bob", "a"), tokenKey); got != "bob's" {
		t.Errorf("%q", got)
	}
	for i := range text {
		changed := bytes.Clone(text)
		changed[i] ^= 1
		if err := s.disk.write(own, changed, 0); err != nil {
			t.Fatal(err)
		}
		got, err := s.Tokens(ann, "", false).Load(t.Context(), tokenKey)
		inRecord := i >= bytes.LastIndexByte(text[:len(text)-1], '\n')
		if err != nil || got != nil && (inRecord || string(got) != `"ann's"`) {
			t.Fatalf("byte %d: %q, %v", i, got, err)
		}
	}
}

// Two processes that use a directory lose nothing of each other's, and do not refresh the same
// tokens at the same time.
func TestStoreTwoProcesses(t *testing.T) {
	dir, key := filepath.Join(t.TempDir(), "sign-in"), newKey()
	both := []*Store{open(t, dir, key), open(t, dir, newKeyAfter(key)...)}
	var wg sync.WaitGroup
	var inside sync.Mutex
	id := idOf("ann", "a")
	for p, s := range both {
		for g := range 3 {
			wg.Go(func() {
				for n := range 10 {
					unlock, err := s.Lock(t.Context(), id)
					if err != nil {
						t.Error(err)
						return
					}
					if !inside.TryLock() {
						t.Error("two hold the lock")
					}
					s.put(t, id, fmt.Sprintf("tokens %d-%d-%d", p, g, n), "x")
					inside.Unlock()
					unlock()
				}
			})
		}
	}
	wg.Wait()
	for p := range both {
		for g := range 3 {
			for n := range 10 {
				if both[1-p].get(t, id, fmt.Sprintf("tokens %d-%d-%d", p, g, n)) != "x" {
					t.Errorf("%d-%d-%d is lost", p, g, n)
				}
			}
		}
	}
	stamp := both[0].Stamp(id)
	both[1].put(t, id, tokenKey, "new")
	if again := both[0].Stamp(id); again == stamp || again == "" {
		t.Errorf("the stamp %q became %q", stamp, again)
	}
	if err := both[1].Remove(id); err != nil || both[0].Stamp(id) != "" ||
		both[0].get(t, id, tokenKey) != "" {
		t.Errorf("%v, stamp %q", err, both[0].Stamp(id))
	}
}

// newKeyAfter is a list of keys with a first one that is key.
func newKeyAfter(key []byte) [][]byte { return [][]byte{key, newKey()} }

// What is too large is refused, and what was there stays.
func TestStoreLimit(t *testing.T) {
	s := open(t, "")
	s.put(t, idOf("ann", "a"), tokenKey, "ann's")
	if err := s.Tokens(idOf("ann", "a"), "", false).Save(t.Context(), tokenKey,
		make([]byte, maxEntry+1)); err == nil {
		t.Error("stored")
	}
	if got := s.get(t, idOf("ann", "a"), tokenKey); got != "ann's" {
		t.Errorf("%q", got)
	}
}

// A file is anything: it is refused, or it is what the store has written.
func FuzzFile(f *testing.F) {
	s, err := Open("", [][]byte{bytes.Repeat([]byte{7}, seal.KeySize)})
	if err != nil {
		f.Fatal(err)
	}
	k := &s.keys[0]
	id := ID{"ann", "a"}
	good, err := k.seal(k.nameOf(id), id, "Ann", &record{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(fileHead + "\n0011223344556677\n\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := parseFile(text)
		if err != nil {
			return
		}
		if again := appendFile(nil, file); !bytes.Equal(again, text) {
			t.Fatalf("%q is written as %q", text, again)
		}
		if l, err := k.open(k.nameOf(id), file); err == nil && l.id() != id {
			t.Fatalf("%q was opened", text)
		}
	})
}
