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
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	// Config is the first one that Node.Configure gets.
	Config []byte
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
	Config  string    `json:"config,omitempty"` // the digest of its configuration

	seen    time.Time
	suspect time.Time       // until then it is taken to be out of reach
	life    context.Context //nolint:containedctx // it ends when the node cannot be reached any more
	end     context.CancelFunc
	carried *atomic.Int64 // requests that are forwarded to it now
	mute    time.Time     // since when it does not answer this node; zero: it does
}

// begin makes the life of a node that can be reached.
func (m *Member) begin() {
	m.life, m.end = context.WithCancel(context.Background()) //nolint:forbidigo // end ends it
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
	greeted  chan struct{} // has something when a node is new, which has not heard of this one
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
		greeted: make(chan struct{}, 1),
	}
	var err error
	if n.secret, err = n.awaitSecret(ctx); err != nil {
		return nil, fmt.Errorf("cluster: the secret of the nodes: %w", err)
	}
	n.presence, n.self.Config = n.Secret("presence"), n.digest(o.Config)
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

// digest is a code of a configuration, which says nothing of it to others than nodes. "" is that of
// none.
func (n *Node) digest(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, n.Secret("configuration"))
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Configure tells the other nodes, and the log, whether this one has the same configuration. same
// is equal for equal ones; nil is compared with no other.
func (n *Node) Configure(same []byte) {
	n.mu.Lock()
	n.self.Config = n.digest(same)
	n.mu.Unlock()
	if names := n.Status().Differ; len(names) > 0 {
		n.logger.Warn("other nodes have another configuration", "nodes", names)
	}
	n.publish(context.Background()) //nolint:forbidigo // it ends within probeTime
}

// differsLocked reports whether a node has another configuration than this one.
func (n *Node) differsLocked(m *Member) bool {
	return m.Config != "" && n.self.Config != "" && m.Config != n.self.Config
}

func (n *Node) run(ctx context.Context) {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		n.publish(ctx)
		n.probe(ctx)
		n.forget(ctx)
		for next := false; !next; {
			select {
			case <-ctx.Done():
				return
			case <-n.greeted:
				n.publish(ctx)
			case <-tick.C:
				next = true
			}
		}
	}
}

// Meet waits until this node knows the others: so many nodes with this one, and no more than it
// takes until each has been heard. 0: their number is not known. A node that answers clients before
// would not find the places of what others have begun.
func (n *Node) Meet(nodes int) {
	const step = pulse / 20
	for waited, quiet := time.Duration(0), 0; waited < pulse+5*step; waited += step {
		before := n.Present()
		if before >= nodes && nodes > 0 || quiet == 5 {
			return
		}
		<-time.After(step)
		if quiet++; nodes > 0 || n.Present() != before {
			quiet = 0
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
	n.mu.Lock()
	before, known := n.others[from.ID]
	if !n.newerLocked(&from) {
		n.mu.Unlock()
		return
	}
	n.keepLocked(&from, &before)
	differs := n.differsLocked(&from) && from.Config != before.Config && !from.Leaves
	n.mu.Unlock()
	if differs {
		n.logger.Warn("a node has another configuration", "node", from.Name)
	}
	switch {
	case from.Leaves && known:
		n.logger.Info("a node has left", "node", from.Name)
	case !from.Leaves && !known:
		select {
		case n.greeted <- struct{}{}:
		default:
		}
		n.logger.Info("a node is present", "node", from.Name, "version", from.Version)
	}
}

// keepLocked keeps what a node says in place of what was known of it: before, zero when it is new.
func (n *Node) keepLocked(from, before *Member) {
	from.seen, from.suspect, from.mute = time.Now(), before.suspect, before.mute
	from.life, from.end, from.carried = before.life, before.end, before.carried
	known := before.ID != ""
	if !known {
		from.carried = new(atomic.Int64)
		from.begin()
	}
	switch {
	case from.Leaves:
		from.end()
		delete(n.others, from.ID)
	case known || len(n.others) < maxNodes:
		n.others[from.ID] = *from
		n.most = max(n.most, len(n.others)+1)
	}
}

// forget takes out the nodes that are silent, and do not answer either. It ends what waits for one
// that is heard, and does not answer this node.
func (n *Node) forget(ctx context.Context) {
	var asked sync.WaitGroup
	n.mu.Lock()
	for id, m := range n.others {
		switch {
		case time.Since(m.seen) > absent:
			asked.Go(func() { n.silent(ctx, id, m) })
		case m.carried.Load() > 0:
			asked.Go(func() { n.waited(ctx, id, m) })
		}
	}
	n.mu.Unlock()
	asked.Wait()
}

// waited asks a node for which requests of this one wait. The way to it may be cut, and no
// connection ends then that has sent something which the other end does not acknowledge.
func (n *Node) waited(ctx context.Context, id string, m Member) {
	answers := n.answers(ctx, m.Calls)
	cut := false
	n.mark(id, func(m *Member) {
		switch {
		case answers || ctx.Err() != nil:
			m.mute = time.Time{}
		case m.mute.IsZero():
			m.mute = time.Now()
		case time.Since(m.mute) > absent-probeTime:
			cut = true
			m.end()
			m.begin()
			m.mute, m.suspect = time.Time{}, time.Now().Add(pulse)
		}
	})
	if cut {
		n.links.client.CloseIdleConnections()
		n.logger.Warn("a node that the store hears does not answer: its calls end", "node", m.Name)
	}
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
	Differ  []string // the names of those with another configuration than this one
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
	for _, m := range s.Members {
		if n.differsLocked(&m) {
			s.Differ = append(s.Differ, m.Name)
		}
	}
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
