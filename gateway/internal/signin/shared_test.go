package signin

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/mcp/mcpauth"
	"github.com/farcall-dev/farcall/store"
)

// A sign-in ends at the server for which it began: when a reload has moved the upstream meanwhile,
// the other server gets no token.
func TestUpstreamMovesInTheSignIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ann := newNodes(t)[0], person("ann")
		link, err := w.ups["a"].Link(t.Context(), ann, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := w.browser("ann")
		back := b.consent(b.open(link))
		const other = "https://other.example/mcp"
		u, err := w.svc.NewUpstream("a", other,
			mcpauth.Options{
				HTTP: &http.Client{Transport: w.net}, MetadataURL: public + ClientPath,
				Name: "Tools", Target: "a",
			})
		if err != nil {
			t.Fatal(err)
		}
		w.ups["a"] = u
		if b.back(back) {
			t.Error("signed in to the other server")
		}
		if ready, err := u.Ready(t.Context(), ann); ready || err != nil {
			t.Errorf("the other server gets a token: %v", err)
		}
		if len(w.net.codes) != 1 || len(w.net.access) > 0 {
			t.Error("the code was sent")
		}
	})
}

// Whether an authorization server keeps its refresh tokens is known of one sign-in, not of the next
// one.
func TestNextSignInMayNotKeepTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t)
		first, ann := nodes[0], person("ann")
		for _, first.keeps = range []bool{true, false} {
			signInAt(t, ann, first, first, first)
			pass(time.Hour + time.Second)
			if first.keeps && !nodes[1].calls(t, ann) {
				t.Fatal("not renewed")
			}
		}
		first.during = func() error {
			first.shared.cut.Store(true)
			return errors.New("the process ends")
		}
		first.calls(t, ann)
		first.during = nil
		pass(claimTime + clockSkew)
		if nodes[1].calls(t, ann) {
			t.Error("a token that is lost was renewed")
		}
		never(t, nodes)
	})
}

// While the key is changed, a record has one name: its refresh token is sent once, also when the
// store fails at any step of the move, or a node with the keys in the other order renews meanwhile.
func TestChangeOfKeys(t *testing.T) {
	for fault := range 12 {
		for _, race := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(t)
				first, next, ann := nodes[0], nodes[1], person("ann")
				old, fresh := newKey(), newKey()
				for _, n := range nodes {
					n.restart(t, old, fresh)
				}
				signInAt(t, ann, first, first, first)
				pass(time.Hour + time.Second)
				next.svc.Close()
				puts := 0
				s, err := OpenShared(&hookStore{next.shared, func(*store.Record) error {
					switch puts++; {
					case puts != fault+1:
					case race:
						first.calls(t, ann)
					default:
						return store.ErrUnavailable
					}
					return nil
				}}, [][]byte{fresh, old})
				if err == nil {
					s.Close()
				}
				next.restart(t, fresh, old)
				for range 2 {
					for i, n := range nodes {
						if !n.calls(t, ann) {
							pass(lookEvery) // it has seen the record between two names
							if !n.calls(t, ann) {
								t.Errorf("fault %d, race %v: node %d is signed out", fault, race, i)
							}
						}
					}
					pass(time.Hour + time.Second)
				}
				if err := first.ups["a"].SignOut(t.Context(), ann); err != nil {
					t.Error(err)
				}
				pass(lookEvery)
				for i, n := range nodes {
					if n.ready("a", ann) {
						t.Errorf("fault %d, race %v: node %d is signed in", fault, race, i)
					}
				}
				never(t, nodes)
			})
		}
	}
}

// Other owners that fill the store keep no principal from renewing its tokens. When the store is
// full, a new token is in memory until there is room, and the error says so.
func TestFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := store.NewMemory(&store.Options{MaxBytes: 4 << 20})
		defer kept.Close()
		var full atomic.Bool
		shared := &hookStore{kept, func(r *store.Record) error {
			if full.Load() {
				return fmt.Errorf("here: %w", store.ErrFull)
			}
			return nil
		}}
		tokens, err := OpenShared(shared, [][]byte{newKey()})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, tokens, &Options{Shared: shared})
		people := []Who{}
		for i := range 60 {
			people = append(people, person(fmt.Sprint("user", i)))
			if !w.browser(people[i].Name).signIn("a", people[i]) {
				t.Fatal("not signed in")
			}
		}
		pass(linkLife + flowLife)
		for i := range 6 {
			for n := 0; err == nil; n++ {
				_, err = kept.Put(t.Context(), &store.Record{
					Owner: fmt.Sprint("owner", i), ID: fmt.Sprint(n), Value: make([]byte, 1<<10),
					Expires: time.Now().Add(24 * time.Hour),
				})
			}
			if !errors.Is(err, store.ErrFull) {
				t.Fatal(err)
			}
			err = nil
		}
		pass(time.Hour)
		for _, who := range people {
			if status, err := w.call("a", who); status != http.StatusOK {
				t.Fatalf("%s: %d, %v", who.Name, status, err)
			}
		}
		pass(time.Hour)
		full.Store(true)
		if _, err := w.call("a", people[0]); !errors.Is(err, ErrFull) || errors.Is(err, ErrStore) {
			t.Errorf("a full store: %v", err)
		}
		full.Store(false)
		w.mu.Lock()
		w.during = func() error {
			full.Store(true)
			return nil
		}
		w.mu.Unlock()
		if status, err := w.call("a", people[0]); status != http.StatusOK {
			t.Errorf("filled in the refresh: %d, %v", status, err)
		}
		full.Store(false)
		w.during = nil
		pass(savePause)
		for range 2 {
			w.ups["a"].changed(people[0]) // what is in memory is dropped
			if status, err := w.call("a", people[0]); status != http.StatusOK || w.renewed != 61 ||
				w.reused > 0 {
				t.Errorf("the token was not stored: %d, %v, %d refreshes", status, err, w.renewed)
			}
		}
	})
}

// Calls wait for the claim of a node that has ended at the same time, and not one after another.
func TestCallsWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t)
		first, ann := nodes[0], person("ann")
		signInAt(t, ann, first, first, first)
		pass(time.Hour + time.Second)
		first.during = func() error {
			first.shared.cut.Store(true)
			return errors.New("the process ends")
		}
		first.calls(t, ann)
		for _, longest := range []time.Duration{claimWait, 0} {
			began := time.Now()
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					_, err := nodes[1].call("a", ann)
					if took := time.Since(began); !errors.Is(err, errRenewing) || took > longest {
						t.Errorf("%v after %s", err, took)
					}
				})
			}
			wg.Wait()
		}
	})
}

// Tokens that an upstream refuses are removed, and those of a sign-in that ends at this moment at
// another node are kept, whether there is a refresh token, which is refused, too, or not.
func TestRefusedTokensAreRemoved(t *testing.T) {
	for _, bare := range []bool{false, true} {
		for _, again := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(t)
				ann, next := person("ann"), nodes[1]
				nodes[0].bare = bare
				signInAt(t, ann, nodes[0], nodes[0], nodes[0])
				pass(2 * time.Minute)
				nodes[0].mu.Lock()
				clear(nodes[0].access)
				clear(nodes[0].refresh)
				nodes[0].mu.Unlock()
				next.svc.Close()
				keys, done := next.store.keys, false
				shared := &hookStore{next.shared, func(r *store.Record) error {
					if again && len(r.Value) == 0 && !done {
						done = true
						signInAt(t, ann, nodes[2], nodes[2], nodes[2])
					}
					return nil
				}}
				var err error
				if next.store, err = OpenShared(shared, [][]byte{newKey()}); err != nil {
					t.Fatal(err)
				}
				next.store.keys = keys
				next.begin(&Options{Shared: shared})
				if _, err := next.call("a", ann); !errors.Is(err, ErrSignIn) || done != again {
					t.Errorf("refused: %v, %v", err, done)
				}
				pass(lookEvery)
				for i, n := range nodes {
					if n.ready("a", ann) != again {
						t.Errorf("bare %v, again %v: signed in at node %d: %v", bare, again, i, !again)
					}
				}
				never(t, nodes)
			})
		}
	}
}

// A sign-out that another node tells while a record is being read counts with the next call.
func TestSignOutWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t)
		ann, other := person("ann"), nodes[1]
		signInAt(t, ann, nodes[0], nodes[0], nodes[0])
		if !other.calls(t, ann) {
			t.Fatal("not signed in")
		}
		pass(lookEvery)
		other.shared.slow.Store(true)
		var wg sync.WaitGroup
		wg.Go(func() { other.ready("a", ann) })
		pass(time.Millisecond)
		if err := nodes[0].ups["a"].SignOut(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if other.ready("a", ann) {
			t.Error("signed in after the sign-out")
		}
	})
}

// Sign-ins that have ended leave nothing. One that begins while another one is being removed is
// listed, whatever comes between which steps.
func TestNamesOfRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, key := store.NewMemory(nil), newKey()
		defer kept.Close()
		nodes, steps := make([]*Store, 2), make([]func(), 2)
		for i := range nodes {
			var err error
			nodes[i], err = OpenShared(&hookStore{kept, func(*store.Record) error {
				if step := steps[i]; step != nil {
					step()
				}
				return nil
			}}, [][]byte{key})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			id := idOf(fmt.Sprint("user", i), "a")
			nodes[0].put(t, id, tokenKey, "x")
			if err := nodes[i%2].Remove(id); err != nil {
				t.Fatal(err)
			}
		}
		pass(2 * goneFor)
		for r := range kept.Adopt(t.Context()) {
			if len(r.Value) > 0 {
				t.Fatalf("%s is left: %q", r.ID, r.Value)
			}
		}
		for _, whole := range []bool{true, false} { // the sign-in is whole when the removal goes on
			id, puts, removed := idOf("ann", "a"), 0, make(chan struct{})
			nodes[0].put(t, id, tokenKey, "x")
			var wg sync.WaitGroup
			steps[0] = func() {
				if puts++; puts == 2 { // the record is empty, and its name is about to be removed
					wg.Go(func() { nodes[1].put(t, id, tokenKey, "y") })
					synctest.Wait()
				}
			}
			if steps[1] = nil; !whole {
				steps[1] = func() { <-removed }
			}
			if err := nodes[0].Remove(id); err != nil {
				t.Error(err)
			}
			close(removed)
			wg.Wait()
			steps[0] = nil
			if all, _, err := nodes[0].List(); err != nil || len(all) != 1 ||
				nodes[0].get(t, id, tokenKey) != "y" {
				t.Errorf("whole %v: listed %v, %v", whole, all, err)
			}
			if err := nodes[0].Remove(id); err != nil {
				t.Error(err)
			}
		}
	})
}
