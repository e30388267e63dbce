package mcphttp

import (
	"context"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/late"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/stack"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
)

const sessionNotFound = "Session not found: it has ended; begin a new one with initialize, " +
	"without Mcp-Session-Id"

// inSession answers a POST in a session.
func (h *Handler) inSession(
	w http.ResponseWriter, r *http.Request, b *onhttp.Buffers, accept accepts,
) {
	s := h.find(w, r, b.In)
	if s == nil {
		h.pool.Put(b)
		return
	}
	h.answer(w, r, s, b, accept)
}

// find returns the session that a request names, for a user who puts it back.
// When there is none, it has answered; frame is what that was about.
func (h *Handler) find(w http.ResponseWriter, r *http.Request, frame []byte) *session {
	reject := func(status int, message string) *session {
		refuse(w, status, h.requestID(frame),
			&jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: message})
		return nil
	}
	var rev *era.Revision
	if versions := r.Header[headerVersion]; len(versions) == 0 {
		rev = assumed()
	} else if rev = era.Lookup(versions[0]); len(versions) > 1 || rev == nil || !rev.Handshake {
		return reject(http.StatusBadRequest,
			"Bad Request: MCP-Protocol-Version is no revision that has sessions; send the one that was "+
				"agreed upon")
	}
	s, full := h.lookup(r, rev)
	switch {
	case full:
		refuse(w, http.StatusServiceUnavailable, h.requestID(frame), errSessions())
		return nil
	case s != nil && s.only == nil:
		return s
	case s != nil:
		h.table.put(s)
	}
	return reject(http.StatusNotFound, sessionNotFound)
}

// requestID returns the id of a request that is refused as it came; null when it
// has none.
func (h *Handler) requestID(frame []byte) jsonrpc.ID {
	if m, _ := h.peek(frame); m.Kind == jsonrpc.Request {
		return m.ID
	}
	return jsonrpc.NullID()
}

// answer answers a POST in a session. The call goes on when the connection
// breaks (2025-11-25, transports, "Sending Messages to the Server").
func (h *Handler) answer(
	w http.ResponseWriter, r *http.Request, s *session, b *onhttp.Buffers, accept accepts,
) {
	p := &posted{}
	x := &p.exchange
	x.h, x.req, x.accept, x.session = h, r, accept, s
	x.derive(contextOf(r))
	x.events.out = h.stream(w)
	x.stream = &p.stream
	x.stream.s, x.stream.accept, x.stream.conn = s, accept, &x.events
	h.active.Add(1)
	if x.stream.staysOpen() {
		h.answerHere(x, b)
		return
	}
	defer h.table.put(s)
	x.events.done = make(chan struct{})
	go func() {
		_ = stack.Grow(0)
		h.run(x, b)
	}()
	var late <-chan time.Time
	if accept&acceptsEvents != 0 && h.opts.Heartbeat > 0 {
		timer := time.NewTimer(h.opts.Heartbeat)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-x.events.done:
			return
		case <-r.Context().Done():
			x.stream.detach(&x.events)
			return
		case <-late:
			x.stream.open()
		}
	}
}

// posted is a POST in a session, and the stream for its answer.
type posted struct {
	exchange exchange
	stream   stream
}

// answerHere runs the call in the request's own goroutine: a goroutine for each
// call would take as long as the call, because its stack has to grow. It is for calls
// on connections that no handler closes: net/http ends an answer only when ServeHTTP
// returns.
func (h *Handler) answerHere(x *exchange, b *onhttp.Buffers) {
	if beat := h.opts.Heartbeat; beat > 0 && beat <= 2*late.After {
		x.Late()
	} else {
		h.slow.Enter(&x.place, x)
	}
	defer func() {
		h.unwatch(x)
		if x.watch == nil || x.watch() {
			h.table.put(x.session)
		}
	}()
	h.run(x, b)
}

// Late implements late.Thing. Until then a connection that breaks is not missed,
// and one that is silent is not taken for dead.
func (x *exchange) Late() {
	open := x.events.rouse
	if s := x.session; s != nil {
		open = x.stream.open
		x.watch = context.AfterFunc(x.req.Context(), func() {
			x.stream.detach(&x.events)
			s.h.table.put(s)
		})
	}
	if beat := x.events.out.Beat; x.accept&acceptsEvents != 0 && beat > 0 {
		x.beat = time.AfterFunc(max(0, beat-2*late.After), open)
	}
}

// unwatch ends what Late has begun, or would have, but for x.watch.
func (h *Handler) unwatch(x *exchange) {
	h.slow.Leave(&x.place)
	if x.beat != nil {
		x.beat.Stop()
	}
}

// run handles a frame of a session, and ends the exchange.
func (h *Handler) run(x *exchange, b *onhttp.Buffers) {
	s, st := x.session, x.stream
	// its connection may break, and the answer is still to be kept
	held := h.sealed != nil && h.table.hold(s)
	defer func() {
		st.abort()
		s.forgetEvents()
		if held {
			h.table.put(s)
		}
		h.pool.Put(b)
		h.leave()
	}()
	batch := isArray(b.In)
	if batch && !s.takesBatch(x, b.In) {
		st.answer(http.StatusBadRequest, jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "Invalid Request: the revision of this session has no batches",
		}))
		return
	}
	b.Out = x.wanted(h.calls.Respond(x, b.Out, b.In, func(frame []byte) error {
		return s.send(x, frame, false)
	}))
	switch {
	case x.silent:
		st.silence(true)
	case len(b.Out) > 0:
		if !x.reached && !isArray(b.Out) {
			x.status = unreached(b.Out)
		}
		st.answer(x.status, b.Out)
	case x.reached || batch || s.delivered(x, b.In):
		if status, e := x.pass(); e != nil {
			st.answer(status, jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), e))
			break
		}
		st.silence(false)
	default: // a notification too many
		st.answer(http.StatusServiceUnavailable, jsonrpc.V2.AppendError(nil, jsonrpc.NullID(),
			jsonrpc.Refusal(jsonrpc.Overloaded, "more messages are in flight than the server takes")))
	}
}

// abort ends the stream of a call with a handler that has ended its goroutine
// (runtime.Goexit); of any other it has ended already.
func (st *stream) abort() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.conn != nil && st.id == 0 {
		st.conn.plain(func(w http.ResponseWriter) {
			refuse(w, http.StatusInternalServerError, jsonrpc.NullID(),
				&jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error"})
		})
	}
	st.finish()
}

func isArray(frame []byte) bool {
	i := scan.Space(frame, 0)
	return i < len(frame) && frame[i] == '['
}

// takesBatch reports whether the session's revision has batches, and delivers
// the answers in this one.
func (s *session) takesBatch(x *exchange, frame []byte) bool {
	h := s.h
	if rev := s.revision(); rev == nil || !rev.Batch {
		return false
	}
	dec := jsonrpc.Decoder{MaxDepth: h.opts.RPC.MaxDepth, MaxBatch: h.opts.RPC.MaxBatch}
	var all jsonrpc.Batch
	if dec.Decode(frame, &all) != nil {
		return true // the responder says what is wrong
	}
	for i := range all.Messages {
		if all.Messages[i].Kind == jsonrpc.Response {
			s.deliver(x, &all.Messages[i])
		}
	}
	return true
}

// delivered reports whether the frame was an answer, which it delivers.
func (s *session) delivered(x *exchange, frame []byte) bool {
	m, _ := s.h.peek(frame)
	if m.Kind == jsonrpc.Response {
		s.deliver(x, m)
	}
	return m.Kind == jsonrpc.Response
}

// withSession serves what is there in sessions only: GET opens a stream, DELETE
// ends the session.
func (h *Handler) withSession(w http.ResponseWriter, r *http.Request) {
	rev := era.Lookup(first(r.Header[headerVersion]))
	if len(r.Header[headerSession]) == 0 || rev != nil && !rev.Handshake ||
		h.opts.Sessions == sessionsNone {
		hint := "GET needs the Mcp-Session-Id of a session; use POST"
		if r.Method == http.MethodDelete {
			hint = "without Mcp-Session-Id there is no session to end"
		}
		refuseMethod(w, "POST, OPTIONS", hint)
		return
	}
	if r.Method == http.MethodGet && readAccept(r.Header["Accept"])&acceptsEvents == 0 {
		refuseHTTP(w, http.StatusNotAcceptable, "Accept must list text/event-stream")
		return
	}
	if h.elsewhere(w, r, r.Header[headerSession][0], nil) {
		return
	}
	s := h.find(w, r, nil)
	if s == nil {
		return
	}
	defer h.table.put(s)
	if r.Method == http.MethodGet {
		s.listen(w, r)
		return
	}
	s.End(r.Context())
	slow.AnswerNothing(w, http.StatusNoContent)
}

// listen serves a stream that the client opens: a new one, or the rest of one
// that it has lost.
func (s *session) listen(w http.ResponseWriter, r *http.Request) {
	var (
		st     *stream
		after  = uint64(fromSent)
		before rest // of a stream that it has lost with another process
		err    error
	)
	if ids := r.Header["Last-Event-Id"]; len(ids) == 0 {
		if st, err = s.claim(); err != nil {
			refuseHTTP(w, http.StatusNotFound, sessionNotFound)
			return
		}
	} else if id, n, call, ok := parseEventID(ids[0]); ok && len(ids) == 1 {
		if st, after, before = s.reopened(r.Context(), id, n, call); r.Context().Err() != nil {
			return
		}
	}
	if st == nil {
		refuseHTTP(w, http.StatusBadRequest, "Bad Request: Last-Event-ID is no event of this session")
		return
	}
	e := &events{out: s.h.stream(w), done: make(chan struct{})}
	if err := st.attach(e, after, before); err != nil {
		refuseHTTP(w, http.StatusBadRequest,
			"Bad Request: the events after Last-Event-ID are not there any more; send the request again")
		return
	}
	if s.h.draining.Load() {
		s.hangUp()
	}
	select {
	case <-e.done:
	case <-r.Context().Done():
		st.detach(e)
	}
}

// reopened returns a stream with a connection that the client has lost, the event after which it
// goes on, and what comes before. The client's own stream of another process goes on in a new one.
// While the store does not answer that the replicas share, the client waits.
func (s *session) reopened(
	ctx context.Context, id, n uint64, call jsonrpc.ID,
) (st *stream, after uint64, before rest) {
	if st = s.stream(id); st == nil || !st.past || !s.isSealed() {
		return st, n, rest{}
	}
	own := id&1 == 1
	if !own {
		st.call = call
	}
	if st.lost {
		for try := 1; ; try++ {
			var err error
			if before, err = st.kept(n); err == nil || try == storeTries ||
				backoff.Sleep(ctx, storePause) != nil {
				break
			}
		}
	}
	if !own || before.more {
		return st, n, before
	}
	st, _ = s.claim() // nil: the session has ended
	return st, fromSent, before
}
