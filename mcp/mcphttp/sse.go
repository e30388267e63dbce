package mcphttp

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// ServeSSE serves the stream of HTTP+SSE (2024-11-05, transports): the session
// lasts as long as it does.
func (h *Handler) ServeSSE(w http.ResponseWriter, r *http.Request) {
	if !h.gate.open(w, r, "GET, OPTIONS") || !h.enter(w) {
		return
	}
	defer h.leave()
	w, end := h.trace.Exchange(w, r)
	defer end()
	switch {
	case r.Method != http.MethodGet:
		refuseMethod(w, "GET, OPTIONS", "open the event stream with GET")
		return
	case readAccept(r.Header["Accept"])&acceptsEvents == 0:
		refuseHTTP(w, http.StatusNotAcceptable, "Accept must list text/event-stream")
		return
	}
	s := h.newSession(r)
	e := &events{w: w, beat: h.opts.Heartbeat, rpc: h.opts.RPC, done: make(chan struct{})}
	s.only = &stream{s: s, accept: acceptsEvents, conn: e}
	if !h.admit(s) {
		refuse(w, http.StatusServiceUnavailable, jsonrpc.NullID(), errSessions())
		return
	}
	address := h.opts.MessagesPath + "?sessionId=" + url.QueryEscape(s.key)
	err := e.event(sse.Event{Type: "endpoint", Data: []byte(address)})
	if h.draining.Load() {
		s.hangUp()
	}
	if err == nil {
		select {
		case <-e.done:
		case <-r.Context().Done():
		}
	}
	s.only.detach(e)
	if h.table.remove(s) {
		s.end()
	}
}

// ServeMessages takes the messages of HTTP+SSE; their answers go out on the
// stream.
func (h *Handler) ServeMessages(w http.ResponseWriter, r *http.Request) {
	slow.Limit(h.opts.BodyTimeout).Begin(w, r)
	if !h.gate.open(w, r, "POST, OPTIONS") || !h.enter(w) {
		return
	}
	defer h.leave()
	w, end := h.trace.Exchange(w, r)
	defer end()
	if r.Method != http.MethodPost {
		refuseMethod(w, "POST, OPTIONS", "use POST")
		return
	}
	b, _, ok := h.read(w, r)
	if !ok {
		return
	}
	s := h.table.get(sessionID(r), h.principal(r))
	if s != nil && s.only == nil {
		h.table.put(s)
		s = nil
	}
	if s == nil {
		refuse(w, http.StatusNotFound, h.requestID(b.in), &jsonrpc.Error{
			Code: jsonrpc.InvalidRequest, Message: "Session not found: it ends with its event stream; open a new one",
		})
		h.release(b)
		return
	}
	if !s.takes(w, b.in) {
		h.table.put(s)
		h.release(b)
		return
	}
	slow.AnswerNothing(w, http.StatusAccepted)
	h.table.put(s) // what keeps it is its stream
	x := &exchange{h: h, req: r, session: s}
	x.derive(contextOf(r))
	h.active.Add(1)
	go h.runMessage(x, b)
}

// sessionID returns what the address has that ServeSSE gave.
func sessionID(r *http.Request) string {
	id, _ := strings.CutPrefix(r.URL.RawQuery, "sessionId=")
	if strings.ContainsAny(id, "&%+") {
		return r.URL.Query().Get("sessionId")
	}
	return id
}

// takes reports whether a frame is one to be handled, and answers if not.
func (s *session) takes(w http.ResponseWriter, frame []byte) bool {
	m, batch := s.h.peek(frame)
	switch {
	case batch && s.takesBatch(&exchange{h: s.h}, frame):
		return true
	case m.Kind == jsonrpc.Invalid:
		e := jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: "Invalid Request"}
		if m.Err != nil {
			e.Code, e.Message, e.Data = m.Err.Code, m.Err.Message, m.Err.Data
		}
		refuse(w, http.StatusBadRequest, m.ID, &e)
		return false
	}
	return true
}

// runMessage handles a frame, and sends the answer on the session's stream.
func (h *Handler) runMessage(x *exchange, b *buffers) {
	s := x.session
	defer func() {
		if h.draining.Load() {
			s.hangUp()
		}
		h.release(b)
		h.leave()
	}()
	b.out = x.wanted(h.calls.Respond(x, b.out, b.in, s.only.send))
	switch {
	case x.silent:
	case len(b.out) > 0:
		if err := s.only.send(b.out); err != nil {
			h.debug("lost an answer: the client's stream has ended", "error", err)
		}
	case !x.reached && !isArray(b.in):
		s.delivered(x, b.in)
	}
}
