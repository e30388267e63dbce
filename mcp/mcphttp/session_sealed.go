package mcphttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
)

// isSealed reports whether any replica can go on with the session.
func (s *session) isSealed() bool { return s.h.opts.Sessions == sessionsSealed && s.only == nil }

// named reports whether the session has the id that the client gets: that of a sealed one is made
// when initialize has been handled.
func (s *session) named() bool {
	if !s.isSealed() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.movable.from != nil
}

// Sealed returns a text that names the session at all replicas, and when it ends. "": it is one of
// this process.
func (s *session) Sealed() (id string, until time.Time) {
	if !s.isSealed() {
		return "", time.Time{}
	}
	issued := time.Now()
	s.mu.Lock()
	if s.movable.from != nil {
		issued = s.movable.from.issued
	}
	s.mu.Unlock()
	return s.key, s.h.sealed.until(issued)
}

// seal makes the id of a session that has begun.
func (s *session) seal() error {
	b, ok := s.backend.(Resumable)
	if !ok {
		return errors.New("mcphttp: the backend's session is not Resumable, as sealed sessions must be")
	}
	state, err := b.State()
	if err != nil {
		return err
	}
	v := &sealedSession{issued: time.Now(), key: s.key, address: s.movable.address, rev: b.Revision(), state: state}
	id, err := s.h.sealed.sealID(v, s.principal())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.movable.id = s.h.opts.Replica + id
	v.state = nil
	s.movable.from = v
	return nil
}

// take makes the backend's half of the session: a new one, or that of a session that goes on here.
func (s *session) take(ctx context.Context) Session {
	if s.movable == nil || s.movable.from == nil {
		return s.h.backend.Accept(ctx, s)
	}
	b, err := s.h.backend.(Resumer).Resume(ctx, s, s.movable.from.rev, s.movable.from.state) //nolint:errcheck // NewHandler has checked it
	s.movable.from.state = nil
	if err != nil {
		s.h.debug("a session cannot go on here", "error", err)
		return nil
	}
	return b
}

// lookup returns the session of a request, for a user who puts it back; nil: there is none. full:
// there is no room for it in memory. rev is the revision that the request says, or what is to be
// taken for it.
func (h *Handler) lookup(r *http.Request, rev *era.Revision) (s *session, full bool) {
	ids, principal := r.Header[headerSession], h.principal(r)
	if h.opts.Sessions == sessionsNone {
		s = h.newSession(r)
		s.owner = owner.Or(principal, owner.Address(r.RemoteAddr))
		s.movable.from = &sealedSession{rev: rev, key: s.key}
		return h.resume(r.Context(), s)
	}
	if len(ids) != 1 {
		return nil, false
	}
	if h.sealed == nil {
		return h.table.get(ids[0], principal), false
	}
	_, id := h.homeOf(ids[0])
	v, err := h.sealed.openID(id, principal)
	if err != nil {
		return nil, false
	}
	s = &session{h: h, key: v.key, movable: &movable{id: ids[0], from: v, address: v.address}}
	s.owner = owner.Or(principal, owner.Session(v.key, v.address))
	return h.resume(r.Context(), s)
}

// resume returns the session in the table that has the key of s, which is s where there was none.
func (h *Handler) resume(ctx context.Context, s *session) (*session, bool) {
	s, evicted, ok := h.table.open(s)
	for _, e := range evicted {
		e.end()
	}
	if !ok {
		return nil, true
	}
	if s.accept(ctx) != nil {
		h.table.put(s)
		if h.table.remove(s) {
			s.end()
		}
		return nil, false
	}
	return s, false
}

// local reports whether the session has something that no other process has, so that it is kept
// here while its client is away.
func (s *session) local() bool {
	s.mu.Lock()
	busy, backend := s.closed || s.calls != nil, s.backend
	if p := s.pushes; p != nil {
		busy = busy || p.pending != nil || p.unread
	}
	s.mu.Unlock()
	b, ok := backend.(Resumable)
	return busy || ok && b.Local()
}

// missed notes that the client has not got what was sent, and may come back for it.
func (s *session) missed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushingLocked().unread = true
}

// question returns the number of the call that an answer is for, and whether it is one of ours.
// Answers to questions of other replicas are noted in x.
func (s *session) question(x *exchange, m *jsonrpc.Message) (n uint64, here bool) {
	if !s.isSealed() {
		n, _ = m.ID.Uint()
		return n, true
	}
	raw := m.ID.Raw()
	if len(raw) < 2 || raw[0] != '"' {
		return 0, true
	}
	q, ok := s.h.sealed.openQuestion(s.key, string(scan.Unquote(raw)))
	if !ok || q.replica == s.h.sealed.replica {
		return q.n, true
	}
	x.elsewhere = append(x.elsewhere, elsewhere{q.address, m.Raw})
	return 0, false
}

// streamTime is how long a request that needs the client's own stream waits for it: clients open it
// when they begin, while they send other requests.
const streamTime = 2 * time.Second

var errStreamElsewhere = &jsonrpc.Error{
	Code: jsonrpc.InvalidRequest,
	Message: "Invalid Request: notifications of this session would have to go out on its event stream, which is not open at this replica; " +
		"open it with GET, and have all requests of a session routed to one replica",
}

// AwaitStream waits until the client has its own event stream open here. It fails when that takes
// too long: the stream may be at another replica. Sessions that stay in one process do without.
func (s *session) AwaitStream(ctx context.Context) error {
	if s.h.sealed == nil || s.only != nil {
		return nil
	}
	s.mu.Lock()
	p := s.pushingLocked()
	for _, st := range p.own {
		if st.connected.Load() {
			s.mu.Unlock()
			return nil
		}
	}
	if p.opened == nil {
		p.opened = make(chan struct{})
	}
	opened := p.opened
	s.mu.Unlock()
	limit := time.NewTimer(streamTime)
	defer limit.Stop()
	select {
	case <-opened:
		return nil
	case <-limit.C:
		return errStreamElsewhere
	case <-ctx.Done():
		return ctx.Err()
	}
}
