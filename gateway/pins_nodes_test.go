package gateway_test

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/store"
)

// A cutStore is a store that a node may be cut off from.
type cutStore struct {
	store.Store
	cut atomic.Bool
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
	return s.Store.Get(ctx, owner, id)
}

// A pinNode is a node of a cluster with pins, and its own server at the name a.
type pinNode struct {
	*lab
	config *gateway.Config
	server *mcp.Server
	store  *cutStore
}

// pinNodes starts two nodes with a lock file of the same content.
func pinNodes(t *testing.T) (nodes [2]*pinNode) {
	t.Helper()
	kept := memory(t)
	for i := range nodes {
		n := &pinNode{
			server: mcp.NewServer("a", "1", &mcp.ServerOptions{Eras: "legacy"}),
			store:  &cutStore{Store: kept},
		}
		describe(n.server, "as it was")
		file := filepath.Join(t.TempDir(), "farcall.lock")
		n.config = &gateway.Config{Upstreams: []*gateway.Upstream{over(t, "a", n.server)}}
		if _, _, err := newLabOf(t, nil, n.config).Pin(t.Context(), file, true); err != nil {
			t.Fatal(err)
		}
		n.config.Lock = file
		n.lab = newLabOf(t, &gateway.Options{Shared: n.store}, n.config)
		nodes[i] = n
	}
	return nodes
}

// changes returns what differs from the pins, and the digest with which it is accepted.
func (n *pinNode) changes(t *testing.T) (list pinList) {
	t.Helper()
	n.read(t, "/upstreams/a/pins", &list)
	return list
}

func (n *pinNode) accept(t *testing.T, digest string) answer {
	t.Helper()
	return n.ask(t, http.MethodPost, "/upstreams/a/pins/accept", `{"digest":"`+digest+`"}`)
}

// serves waits until a call of the pinned tool passes, or does not.
func (n *pinNode) serves(t *testing.T, want bool) {
	t.Helper()
	c := n.client(t, mcp.ClientOptions{})
	until(t, "the tool is served or withheld", func() bool {
		_, err := say(t.Context(), c, "tell", "x")
		return (err == nil) == want
	})
}

// What is accepted at one node holds at the other, which goes by it at once.
func TestPinsOfNodes(t *testing.T) {
	t.Parallel()
	nodes := pinNodes(t)
	for _, n := range nodes {
		n.serves(t, true)
		describe(n.server, "changed")
		n.serves(t, false)
	}
	if got := nodes[0].accept(t, nodes[0].changes(t).Digest); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	for _, n := range nodes {
		n.serves(t, true)
		if left := n.changes(t).Changes; len(left) > 0 {
			t.Errorf("%+v", left)
		}
	}
	describe(nodes[1].server, "as it was") // the file has it, and it is not accepted any more
	nodes[1].serves(t, false)
	again := *nodes[1].config
	if err := nodes[1].Reload(&again); err != nil {
		t.Fatal(err)
	}
	nodes[1].serves(t, false)
}

// Of two nodes at which operators accept other definitions at once, one gets an error.
func TestPinsOfNodesAtOnce(t *testing.T) {
	nodes := pinNodes(t)
	describe(nodes[0].server, "one")
	describe(nodes[1].server, "two")
	var digests [2]string
	for i, n := range nodes {
		digests[i] = n.changes(t).Digest
	}
	answers := make(chan answer, len(nodes))
	for i, n := range nodes {
		go func() { answers <- n.accept(t, digests[i]) }()
	}
	first, second := <-answers, <-answers
	if first.status > second.status {
		first, second = second, first
	}
	if p := second.problem(t); first.status != http.StatusOK || p.Status != http.StatusConflict ||
		!strings.Contains(p.Detail, "look at the changes") {
		t.Fatalf("%+v, %+v", first, p)
	}
	until(t, "both go by what was accepted", func() bool {
		return len(nodes[0].changes(t).Changes)+len(nodes[1].changes(t).Changes) == 1
	})
	for _, n := range nodes {
		n.serves(t, len(n.changes(t).Changes) == 0)
	}
}

// What one node blocks, the others look at: they ask the server again, which has not told them.
func TestPinsBlockedAtANode(t *testing.T) {
	t.Parallel()
	nodes := pinNodes(t)
	changed := make(chan struct{}, 10)
	c := nodes[1].client(t, mcp.ClientOptions{Era: "legacy", OnListChanged: func(kind string) {
		if kind == "tools" {
			changed <- struct{}{}
		}
	}})
	if _, err := say(t.Context(), c, "tell", "x"); err != nil {
		t.Fatal(err)
	}
	describe(nodes[0].server, "changed")
	nodes[0].serves(t, false)
	received(t, "the other node looks again", changed)
}

// A node without the store goes by the pins that it knows, and accepts nothing.
func TestPinsWithoutQuorum(t *testing.T) {
	nodes := pinNodes(t)
	n := nodes[0]
	n.store.cut.Store(true)
	n.serves(t, true)
	again := *n.config
	if err := n.Reload(&again); err != nil {
		t.Fatal(err)
	}
	n.serves(t, true)
	describe(n.server, "changed")
	n.serves(t, false)
	digest := n.changes(t).Digest
	refused := n.accept(t, digest)
	if p := refused.problem(t); p.Status != http.StatusServiceUnavailable ||
		!strings.Contains(p.Detail, "does not answer") {
		t.Errorf("%+v", p)
	}
	n.serves(t, false)
	n.store.cut.Store(false)
	if got := n.accept(t, digest); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
	n.serves(t, true)
}
