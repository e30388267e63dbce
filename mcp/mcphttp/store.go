package mcphttp

import (
	"fmt"
	"slices"
	"sync"
)

// An EventStore keeps what was sent on the event streams of sessions, so that a
// client whose connection broke can have the rest. It must be safe for
// concurrent use.
type EventStore interface {
	// Append keeps a copy of event n of a stream. The first event is 1. It fails
	// when the event cannot be kept, which matters only to a client that is not
	// connected.
	Append(session string, stream, n uint64, data []byte) error
	// Replay calls yield with the events of a stream that come after event n and
	// are kept, in their order, until yield fails. yield does not keep data.
	Replay(session string, stream, n uint64, yield func(n uint64, data []byte) error) error
	// Drop forgets a session.
	Drop(session string)
}

const (
	// storeFactor is how many sessions can use up their room at once.
	storeFactor = 64
	// eventCost is what an event costs besides its data.
	eventCost = 160
)

// memoryStore is an EventStore. What is oldest goes first: of a session when
// that has no more room, of all when there is none at all.
type memoryStore struct {
	perSession, total int

	mu       sync.Mutex
	sessions map[string]*keptSession
	oldest   keptEvent // ends of the list of all events: next is the oldest
	bytes    int
}

type keptSession struct {
	id          string
	first, last *keptEvent
	bytes       int
}

type keptEvent struct {
	session    *keptSession
	stream, n  uint64
	data       []byte
	prev, next *keptEvent // of all
	later      *keptEvent // of the session
}

func newMemoryStore(perSession int) *memoryStore {
	m := &memoryStore{perSession: perSession, total: perSession * storeFactor, sessions: map[string]*keptSession{}}
	m.oldest.prev, m.oldest.next = &m.oldest, &m.oldest
	return m
}

func (m *memoryStore) Append(session string, stream, n uint64, data []byte) error {
	cost := len(data) + eventCost
	if cost > m.perSession {
		return fmt.Errorf("mcphttp: a message of %d bytes is too large to be kept; raise Options.EventBytes", len(data))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil {
		s = &keptSession{id: session}
		m.sessions[session] = s
	}
	e := &keptEvent{session: s, stream: stream, n: n, data: slices.Clone(data), prev: m.oldest.prev, next: &m.oldest}
	e.prev.next, e.next.prev = e, e
	if s.last == nil {
		s.first = e
	} else {
		s.last.later = e
	}
	s.last = e
	s.bytes += cost
	m.bytes += cost
	for s.bytes > m.perSession {
		m.evict(s.first)
	}
	for m.bytes > m.total {
		m.evict(m.oldest.next)
	}
	return nil
}

// evict forgets an event that is the oldest of its session.
func (m *memoryStore) evict(e *keptEvent) {
	e.prev.next, e.next.prev = e.next, e.prev
	s := e.session
	cost := len(e.data) + eventCost
	s.bytes -= cost
	m.bytes -= cost
	if s.first = e.later; s.first == nil {
		delete(m.sessions, s.id)
	}
}

func (m *memoryStore) Replay(session string, stream, n uint64, yield func(n uint64, data []byte) error) error {
	var events []*keptEvent // they never change
	m.mu.Lock()
	if s := m.sessions[session]; s != nil {
		for e := s.first; e != nil; e = e.later {
			if e.stream == stream && e.n > n {
				events = append(events, e)
			}
		}
	}
	m.mu.Unlock()
	for _, e := range events {
		if err := yield(e.n, e.data); err != nil {
			return err
		}
	}
	return nil
}

func (m *memoryStore) Drop(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil {
		for s.first != nil {
			m.evict(s.first)
		}
	}
}
