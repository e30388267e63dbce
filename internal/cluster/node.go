// Package cluster answers one question: which nodes share state, and how are they?
//
// A [Config] says over which engine. [Join] makes a [Node] of the store that is open there: it
// tells the other nodes that this one is present, knows which others are, looks whether the store
// decides (has a quorum), and has the secret that all nodes share. Package engine opens the store;
// only what names that links an engine.
package cluster

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/store"
)

const (
	pulse     = 2 * time.Second
	absent    = 8 * time.Second // after the last sign of life
	probeTime = 2 * time.Second // in which the store answers, if it decides
	maxNodes  = 1000
	maxText   = 1024 // of what a node says
	// replayTime is how old what a node says may be, with clocks that differ.
	replayTime = 15 * time.Minute
	topic      = "nodes"
	owner      = "cluster"
	secretID   = "secret"
	secretFor  = 100 * 365 * 24 * time.Hour
	joinTime   = 30 * time.Second // in which the store decides, while its engine has no leader
	joinPause  = 200 * time.Millisecond
)

// IDSize is the size of the ID of a node.
const IDSize = 26

// Options adjust a Node. The zero value, and nil, mean the defaults.
type Options struct {
	// Name is what the node calls itself, and Version that of the program.
	Name, Version string
	// Logger has what happens to other nodes. Default: nothing is logged.
	Logger *slog.Logger
	// Load returns what the node has now, for the others to show. Nil: nothing.
	Load func() Load
}

// A Load is what a node has.
type Load struct {
	Sessions  int `json:"sessions"`  // of MCP, in memory
	Suspended int `json:"suspended"` // calls that wait for an answer of their client
	Children  int `json:"children"`  // processes
}

// A Member is a node as others see it.
type Member struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	Leaves  bool      `json:"leaves,omitempty"` // it has ended
	Drains  bool      `json:"drains,omitempty"` // it takes nothing new
	Calls   string    `json:"calls,omitempty"`  // where it takes requests of other nodes; "": nowhere
	Seq     int64     `json:"seq"`              // greater than in all that it has said before: a time
	Load    Load      `json:"load,omitzero"`

	seen    time.Time
	suspect time.Time       // until then it is taken to be out of reach
	life    context.Context //nolint:containedctx // it ends when the node is not present any more
	end     context.CancelFunc
}

// A Node is this process among those that share a store.
type Node struct {
	shared   store.Store
	logger   *slog.Logger
	secret   []byte
	presence []byte      // the key for what nodes say of themselves
	load     func() Load // may be nil
	stop     func()      // of the subscription
	end      context.CancelFunc
	done     sync.WaitGroup
	links    links

	mu     sync.Mutex
	self   Member            // its ID does not change
	others map[string]Member // by id
	heard  map[string]int64  // the last Seq of a node, by id, also of those that have ended
	most   int               // nodes that were present at once
	lost   time.Time         // since when the store does not decide; zero: it does
	reason string
}

// Join makes this process a node of those that share a store, until Close. The store is open, and
// stays so. While it does not decide (another node has just ended, and was the leader), Join asks
// again for 30 s.
func Join(ctx context.Context, shared store.Store, o *Options) (*Node, error) {
	if o == nil {
		o = &Options{}
	}
	n := &Node{
		shared: shared, logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		self: Member{
			ID: rand.Text(), Name: o.Name, Version: o.Version,
			Since: time.Now().UTC().Truncate(time.Second),
		},
		others: map[string]Member{}, heard: map[string]int64{}, load: o.Load,
	}
	var err error
	if n.secret, err = n.awaitSecret(ctx); err != nil {
		return nil, fmt.Errorf("cluster: the secret of the nodes: %w", err)
	}
	n.presence = n.Secret("presence")
	if n.stop, err = shared.Subscribe(ctx, topic, n.receive); err != nil {
		return nil, fmt.Errorf("cluster: presence of nodes: %w", err)
	}
	ctx, n.end = context.WithCancel(context.WithoutCancel(ctx))
	n.done.Go(func() { n.run(ctx) })
	return n, nil
}

// awaitSecret asks for the secret until the store answers. A write with an unknown outcome may be
// repeated: it stores a secret only where there is none.
func (n *Node) awaitSecret(ctx context.Context) ([]byte, error) {
	end := time.Now().Add(joinTime)
	for try := 0; ; try++ {
		secret, err := secretOf(ctx, n.shared)
		later := errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
		if !later || ctx.Err() != nil || time.Now().After(end) {
			return secret, err
		}
		if try == 0 {
			n.logger.Warn("the shared store does not decide yet: asking again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(joinPause):
		}
	}
}

// secretOf returns the secret that the first node has stored.
func secretOf(ctx context.Context, shared store.Records) ([]byte, error) {
	for {
		r, err := shared.Get(ctx, owner, secretID)
		if err == nil {
			return r.Value, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		key := make([]byte, keySize)
		_, _ = rand.Read(key) // it does not fail
		_, err = shared.Put(ctx, &store.Record{
			Owner: owner, ID: secretID, Value: key, Expires: time.Now().Add(secretFor),
		})
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return nil, err
		}
	}
}

// Secret returns a key for a purpose, the same at all nodes.
func (n *Node) Secret(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, n.secret, nil, "farcall cluster: "+purpose, keySize)
	if err != nil {
		panic(err) //nolint:forbidigo // the length is right
	}
	return key
}

func (n *Node) run(ctx context.Context) {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		n.publish(ctx)
		n.probe(ctx)
		n.forget(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// publish tells the other nodes how this one is.
func (n *Node) publish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var load Load
	if n.load != nil {
		load = n.load()
	}
	n.mu.Lock()
	n.self.Load, n.self.Seq = load, max(n.self.Seq+1, time.Now().UnixNano())
	data, err := jsonv2.Append(nil, &n.self)
	n.mu.Unlock()
	if err == nil {
		err = n.shared.Publish(ctx, topic, n.sign(data))
	}
	if err != nil {
		n.logger.Debug("the other nodes do not hear of this one", "error", err)
	}
}

// probe asks the store for something that only a quorum answers.
func (n *Node) probe(ctx context.Context) {
	try, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	_, err := n.shared.Since(try)
	if ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	was := n.lost
	switch {
	case err == nil:
		n.lost, n.reason = time.Time{}, ""
	case n.lost.IsZero():
		n.lost, n.reason = time.Now(), err.Error()
	}
	is := n.lost
	n.mu.Unlock()
	switch {
	case was.IsZero() && !is.IsZero():
		n.logger.Warn("the shared store does not decide: has it a quorum?", "error", err)
	case !was.IsZero() && is.IsZero():
		n.logger.Info("the shared store decides again", "after", time.Since(was).Round(time.Second))
	}
}

// receive notes what another node says. Nodes trust each other, but not with memory. What has no
// code of a node, and what a node has said before, changes nothing.
func (n *Node) receive(m store.Message) {
	var from Member
	said, ok := n.signed(m.Data)
	if m.Gap || !ok || len(said) > maxText || jsonv2.Unmarshal(said, &from) != nil ||
		from.ID == n.self.ID || len(from.ID) != IDSize {
		return
	}
	from.seen = time.Now()
	n.mu.Lock()
	before, known := n.others[from.ID]
	from.suspect, from.life, from.end = before.suspect, before.life, before.end
	if !known {
		//nolint:forbidigo // end ends it
		from.life, from.end = context.WithCancel(context.Background())
	}
	switch {
	case !n.newerLocked(&from):
		n.mu.Unlock()
		return
	case from.Leaves:
		from.end()
		delete(n.others, from.ID)
	case known || len(n.others) < maxNodes:
		n.others[from.ID] = from
		n.most = max(n.most, len(n.others)+1)
	}
	n.mu.Unlock()
	switch {
	case from.Leaves && known:
		n.logger.Info("a node has left", "node", from.Name)
	case !from.Leaves && !known:
		n.logger.Info("a node is present", "node", from.Name, "version", from.Version)
	}
}

// forget takes out the nodes that are silent, and do not answer either.
func (n *Node) forget(ctx context.Context) {
	var silent sync.WaitGroup
	n.mu.Lock()
	for id, m := range n.others {
		if time.Since(m.seen) > absent {
			silent.Go(func() { n.silent(ctx, id, m) })
		}
	}
	n.mu.Unlock()
	silent.Wait()
}

// silent takes out a node that does not answer. One that does may have no store to be heard by.
func (n *Node) silent(ctx context.Context, id string, m Member) {
	if n.answers(ctx, m.Calls) {
		n.mark(id, func(m *Member) { m.seen = time.Now() })
		return
	}
	n.mu.Lock()
	absent := n.others[id].seen.Equal(m.seen)
	if absent {
		m.end()
		delete(n.others, id)
	}
	n.mu.Unlock()
	if !absent {
		return // it has been heard meanwhile
	}
	n.logger.Warn("a node is absent", "node", m.Name, "for", time.Since(m.seen).Round(time.Second))
}

// A Status says how the nodes are.
type Status struct {
	Node    string   // this one
	Members []Member // all that are present, this one included, by name
	// Lost is since when the store does not decide, and Reason why; zero: it does.
	Lost   time.Time
	Reason string
}

// Status returns how the nodes are, as this one knows it.
func (n *Node) Status() *Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &Status{Node: n.self.Name, Members: []Member{n.self}, Lost: n.lost, Reason: n.reason}
	for _, m := range n.others {
		s.Members = append(s.Members, m)
	}
	slices.SortFunc(s.Members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return s
}

// Present returns how many nodes are present, this one included.
func (n *Node) Present() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.others) + 1
}

// Most returns how many nodes were present at once, at most: how many there are when none can be
// heard.
func (n *Node) Most() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.most, 1)
}

// Close tells the others that this node leaves. It does not close the store.
func (n *Node) Close() {
	n.end()
	n.done.Wait()
	n.closeLinks()
	n.mu.Lock()
	n.self.Leaves = true
	n.mu.Unlock()
	n.publish(context.Background()) //nolint:forbidigo // it ends within probeTime
	n.stop()
}
