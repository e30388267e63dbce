package mcphttp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/cancel"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/observed"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// session is one client of a revision that has sessions. It is the
// farcall.Caller of its backend. Idle, it has neither goroutine nor buffer.
//
// A stream is locked before its session, and a session before the table, never
// the other way round.
type session struct {
	h *Handler
	// under which the table and the event store have it; its id, unless that is sealed
	key      string
	owner    owner.Key // of what belongs to it: the principal, or else the session
	only     *stream   // HTTP+SSE: the one stream there is
	accepted sync.Once

	movable *movable // nil: it stays in this process

	// The table's, which counts as users the requests and streams of the client that are open, and
	// calls that do not wait for it.
	idleSince time.Time

	closed  bool // mu's
	mu      sync.Mutex
	backend Session           // nil until initialize arrives
	calls   *incoming         // the newest one of those that are being handled
	pushes  *pushing          // nil: nothing was pushed yet
	seen    *observed.Session // nil: it has not begun, or is not observed
}

// movable is what a session has beside that may go on in another process.
type movable struct {
	id      string         // as the client knows it
	from    *sealedSession // what a session that goes on here was made of; nil: it began here
	address string         // of the client that began it

	// The table's.
	checkAt time.Time // when it is idle: when to look whether it is needed here
	uses    uint64    // how often a use has begun
}

// pushing is what a session needs to send more than answers. It is apart because many sessions
// never do.
type pushing struct {
	done       chan struct{} // see Done; nil: not asked for
	pending    map[uint64]*outgoingCall
	lastCall   uint64
	streams    []*stream // that can be resumed and are not complete
	own        []*stream // the client's own: of GET, not of a call
	lastStream uint64
	opened     chan struct{} // closed when the client opens a stream; nil: nothing waits for that
	unread     bool          // something was sent that no connection has taken
}

// pushingLocked returns s.pushes, and makes it first if necessary.
func (s *session) pushingLocked() *pushing {
	if s.pushes == nil {
		s.pushes = &pushing{lastStream: s.h.firstStream()}
	}
	return s.pushes
}

// principal returns who may use the session, zero: who knows its id.
func (s *session) principal() owner.Key {
	if s.owner.Authenticated() {
		return s.owner
	}
	return owner.Key{}
}

// incoming is a call of the client that is being handled, and the context of its
// handler. It keeps its session from being idle, except while it waits for the
// client: that one may never come back.
type incoming struct {
	callctx.Context

	session *session
	id      jsonrpc.Raw // nil: a notification
	end     callctx.End

	// The session's.
	next      *incoming // that has begun before
	cancelled bool
	over      bool
	waiting   int // calls to the client that are not answered yet
}

type incomingKey struct{}

// ContextValue implements callctx.Values.
func (c *incoming) ContextValue(key any) (any, bool) {
	_, ok := key.(incomingKey)
	return c, ok
}

func (c *incoming) cancel() { c.end.Cancel(context.Canceled) }

// cancelFor cancels a call for a reason of the client's, "" for none.
func (c *incoming) cancelFor(reason string) {
	if reason == "" {
		c.cancel()
		return
	}
	c.end.CancelCause(c.Parent(), &farcall.CancelError{Reason: reason})
}

// wait notes that the handler waits for the client.
func (c *incoming) wait(n int) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	c.waiting += n
	switch {
	case c.over:
	case n > 0 && c.waiting == 1:
		s.h.table.put(s)
	case n < 0 && c.waiting == 0:
		s.h.table.hold(s)
	}
}

func (h *Handler) newSession(r *http.Request) *session {
	key := h.opts.Replica + rand.Text()
	s, address := &session{h: h, key: key, owner: h.principal(r)}, r.RemoteAddr
	if h.sealed != nil {
		address = address[:min(len(address), maxAddress)]
		s.movable = &movable{address: address}
	}
	if s.owner.IsZero() {
		s.owner = owner.Session(key, address)
	}
	return s
}

// firstStream returns what the numbers of a session's streams follow: where a session may go on in
// another process, one that no other process has.
func (h *Handler) firstStream() uint64 {
	if h.sealed == nil {
		return 0
	}
	var random [8]byte
	rand.Read(random[:])
	return binary.BigEndian.Uint64(random[:]) >> 24 * maxStreams
}

// principal returns the owner that stands for an authenticated caller, zero for any other.
func (h *Handler) principal(r *http.Request) owner.Key {
	if h.opts.Owner == nil {
		return owner.Key{}
	}
	return owner.Named(h.opts.Owner(r))
}

// revision is the revision that was agreed upon, nil before.
func (s *session) revision() *era.Revision {
	s.mu.Lock()
	b := s.backend
	s.mu.Unlock()
	if b == nil {
		return nil
	}
	return b.Revision()
}

// serve is the handler of what the client sends.
func (s *session) serve(ctx context.Context, x *exchange, req *farcall.Request) (any, error) {
	switch {
	case req.Method == spec.NotificationCancelled && req.IsNotification():
		s.cancel(req.Params)
		return nil, nil //nolint:nilnil // a notification has no result
	case req.Method != spec.MethodInitialize || req.IsNotification():
		return s.handle(ctx, x, req)
	case req.InBatch(): // 2025-03-26, lifecycle, "Initialization"
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"Invalid Request: initialize must not be part of a batch")
	}
	if s.only == nil && !s.isAccepted() {
		return s.begin(ctx, x, req)
	}
	return s.handle(ctx, x, req)
}

// begin handles the initialize that makes the session.
func (s *session) begin(ctx context.Context, x *exchange, req *farcall.Request) (any, error) {
	if err := s.accept(x.Parent()); err != nil {
		return nil, err
	}
	if !s.h.admit(s) {
		s.end()
		x.status = http.StatusServiceUnavailable
		return nil, errSessions()
	}
	if s.h.sealed == nil {
		x.events.header(headerSession, s.key)
	}
	done := false
	defer func() {
		if !done && s.h.table.remove(s) {
			x.events.header(headerSession, "")
			s.end()
		}
	}()
	result, err := s.handle(ctx, x, req)
	if err == nil && s.h.opts.Sessions == sessionsSealed {
		if err = s.seal(); err == nil {
			x.events.header(headerSession, s.movable.id)
		}
	}
	done = err == nil
	return result, err
}

// admit takes a session into the table. Those that make room for it end.
func (h *Handler) admit(s *session) bool {
	evicted, ok := h.table.add(s)
	for _, e := range evicted {
		e.end()
	}
	return ok
}

func errSessions() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.Overloaded,
		Message: "Overloaded: too many sessions; end one with DELETE, or try again later",
	}
}

// accept makes the backend's half of the session.
func (s *session) accept(ctx context.Context) error {
	s.accepted.Do(func() {
		// Without ctx's end, and without the exchange, which the session must not hold on to.
		b := s.take(context.WithValue(callctx.WithoutCancel(ctx), owner.ContextKey{}, &s.owner))
		if b == nil {
			return
		}
		s.mu.Lock()
		s.backend = b
		closed := s.closed
		s.mu.Unlock()
		if closed {
			b.Close()
		}
	})
	if !s.isAccepted() {
		return errors.New("mcphttp: the backend did not accept the session")
	}
	return nil
}

func (s *session) isAccepted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backend != nil
}

// handle gives a message to the backend. The context that this gets ends when
// the call is cancelled, and with the session.
func (s *session) handle(ctx context.Context, x *exchange, req *farcall.Request) (any, error) {
	if s.only != nil {
		if err := s.accept(x.Parent()); err != nil {
			return nil, err
		}
	}
	c := x.incoming(req)
	c.Context, c.session, c.id = callctx.Until(ctx, c, &c.end), s, req.ID.Raw()
	defer c.cancel()
	if s.isSealed() && !req.InBatch() && x.stream != nil {
		x.stream.name(req.ID)
	}
	if ctx.Done() != nil { // that of an interceptor: the exchange's has no end
		defer context.AfterFunc(ctx, func() { c.end.Cancel(ctx.Err()) })()
	}
	backend, e := s.enter(c)
	if e != nil {
		return nil, e
	}
	defer func() {
		s.leave(c, x, req.InBatch())
	}()
	result, err := backend.ServeRPC(c, req)
	if req.Method == spec.MethodInitialize && err == nil && !req.IsNotification() {
		s.observe(backend.Revision())
	}
	return result, err
}

// observe tells the observer of a session that has begun.
func (s *session) observe(rev *era.Revision) {
	rpc := s.h.opts.RPC
	seen := observed.Begin(rpc.Observer, rpc.Transport, rev.Name, false)
	s.mu.Lock()
	ended := s.closed
	s.seen = seen
	s.mu.Unlock()
	if ended {
		seen.End()
	}
}

// enter books a call, or refuses it.
func (s *session) enter(c *incoming) (Session, *jsonrpc.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.backend == nil {
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "Invalid Request: the session has ended",
		}
	}
	if c.id != nil && s.find(c.id) != nil {
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "Invalid Request: the id is in use by a request in flight",
		}
	}
	c.next, s.calls = s.calls, c
	s.h.table.hold(s)
	return s.backend, nil
}

// leave takes a call out of the table. When the client has cancelled it, it wants
// no answer.
func (s *session) leave(c *incoming, x *exchange, inBatch bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &s.calls
	for *at != c {
		at = &(*at).next
	}
	*at, c.next = c.next, nil // a call that still waits for its client keeps no other one alive
	if c.over = true; c.waiting == 0 {
		s.h.table.put(s)
	}
	switch {
	case !c.cancelled:
	case inBatch:
		x.unwanted = append(x.unwanted, c.id)
	default:
		x.silent = true
	}
}

// wanted returns an answer without what the client has cancelled of a batch.
func (x *exchange) wanted(answer []byte) []byte {
	if len(x.unwanted) == 0 {
		return answer
	}
	var left []byte
	for one := range scan.Elements(answer) {
		id := scan.Member(one, "id")
		if !slices.ContainsFunc(x.unwanted, func(other jsonrpc.Raw) bool { return sameID(id, other) }) {
			left = append(append(left, ','), one...)
		}
	}
	if left == nil {
		return answer[:0]
	}
	left[0] = '['
	return append(left, ']')
}

func (s *session) find(id []byte) *incoming {
	for c := s.calls; c != nil; c = c.next {
		if c.id != nil && sameID(c.id, id) {
			return c
		}
	}
	return nil
}

// sameID compares strings by what they say, and numbers as they are written.
func sameID(a, b jsonrpc.Raw) bool {
	if a[0] == '"' && b[0] == '"' {
		return bytes.Equal(scan.Unquote(a), scan.Unquote(b))
	}
	return bytes.Equal(a, b)
}

// cancel ends the context of the call that a notification names. One that is
// unknown, or has been answered, is passed over. initialize cannot be
// cancelled: until it is answered, no client knows the session.
func (s *session) cancel(params jsonrpc.Raw) {
	id := scan.Member(params, "requestId")
	if len(id) == 0 {
		return
	}
	reason := cancel.Given(scan.Member(params, "reason"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.find(id); c != nil {
		c.cancelled = true
		c.cancelFor(reason)
	}
}

// hangUp ends the client's own streams; calls go on.
func (s *session) hangUp() {
	s.mu.Lock()
	var own []*stream
	if s.pushes != nil {
		own = slices.Clone(s.pushes.own)
	}
	idle := s.only != nil && s.calls == nil
	s.mu.Unlock()
	for _, st := range own {
		st.end()
	}
	if idle {
		s.only.end()
	}
}

// end ends the session, which is in the table no more.
func (s *session) end() {
	s.mu.Lock()
	was, backend := s.closed, s.backend
	s.closed = true
	pushes := s.pushingLocked()
	if pushes.done != nil && !was {
		close(pushes.done)
	}
	own, pending := slices.Clone(pushes.own), pushes.pending
	pushes.pending = nil
	for c := s.calls; c != nil; c = c.next {
		c.cancel()
	}
	seen := s.seen
	s.mu.Unlock()
	if was {
		return
	}
	seen.End()
	for _, p := range pending {
		p.finish(nil, errSessionEnded)
	}
	for _, st := range own {
		st.end()
	}
	if s.only != nil {
		s.only.end()
	}
	s.forgetEvents()
	if backend != nil {
		backend.Close()
	}
}

// End ends the session for good: no other process goes on with it either, as far as this one can
// tell them.
func (s *session) End(ctx context.Context) {
	s.mu.Lock()
	backend := s.backend
	s.mu.Unlock()
	if d, ok := backend.(interface{ Discard(ctx context.Context) }); ok {
		d.Discard(ctx)
	}
	if s.h.table.remove(s) {
		s.end()
	}
	if s.isSealed() && s.named() {
		if shared := s.h.opts.SharedEvents; shared != nil {
			shared.Drop(s.key)
		}
		s.h.sealed.ended.add(s.owner, s.key, s.h.sealed.until(s.movable.from.issued))
	}
}

// forgetEvents drops the events of a session that has ended: its calls may have
// added some.
func (s *session) forgetEvents() {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed && !s.h.table.has(s.key) { // where it is in use again, the events are that one's
		s.h.opts.Events.Drop(s.key)
	}
}
