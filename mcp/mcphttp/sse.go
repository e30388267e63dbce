package mcphttp

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	// retryAfter is how long a client waits before it comes back.
	retryAfter = time.Second
)

// events is one HTTP answer that is an event stream, or becomes one with its
// first event. The heartbeat runs in the goroutine of a timer.
type events struct {
	out  onhttp.Stream
	done chan struct{} // closed at the end; may be nil

	mu    sync.Mutex
	ended bool
}

// stream returns an answer that is to become an event stream.
func (h *Handler) stream(w http.ResponseWriter) onhttp.Stream {
	return onhttp.Stream{W: w, Beat: h.opts.Heartbeat, RPC: h.opts.RPC, Holds: true}
}

var errStreamEnded = errors.New("mcphttp: the event stream has ended")

// send sends one event without an id.
func (e *events) send(data []byte) error { return e.event(sse.Event{Data: data}) }

// event sends one event.
func (e *events) event(ev sse.Event) error {
	return e.write(func() error { return e.out.Event(ev) })
}

// comment sends what clients pass over, and makes it an event stream.
func (e *events) comment(text string) error {
	return e.write(func() error { return e.out.Comment(text) })
}

// prime sends an event without data; the client can come back with its id, and
// how soon it should (SEP-1699).
func (e *events) prime(id string) error {
	return e.write(func() error {
		return e.out.Write(func(out *sse.Writer) error {
			if err := out.Event(sse.Event{ID: id}); err != nil {
				return err
			}
			return out.Retry(retryAfter)
		})
	})
}

// open makes it an event stream.
func (e *events) open() error {
	return e.write(e.out.Open)
}

// header sets a header, or takes it back, unless it is too late for that.
func (e *events) header(name, value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.out.Begun() || e.ended:
	case value == "":
		delete(e.out.W.Header(), name)
	default:
		e.out.W.Header()[name] = []string{value}
	}
}

// rouse makes it an event stream, unless it is one, so that no proxy in between
// takes the connection for dead.
func (e *events) rouse() {
	e.mu.Lock()
	silent := !e.out.Begun()
	e.mu.Unlock()
	if silent {
		e.tick()
	}
}

// plain answers without an event stream, and ends. It reports false when it is
// too late for that.
func (e *events) plain(answer func(w http.ResponseWriter)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.out.Begun() || e.ended {
		return false
	}
	answer(e.out.W)
	e.endLocked()
	return true
}

// write begins the stream when it is new, and calls f.
func (e *events) write(f func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return errStreamEnded
	}
	if !e.out.Begun() {
		e.out.Begin(e.tick)
	}
	return f()
}

// tick shows that the connection is alive.
func (e *events) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return
	}
	if !e.out.Begun() {
		e.out.Begin(e.tick)
	}
	if e.out.Comment("") != nil {
		e.endLocked()
	}
}

// end ends the answer: nothing is written any more. It may be called more than
// once.
func (e *events) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endLocked()
}

func (e *events) endLocked() {
	if e.ended {
		return
	}
	e.ended = true
	e.out.End()
	if e.done != nil {
		close(e.done)
	}
}

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
	e := &events{out: h.stream(w), done: make(chan struct{})}
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
	if h.elsewhere(w, r, sessionID(r), b.In) {
		h.pool.Put(b)
		return
	}
	s := h.table.get(sessionID(r), h.principal(r))
	if s != nil && s.only == nil {
		h.table.put(s)
		s = nil
	}
	if s == nil {
		refuse(w, http.StatusNotFound, h.requestID(b.In), &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "Session not found: it ends with its event stream; open a new one",
		})
		h.pool.Put(b)
		return
	}
	if !s.takes(w, b.In) {
		h.table.put(s)
		h.pool.Put(b)
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
func (h *Handler) runMessage(x *exchange, b *onhttp.Buffers) {
	s := x.session
	defer func() {
		if h.draining.Load() {
			s.hangUp()
		}
		h.pool.Put(b)
		h.leave()
	}()
	b.Out = x.wanted(h.calls.Respond(x, b.Out, b.In, s.only.send))
	switch {
	case x.silent:
	case len(b.Out) > 0:
		if err := s.only.send(b.Out); err != nil {
			h.debug("lost an answer: the client's stream has ended", "error", err)
		}
	case !x.reached && !isArray(b.In):
		s.delivered(x, b.In)
	}
}
