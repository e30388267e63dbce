package mcphttp

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

// table is all sessions that are in memory. When it is full, the owner that has most of them makes
// room. One timer watches those that are not in use.
type table struct {
	keep   time.Duration // how long an idle session lasts; negative: for ever
	linger time.Duration // how long one does that has no state here; negative: as any other

	mu       sync.Mutex
	sessions *share.Table[string, *session] // by key
	timer    *time.Timer
	armed    bool
	closed   bool
}

func (t *table) init(limit int, keep, linger time.Duration) {
	t.keep, t.linger = keep, linger
	t.sessions = share.NewTable[string, *session](share.Bounds{Total: limit})
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions.Len()
}

// add takes in a session that is in use. Those that made room must be ended; ok is false when none
// could.
func (t *table) add(s *session) (evicted []*session, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addLocked(s)
}

func (t *table) addLocked(s *session) (evicted []*session, ok bool) {
	if t.closed {
		return nil, false
	}
	// Sessions of one address are one owner here, or opening more would win room.
	gone, ok := t.sessions.Put(s.owner.Group(), s.key, s, 1)
	for _, e := range gone {
		evicted = append(evicted, e.Value)
	}
	if ok {
		t.holdLocked(s)
	}
	return evicted, ok
}

// open returns the session that has the key of s, for a user that puts it back: s, where there was
// none.
func (t *table) open(s *session) (found *session, evicted []*session, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found, _, ok = t.sessions.Get(s.key); ok {
		if found.principal() != s.principal() {
			return nil, nil, false
		}
		t.holdLocked(found)
		return found, nil, true
	}
	evicted, ok = t.addLocked(s)
	return s, evicted, ok
}

// get returns a session for a user that puts it back: nil when there is none, or when it belongs to
// another principal.
func (t *table) get(key string, principal owner.Key) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, _, _ := t.sessions.Get(key)
	if s == nil || s.principal() != principal {
		return nil
	}
	t.holdLocked(s)
	return s
}

// has reports whether there is a session with that key.
func (t *table) has(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _, ok := t.sessions.Get(key)
	return ok
}

// is reports whether a session is in the table: another one may have its key by now.
func (t *table) is(s *session) bool {
	found, _, _ := t.sessions.Get(s.key)
	return found == s
}

// hold begins a use. It reports false when the session is not there any more.
func (t *table) hold(s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.is(s) && t.holdLocked(s)
}

func (t *table) holdLocked(s *session) bool {
	if s.movable != nil {
		s.movable.uses++
	}
	return t.sessions.Hold(s.key)
}

// put ends a use.
func (t *table) put(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.is(s) {
		t.sessions.Release(s.key)
	}
	s.idleSince = time.Now()
	check := t.keep
	if s.movable != nil {
		check = t.linger
		s.movable.checkAt = s.idleSince.Add(check)
	}
	if check >= 0 && !t.armed {
		t.arm(check)
	}
}

func (t *table) arm(d time.Duration) {
	t.armed = true
	if t.timer == nil {
		t.timer = time.AfterFunc(d, t.sweep)
		return
	}
	t.timer.Reset(d)
}

// remove takes a session out. It reports false when it is not there any more.
func (t *table) remove(s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.is(s) {
		return false
	}
	t.sessions.Remove(s.key)
	return true
}

// checkAt is when to look at a session that is idle.
func (t *table) checkAt(s *session) time.Time {
	if s.movable != nil {
		return s.movable.checkAt
	}
	return s.idleSince.Add(t.keep)
}

// sweep ends the sessions that were idle long enough.
func (t *table) sweep() {
	var ended []*session
	t.mu.Lock()
	now := time.Now()
	t.armed = false
	for {
		key, s, ok := t.sessions.Oldest()
		if !ok || t.closed {
			break
		}
		if left := t.checkAt(s).Sub(now); left > 0 {
			t.arm(left)
			break
		}
		if s.movable == nil || t.keep >= 0 && now.Sub(s.idleSince) >= t.keep {
			t.sessions.Remove(key)
			ended = append(ended, s)
			continue
		}
		uses := s.movable.uses
		t.mu.Unlock() // a session is locked before the table
		local := s.local()
		t.mu.Lock()
		switch {
		case s.movable.uses != uses || !t.is(s): // it is in use, or was
		case local: // it is looked at again later, behind all others
			s.movable.checkAt = now.Add(max(t.linger, time.Second))
			t.sessions.Hold(key)
			t.sessions.Release(key)
		default:
			t.sessions.Remove(key)
			ended = append(ended, s)
		}
	}
	t.mu.Unlock()
	for _, s := range ended {
		s.end()
	}
}

// all returns the sessions.
func (t *table) all() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*session, 0, t.sessions.Len())
	for _, s := range t.sessions.All() {
		all = append(all, s)
	}
	return all
}

// close takes all sessions out, which the caller ends, and lets no other in.
func (t *table) close() []*session {
	all := t.all()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.timer != nil {
		t.timer.Stop()
	}
	left := all[:0]
	for _, s := range all {
		if _, ok := t.sessions.Remove(s.key); ok {
			left = append(left, s)
		}
	}
	return left
}

// An EventStore keeps what was sent on the event streams of sessions, so that a
// client with a connection that broke can have the rest. It must be safe for
// concurrent use.
type EventStore interface {
	// Append keeps a copy of event n of a stream. The first event is 1. The owner of
	// the session is an opaque text, under which a store can bound what one caller
	// fills with all of its sessions. Append fails when the event cannot be kept,
	// which matters only to a client that is not connected.
	Append(owner, session string, stream, n uint64, data []byte) error
	// Replay calls yield with the events of a stream that come after event n and
	// are kept, in their order, until yield fails. yield does not keep data.
	Replay(session string, stream, n uint64, yield func(n uint64, data []byte) error) error
	// Drop forgets a session.
	Drop(session string)
}

const (
	// storeFactor is how many sessions can use up their room at once.
	storeFactor = 64
	// eventCost is what an event costs beside its data.
	eventCost = 400
)

// memoryStore is an EventStore. When a session has no more room, its oldest event goes; when there
// is none at all, the oldest of the session that has most, of the owner that has most.
type memoryStore struct {
	perSession int

	mu       sync.Mutex
	sessions map[string][]*keptEvent // the oldest first
	events   *share.Table[*keptEvent, *keptEvent]
}

type keptEvent struct {
	session   string
	stream, n uint64
	data      []byte
}

func newMemoryStore(perSession int) *memoryStore {
	return &memoryStore{
		perSession: perSession, sessions: map[string][]*keptEvent{},
		events: share.NewTable[*keptEvent, *keptEvent](
			share.Bounds{Total: perSession * storeFactor, Owner: perSession}),
	}
}

// Append implements EventStore.
func (m *memoryStore) Append(group, session string, stream, n uint64, data []byte) error {
	cost := len(data) + eventCost
	if cost > m.perSession {
		return fmt.Errorf(
			"mcphttp: a message of %d bytes is too large to be kept; raise Options.EventBytes", len(data))
	}
	e := &keptEvent{session: session, stream: stream, n: n, data: slices.Clone(data)}
	m.mu.Lock()
	defer m.mu.Unlock()
	gone, ok := m.events.Put(owner.Session(session, "").In(owner.Named(group)), e, e, cost)
	for _, old := range gone { // the oldest of its session
		events := m.sessions[old.Value.session]
		events[0] = nil
		if m.sessions[old.Value.session] = events[1:]; len(events) == 1 {
			delete(m.sessions, old.Value.session)
		}
	}
	if !ok {
		return fmt.Errorf(
			"mcphttp: there is no room for %d bytes to be replayed; raise Options.EventBytes", len(data))
	}
	m.sessions[session] = append(m.sessions[session], e)
	return nil
}

// Replay implements EventStore.
func (m *memoryStore) Replay(
	session string, stream, n uint64, yield func(n uint64, data []byte) error,
) error {
	m.mu.Lock()
	events := slices.Clone(m.sessions[session]) // which never change
	m.mu.Unlock()
	for _, e := range events {
		if e.stream != stream || e.n <= n {
			continue
		}
		if err := yield(e.n, e.data); err != nil {
			return err
		}
	}
	return nil
}

// Drop implements EventStore.
func (m *memoryStore) Drop(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.sessions[session] {
		m.events.Remove(e)
	}
	delete(m.sessions, session)
}
