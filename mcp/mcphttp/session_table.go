package mcphttp

import (
	"sync"
	"time"
)

// table is all sessions. Those in which nothing happens are in a list, the
// longest idle first, and one timer watches it.
type table struct {
	max  int
	keep time.Duration // how long an idle session lasts; negative: for ever

	mu     sync.Mutex
	byID   map[string]*session
	idle   session // the list's ends: next is its first, prev its last
	timer  *time.Timer
	armed  bool
	closed bool
}

func (t *table) init(limit int, keep time.Duration) {
	t.max, t.keep = limit, keep
	t.byID = map[string]*session{}
	t.idle.next, t.idle.prev = &t.idle, &t.idle
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// add takes a session in. When there is no room, the one that was idle longest
// goes, and must be ended; ok is false when none is idle.
func (t *table) add(s *session) (evicted *session, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, false
	}
	if len(t.byID) >= t.max {
		if evicted = t.idle.next; evicted == &t.idle {
			return nil, false
		}
		t.removeLocked(evicted)
	}
	t.byID[s.id] = s
	return evicted, true
}

// get returns the session of a principal, for a user who puts it back. Nil when
// there is none.
func (t *table) get(id, principal string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s == nil || s.principal != principal {
		return nil
	}
	t.holdLocked(s)
	return s
}

// hold begins a use.
func (t *table) hold(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holdLocked(s)
}

func (t *table) holdLocked(s *session) {
	s.users++
	t.busy(s)
}

// put ends a use.
func (t *table) put(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.users--; s.users > 0 || t.byID[s.id] != s {
		return
	}
	s.idleSince = time.Now()
	s.prev, s.next = t.idle.prev, &t.idle
	s.prev.next, s.next.prev = s, s
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

// busy takes a session off the list.
func (t *table) busy(s *session) {
	if s.next != nil {
		s.prev.next, s.next.prev = s.next, s.prev
		s.prev, s.next = nil, nil
	}
}

// remove takes a session out. It reports false when somebody else did.
func (t *table) remove(s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.gone || t.byID[s.id] != s {
		return false
	}
	t.removeLocked(s)
	return true
}

func (t *table) removeLocked(s *session) {
	s.gone = true
	delete(t.byID, s.id)
	t.busy(s)
}

// sweep ends the sessions that were idle long enough.
func (t *table) sweep() {
	var ended []*session
	t.mu.Lock()
	now := time.Now()
	t.armed = false
	for s := t.idle.next; s != &t.idle; s = t.idle.next {
		if left := t.keep - now.Sub(s.idleSince); left > 0 {
			t.arm(left)
			break
		}
		t.removeLocked(s)
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
	all := make([]*session, 0, len(t.byID))
	for _, s := range t.byID {
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
		if !s.gone {
			t.removeLocked(s)
			left = append(left, s)
		}
	}
	return left
}
