package mcphttp

import (
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

// table is all sessions. When it is full, the owner that has most of them makes room. One timer
// watches those that are not in use.
type table struct {
	keep time.Duration // how long an idle session lasts; negative: for ever

	mu       sync.Mutex
	sessions *share.Table[string, *session] // by id
	timer    *time.Timer
	armed    bool
	closed   bool
}

func (t *table) init(limit int, keep time.Duration) {
	t.keep = keep
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
	if t.closed {
		return nil, false
	}
	// Sessions of one address are one owner here, or opening more would win room.
	gone, ok := t.sessions.Put(s.owner.Group(), s.id, s, 1)
	for _, e := range gone {
		evicted = append(evicted, e.Value)
	}
	if ok {
		t.sessions.Hold(s.id)
	}
	return evicted, ok
}

// get returns a session for a user that puts it back: nil when there is none, or when it belongs to
// another principal.
func (t *table) get(id string, principal owner.Key) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, _, _ := t.sessions.Get(id)
	if s == nil || s.principal() != principal {
		return nil
	}
	t.sessions.Hold(id)
	return s
}

// hold begins a use.
func (t *table) hold(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions.Hold(s.id)
}

// put ends a use.
func (t *table) put(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions.Release(s.id)
	s.idleSince = time.Now()
	if t.keep >= 0 && !t.armed {
		t.arm(t.keep)
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
	_, ok := t.sessions.Remove(s.id)
	return ok
}

// sweep ends the sessions that were idle long enough.
func (t *table) sweep() {
	var ended []*session
	t.mu.Lock()
	now := time.Now()
	t.armed = false
	for {
		id, s, ok := t.sessions.Oldest()
		if !ok || t.closed {
			break
		}
		if left := t.keep - now.Sub(s.idleSince); left > 0 {
			t.arm(left)
			break
		}
		t.sessions.Remove(id)
		ended = append(ended, s)
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
		if _, ok := t.sessions.Remove(s.id); ok {
			left = append(left, s)
		}
	}
	return left
}
