package signin

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/store"
)

// A cutStore is the store as one node has it: the node may be cut off, or have ended.
type cutStore struct {
	store.Store
	cut, deaf atomic.Bool
	slow      atomic.Bool // an answer comes a moment later
}

func (s *cutStore) Put(ctx context.Context, r *store.Record) (uint64, error) {
	if s.cut.Load() {
		return 0, store.ErrUnavailable
	}
	return s.Store.Put(ctx, r)
}

func (s *cutStore) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	if s.cut.Load() {
		return nil, store.ErrUnavailable
	}
	r, err := s.Store.Get(ctx, owner, id)
	if s.slow.Load() {
		pass(20 * time.Millisecond)
	}
	return r, err
}

func (s *cutStore) Publish(ctx context.Context, topic string, data []byte) error {
	if s.cut.Load() || s.deaf.Load() {
		return store.ErrUnavailable
	}
	return s.Store.Publish(ctx, topic, data)
}

// A hookStore calls hook before each record is put.
type hookStore struct {
	store.Store
	hook func(*store.Record) error
}

func (s *hookStore) Put(ctx context.Context, r *store.Record) (uint64, error) {
	if err := s.hook(r); err != nil {
		return 0, err
	}
	return s.Store.Put(ctx, r)
}

// A node is a world that shares its store and its authorization servers with others.
type node struct {
	*world

	shared *cutStore
}

// newNodes makes three nodes.
func newNodes(t *testing.T) []*node {
	t.Helper()
	kept, key := store.NewMemory(nil), newKey()
	t.Cleanup(func() { _ = kept.Close() })
	all := make([]*node, 3)
	for i := range all {
		s := &cutStore{Store: kept}
		tokens, err := OpenShared(s, [][]byte{key})
		if err != nil {
			t.Fatal(err)
		}
		all[i] = &node{newWorld(t, tokens, &Options{Shared: s}), s}
		all[i].net = all[0].world
		all[i].svc.Close() // the network was another one
		all[i].restart(t, key)
	}
	return all
}

// restart starts the process of a node again.
func (n *node) restart(t *testing.T, keys ...[]byte) {
	t.Helper()
	n.svc.Close()
	var err error
	if n.store, err = OpenShared(n.shared, keys); err != nil {
		t.Fatal(err)
	}
	n.begin(&Options{Shared: n.shared})
	if err := n.svc.Follow(); err != nil {
		t.Fatal(err)
	}
}

// at is the browser of a user at another node, as a balancer sends it there.
func (b *browser) at(n *node) *browser {
	b.w = n.world
	return b
}

// signInAt signs a principal in with a link of one node, a start page of another one and a callback
// of a third one.
func signInAt(t *testing.T, who Who, link, page, back *node) {
	t.Helper()
	address, err := link.ups["a"].Link(t.Context(), who, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := page.browser(who.Name)
	if there := b.open(address); there == "" || !b.at(back).back(b.consent(there)) {
		t.Fatalf("%s is not signed in", who.Name)
	}
}

// calls reports whether a call of a principal passes.
func (n *node) calls(t *testing.T, who Who) bool {
	t.Helper()
	status, err := n.call("a", who)
	if err != nil && !errors.Is(err, ErrCaller) {
		t.Error(err)
	}
	return status == http.StatusOK
}

// never fails the test when a refresh token was used twice, or a token went to another principal.
func never(t *testing.T, nodes []*node) {
	t.Helper()
	nodes[0].mu.Lock()
	reused := nodes[0].reused
	nodes[0].mu.Unlock()
	if reused > 0 {
		t.Fatalf("%d refresh tokens were used twice", reused)
	}
	nodes[0].rightful()
}

// A sign-in that begins at one node goes on at another one and ends at a third one: the principal
// is signed in at all of them, and no other is. A sign-out holds at all.
func TestNodesShareSignIns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t)
		ann, bob := person("ann"), person("bob")
		for _, n := range nodes { // they know that there are no tokens
			if n.calls(t, ann) || n.calls(t, bob) {
				t.Fatal("signed in before the sign-in")
			}
		}
		signInAt(t, ann, nodes[0], nodes[1], nodes[2])
		synctest.Wait()
		for i, n := range nodes {
			if !n.calls(t, ann) || n.calls(t, bob) {
				t.Errorf("node %d: ann %v, bob %v", i, n.calls(t, ann), n.calls(t, bob))
			}
		}
		signInAt(t, bob, nodes[1], nodes[1], nodes[0])
		if err := nodes[1].ups["a"].SignOut(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i, n := range nodes {
			if n.ready("a", ann) || !n.calls(t, bob) {
				t.Errorf("node %d after ann has signed out", i)
			}
			if all, damaged, err := n.store.List(); err != nil || damaged > 0 || len(all) != 1 ||
				all[0].Principal != "bob" {
				t.Errorf("node %d: %v, %d, %v", i, all, damaged, err)
			}
		}
		if nodes[0].revoked != 2 {
			t.Errorf("%d tokens were revoked", nodes[0].revoked)
		}
		signInAt(t, ann, nodes[2], nodes[2], nodes[2])
		pass(lookEvery)
		for _, n := range nodes {
			if !n.calls(t, ann) {
				t.Error("ann cannot sign in again")
			}
		}
		never(t, nodes)
	})
}

// What is stored says nothing of who has signed in where, and opens with the key only.
func TestSharedRecordsAreSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ann, bob = "ann-in-clear-text", "bob-in-clear-text"
		nodes := newNodes(t)
		signInAt(t, person(ann), nodes[0], nodes[0], nodes[0])
		link, err := nodes[0].ups["a"].Link(t.Context(), person(bob), nil)
		if err != nil {
			t.Fatal(err)
		}
		records := 0
		for r := range nodes[0].shared.Adopt(t.Context()) {
			records++
			text := r.Owner + r.ID + string(r.Value)
			for _, secret := range append(nodes[0].secrets, ann, bob, "a.example",
				link[strings.Index(link, "=")+1:]) {
				if strings.Contains(text, secret) {
					t.Errorf("%s %s has %s", r.Owner, r.ID, secret)
				}
			}
		}
		if records < 4 {
			t.Errorf("%d records", records)
		}
		other := nodes[1]
		other.restart(t, newKey()) // it finds nothing, and destroys nothing
		if other.ready("a", person(ann)) || other.browser(ann).open(link) != "" {
			t.Error("a node with another key opens what is stored")
		}
		if _, damaged, err := other.store.List(); err != nil || damaged == 0 {
			t.Errorf("%d, %v", damaged, err)
		}
		if !nodes[2].calls(t, person(ann)) {
			t.Error("the sign-in is lost")
		}
	})
}

// A callback that comes to all nodes at once is taken by one.
func TestCallbackCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t)
		link, err := nodes[0].ups["a"].Link(t.Context(), person("ann"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := nodes[1].ups["a"].Link(t.Context(), person("ann"), nil); again != link ||
			err != nil {
			t.Errorf("another link at another node: %v", err)
		}
		b := nodes[0].browser("ann")
		back := b.consent(b.open(link))
		if b.at(nodes[1]).open(link) != "" {
			t.Error("a link counts twice")
		}
		var taken atomic.Int32
		var wg sync.WaitGroup
		for _, n := range nodes {
			wg.Go(func() {
				at := n.browser("ann")
				at.cookies = b.cookies
				if at.back(back) {
					taken.Add(1)
				}
			})
		}
		wg.Wait()
		if taken.Load() != 1 || !nodes[0].calls(t, person("ann")) {
			t.Errorf("taken by %d nodes", taken.Load())
		}
	})
}

// Calls at all nodes, when the token has expired, lead to one refresh. All get the new token.
func TestNodesRefreshOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t)
		people := []Who{person("ann"), person("bob")}
		for i, who := range people {
			signInAt(t, who, nodes[i], nodes[i], nodes[i])
		}
		nodes[0].during = func() error {
			pass(time.Second)
			return nil
		}
		for round := range 4 {
			pass(time.Hour + time.Second)
			var wg sync.WaitGroup
			for _, n := range nodes {
				for range 4 {
					for _, who := range people {
						wg.Go(func() {
							if !n.calls(t, who) {
								t.Errorf("round %d: a call of %s has failed", round, who.Name)
							}
						})
					}
				}
			}
			wg.Wait()
			if nodes[0].renewed != 2*(round+1) {
				t.Fatalf("round %d: %d refreshes, not one for each principal", round, nodes[0].renewed)
			}
		}
		never(t, nodes)
	})
}

// A node that ends before it has sent the refresh token is followed by the next one, in the same
// call. When it has sent it, the next one sends it only where refresh tokens are kept, and the
// principal signs in again otherwise.
func TestNodeDiesInTheRefresh(t *testing.T) {
	for name, at := range map[string]struct {
		sent, keeps bool
		again       bool // the principal signs in again
	}{
		"not sent": {}, "sent": {sent: true, again: true},
		"sent to a server that keeps them": {sent: true, keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(t)
				first, ann := nodes[0], person("ann")
				nodes[0].keeps = at.keeps
				signInAt(t, ann, first, first, first)
				pass(time.Hour + time.Second)
				if !nodes[1].calls(t, ann) { // it is known now whether refresh tokens are kept
					t.Fatal("not renewed")
				}
				pass(time.Hour + time.Second)
				die := func() error {
					first.shared.cut.Store(true)
					return errors.New("the process ends")
				}
				if at.sent {
					nodes[0].during = die
					if first.calls(t, ann) {
						t.Error("a call without an answer has passed")
					}
				} else {
					tokens := first.store.Tokens(first.ups["a"].ID(ann), "ann", false).(claiming)
					if _, err := tokens.Lock(t.Context(), "tokens https://a.example/mcp"); err != nil {
						t.Fatal(err)
					}
					_ = die()
				}
				nodes[0].during = nil
				renewed := nodes[0].renewed
				began := time.Now()
				got := nodes[1].calls(t, ann)
				if took := time.Since(began); got == at.sent || took > claimWait+time.Second {
					t.Errorf("the next call: %v after %s", got, took)
				}
				pass(claimTime + clockSkew)
				for i, n := range nodes[1:] {
					if got := n.ready("a", ann); got == at.again {
						t.Errorf("node %d: signed in: %v", i+1, got)
					}
				}
				if want := map[bool]int{true: 0, false: 1}[at.again]; nodes[0].renewed-renewed != want {
					t.Errorf("%d refreshes, not %d", nodes[0].renewed-renewed, want)
				}
				signInAt(t, ann, nodes[1], nodes[2], nodes[1])
				if !nodes[2].calls(t, ann) {
					t.Error("ann cannot sign in again")
				}
				never(t, nodes)
			})
		})
	}
}

// A node that was stopped in the refresh, and goes on later than the others have waited, stores
// what it has got, unless the principal has signed in again.
func TestStoppedNodeStoresLate(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(t)
			ann := person("ann")
			signInAt(t, ann, nodes[0], nodes[0], nodes[0])
			pass(time.Hour + time.Second)
			stopped := make(chan struct{})
			nodes[0].during = func() error {
				<-stopped
				return nil
			}
			var wg sync.WaitGroup
			wg.Go(func() { nodes[0].calls(t, ann) })
			synctest.Wait()
			nodes[0].mu.Lock()
			nodes[0].during = nil
			nodes[0].mu.Unlock()
			pass(claimTime + clockSkew + time.Second)
			if nodes[1].ready("a", ann) {
				t.Error("the token was renewed")
			}
			if again {
				signInAt(t, ann, nodes[1], nodes[1], nodes[1])
			}
			kept := nodes[0].n
			close(stopped)
			wg.Wait()
			pass(lookEvery)
			for i, n := range nodes {
				if !n.calls(t, ann) {
					t.Errorf("again %v, node %d: not signed in", again, i)
				}
			}
			if nodes[0].n != kept {
				t.Errorf("again %v: %d new secrets", again, nodes[0].n-kept)
			}
			never(t, nodes)
		})
	}
}

// Without the store, tokens that are in memory serve until their end, and nothing is renewed.
// Pages say so with 503. When the store answers again, all goes on.
func TestNodesWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t)
		ann, n := person("ann"), nodes[1]
		signInAt(t, ann, nodes[0], nodes[0], nodes[0])
		link, err := n.ups["a"].Link(t.Context(), person("bob"), nil)
		if err != nil {
			t.Fatal(err)
		}
		b := n.browser("bob")
		if !n.calls(t, ann) {
			t.Fatal("not signed in")
		}
		back := b.consent(b.open(link))
		n.shared.cut.Store(true)
		if !n.calls(t, ann) {
			t.Error("a token in memory does not serve")
		}
		for _, page := range []string{link, back} {
			if rec := b.send("GET", page, nil); rec.Code != http.StatusServiceUnavailable ||
				!strings.Contains(rec.Body.String(), "does not answer") {
				t.Errorf("%s: %d %s", page, rec.Code, rec.Body)
			}
		}
		n.shared.cut.Store(false)
		if !b.back(back) {
			t.Error("the callback was lost with the store")
		}
		n.shared.cut.Store(true)
		pass(time.Hour)
		if _, err := n.ups["a"].Ready(t.Context(), ann); !errors.Is(err, ErrStore) ||
			!errors.Is(err, ErrCaller) {
			t.Errorf("an expired token: %v", err)
		}
		if _, err := n.ups["a"].Link(t.Context(), ann, nil); !errors.Is(err, ErrStore) {
			t.Errorf("a link: %v", err)
		}
		if nodes[0].renewed != 0 {
			t.Errorf("%d refreshes without the store", nodes[0].renewed)
		}
		n.shared.cut.Store(false)
		if !n.calls(t, ann) || nodes[0].renewed != 1 {
			t.Errorf("with the store again: %d refreshes", nodes[0].renewed)
		}
		never(t, nodes)
	})
}

// While the store does not answer, a valid token in memory is enough.
func TestTokensInMemoryServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t)
		ann := person("ann")
		signInAt(t, ann, nodes[0], nodes[0], nodes[0])
		if !nodes[1].calls(t, ann) {
			t.Fatal("not signed in")
		}
		nodes[1].shared.cut.Store(true)
		for range 59 {
			pass(time.Minute)
			if !nodes[1].calls(t, ann) {
				t.Fatal("a valid token does not serve")
			}
		}
		pass(50 * time.Second) // it would be renewed now, and has not come to its end
		if !nodes[1].calls(t, ann) {
			t.Error("a token with 10 s left does not serve")
		}
	})
}

// When the store is lost while the refresh token is under way, the node has the new one in memory,
// and stores it when it can. A request that has not reached the authorization server marks nothing.
func TestStoreIsLostInTheRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t)
		ann := person("ann")
		signInAt(t, ann, nodes[0], nodes[0], nodes[0])
		pass(time.Hour + time.Second)
		nodes[0].during = func() error {
			nodes[0].shared.cut.Store(true)
			return nil
		}
		if !nodes[0].calls(t, ann) {
			t.Error("the new token does not serve its node")
		}
		pass(10 * time.Minute)
		if nodes[1].ready("a", ann) || !nodes[0].calls(t, ann) {
			t.Error("without the store")
		}
		nodes[0].during = nil
		nodes[0].shared.cut.Store(false)
		pass(savePause + lookEvery)
		for i, n := range nodes {
			if !n.calls(t, ann) {
				t.Errorf("node %d has not got the token", i)
			}
		}
		if nodes[0].renewed != 1 {
			t.Errorf("%d refreshes", nodes[0].renewed)
		}
		never(t, nodes)
	})
}

// An error of the authorization server is an answer: the refresh token counts, and is sent again.
func TestRefusalKeepsTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t)
		ann := person("ann")
		signInAt(t, ann, nodes[0], nodes[0], nodes[0])
		pass(time.Hour + time.Second)
		nodes[0].mu.Lock()
		nodes[0].down = true
		nodes[0].mu.Unlock()
		if nodes[0].calls(t, ann) {
			t.Error("renewed while the authorization server is down")
		}
		nodes[0].mu.Lock()
		nodes[0].down = false
		nodes[0].mu.Unlock()
		if !nodes[1].calls(t, ann) || nodes[0].renewed != 1 {
			t.Errorf("not renewed later, %d refreshes", nodes[0].renewed)
		}
		never(t, nodes)
	})
}

// A call that waits at one node goes on when the sign-in ends at another one, also when the message
// is lost; and the client that has the link is notified.
func TestWaitAtAnotherNode(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			told := 0
			if _, err := nodes[0].ups["a"].Link(ctx, person("ann"), func(context.Context, string) {
				told++
			}); err != nil {
				t.Fatal(err)
			}
			ann, bob := errors.New("waits"), errors.New("waits")
			var wg sync.WaitGroup
			var took time.Duration
			began := time.Now()
			wg.Go(func() {
				ann = nodes[0].ups["a"].Wait(ctx, person("ann"))
				took = time.Since(began)
			})
			wg.Go(func() { bob = nodes[0].ups["a"].Wait(ctx, person("bob")) })
			synctest.Wait()
			nodes[2].shared.deaf.Store(deaf)
			signInAt(t, person("ann"), nodes[1], nodes[1], nodes[2])
			synctest.Wait()
			if !deaf && (ann != nil || took > 0 || told != 1) {
				t.Errorf("it goes on after %s: %v; told %d times", took, ann, told)
			}
			wg.Wait()
			if ann != nil || took > waitEvery || !errors.Is(bob, context.DeadlineExceeded) {
				t.Errorf("deaf %v: ann %v after %s, bob %v", deaf, ann, took, bob)
			}
		})
	}
}
