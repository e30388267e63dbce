package mcphttp

import (
	"fmt"
	"slices"
	"sync"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

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
		events: share.NewTable[*keptEvent, *keptEvent](share.Bounds{Total: perSession * storeFactor, Owner: perSession}),
	}
}

// Append implements EventStore.
func (m *memoryStore) Append(group, session string, stream, n uint64, data []byte) error {
	cost := len(data) + eventCost
	if cost > m.perSession {
		return fmt.Errorf("mcphttp: a message of %d bytes is too large to be kept; raise Options.EventBytes", len(data))
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
		return fmt.Errorf("mcphttp: there is no room for %d bytes to be replayed; raise Options.EventBytes", len(data))
	}
	m.sessions[session] = append(m.sessions[session], e)
	return nil
}

// Replay implements EventStore.
func (m *memoryStore) Replay(session string, stream, n uint64, yield func(n uint64, data []byte) error) error {
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
