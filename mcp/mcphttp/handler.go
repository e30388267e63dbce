package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/late"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/wirelog"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A Handler serves MCP over HTTP for a backend. As an http.Handler it is the
// MCP endpoint, of every revision at once; ServeSSE and ServeMessages are the
// two addresses of the oldest.
type Handler struct {
	backend Backend
	opts    Options
	gate    gate
	calls   *farcall.Responder
	listens *farcall.Responder // subscriptions, which stay: they must not use up the room for calls
	pool    onhttp.Pool
	table   table
	trace   *wirelog.Log
	sealed  *sealing   // nil: sessions stay in this process
	slow    late.Watch // of exchanges that are not answered yet

	active   atomic.Int64 // exchanges under way
	draining atomic.Bool
	drained  chan struct{} // gets a value when the last exchange ends while draining

	mu         sync.Mutex
	subscribed map[*exchange]context.CancelFunc // the calls of subscriptions/listen
}

// ServeHTTP serves the MCP endpoint.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	slow.Limit(h.opts.BodyTimeout).Begin(w, r)
	if !h.gate.open(w, r, "GET, POST, DELETE, OPTIONS") || !h.enter(w) {
		return
	}
	defer h.leave()
	w, end := h.trace.Exchange(w, r)
	defer end()
	switch r.Method {
	case http.MethodPost:
		h.post(w, r)
	case http.MethodGet, http.MethodDelete:
		h.withSession(w, r)
	default:
		refuseMethod(w, "GET, POST, DELETE, OPTIONS", "use POST")
	}
}

// post serves one POST.
func (h *Handler) post(w http.ResponseWriter, r *http.Request) {
	b, accept, ok := h.read(w, r)
	if !ok {
		return
	}
	if h.answeredElsewhere(w, r, b.In) {
		h.pool.Put(b)
		return
	}
	version, session := first(r.Header[headerVersion]), r.Header[headerSession]
	rev := era.Lookup(version)
	marked := bytes.Contains(b.In, modernKey)
	switch {
	case rev != nil && !rev.Handshake && marked && !isArray(b.In):
		// the backend and checkHeaders see to the rest
		h.stateless(w, r, b, accept)
	case len(session) > 0 && !marked && (rev == nil || rev.Handshake) &&
		h.opts.Sessions != sessionsNone:
		h.inSession(w, r, b, accept)
	default:
		h.classify(w, r, b, accept)
	}
}

// classify finds out what a frame is when the headers do not say: the begin of
// a session, something of a client that forgot a header, or a text that only
// looks like something else.
func (h *Handler) classify(
	w http.ResponseWriter, r *http.Request, b *onhttp.Buffers, accept accepts,
) {
	rev := era.Lookup(first(r.Header[headerVersion]))
	m, batch := h.peek(b.In)
	inSession := len(r.Header[headerSession]) > 0
	if h.opts.Sessions == sessionsNone { // each message is a session
		inSession = m.Kind == jsonrpc.Request && string(m.Method) != spec.MethodInitialize ||
			m.Kind == jsonrpc.Notification || batch
	}
	call := m.Kind == jsonrpc.Request || m.Kind == jsonrpc.Notification
	modern := rev != nil && !rev.Handshake
	switch {
	case call && speaksModern(m.Params):
		h.stateless(w, r, b, accept)
	case inSession && !modern:
		h.inSession(w, r, b, accept)
	case m.Kind == jsonrpc.Request && string(m.Method) == spec.MethodInitialize:
		h.answer(w, r, h.newSession(r), b, accept)
	case call && len(r.Header[headerVersion]) > 0 && (rev == nil || modern):
		h.stateless(w, r, b, accept)
	default:
		h.noSession(w, m, batch)
		h.pool.Put(b)
	}
}

// noSession refuses what needs a session and has none.
func (h *Handler) noSession(w http.ResponseWriter, m *jsonrpc.Message, batch bool) {
	e := &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: "Invalid Request"}
	switch {
	case m.Err != nil && m.Kind == jsonrpc.Invalid:
		e = &jsonrpc.Error{Code: m.Err.Code, Message: m.Err.Message, Data: m.Err.Data}
		if m.Err.Cause != nil { // what is wrong with the text, and where
			e.Message += ": " + m.Err.Cause.Error()
		}
	case batch:
		e.Message += ": batches are accepted in sessions of revisions that have them only"
	default:
		e.Message += ": the header Mcp-Session-Id is missing; begin with initialize, or send " +
			"MCP-Protocol-Version, Mcp-Method and params._meta, as revisions without sessions have them"
	}
	id := m.ID
	if m.Kind == jsonrpc.Response {
		id = jsonrpc.NullID()
	}
	refuse(w, http.StatusBadRequest, id, e)
}

// peek decodes a frame for what is not worth being fast. Of a batch, and of
// what is no message, it returns an invalid one.
func (h *Handler) peek(frame []byte) (m *jsonrpc.Message, batch bool) {
	dec := jsonrpc.Decoder{MaxDepth: h.opts.RPC.MaxDepth, MaxBatch: h.opts.RPC.MaxBatch}
	var all jsonrpc.Batch
	if err := dec.Decode(frame, &all); err != nil {
		return &jsonrpc.Message{Err: err}, false
	}
	if all.Array {
		return &jsonrpc.Message{Raw: frame}, true
	}
	return &all.Messages[0], false
}

// dispatch is the handler of the responders.
func (h *Handler) dispatch(ctx context.Context, req *farcall.Request) (any, error) {
	x := exchangeFrom(ctx)
	if x == nil {
		return nil, errors.New("mcphttp: an interceptor has lost the values of the context")
	}
	if !req.InBatch() {
		x.reached = true
	}
	if req.ID.IsNull() { // basic, "Requests": the id must not be null
		if !req.InBatch() {
			x.status = http.StatusBadRequest
		}
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "Invalid Request: the id must not be null",
		}
	}
	if x.session != nil {
		return x.session.serve(ctx, x, req)
	}
	return h.serve(ctx, x, req)
}

// exchange is one POST that is being answered. It is also the context of the
// handlers: an own type because a call must not cost the allocations of
// context.WithValue.
type exchange struct {
	callctx.Context

	h      *Handler
	req    *http.Request
	events events // of a stateless call

	session *session // nil when stateless
	stream  *stream  // on which a session's call is answered

	place late.Entry
	watch func() (stopped bool) // stops to watch the connection; nil: it is not watched yet
	beat  *time.Timer           // makes the answer an event stream; nil: not yet

	accept   accepts
	reached  bool          // the message was valid and admitted
	silent   bool          // the call was cancelled and is not answered
	unwanted []jsonrpc.Raw // ids of cancelled calls of a batch; the session's
	status   int           // for HTTP; 0 is 200
	// elsewhere are answers to what other replicas have asked.
	elsewhere []elsewhere
	refusal   *jsonrpc.Error

	only incoming // the call, when it is no batch; the session's
}

// incoming returns the call of a request. The usual one is part of the exchange: it needs no
// allocation.
func (x *exchange) incoming(req *farcall.Request) *incoming {
	if req.InBatch() {
		return new(incoming)
	}
	return &x.only
}

type exchangeKey struct{}

func exchangeFrom(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// derive makes a context the parent of the exchange's, once its session is set: what belongs to a
// session goes on when the connection breaks (2025-11-25, transports, "Sending Messages to the
// Server").
func (x *exchange) derive(parent context.Context) {
	x.Context = callctx.Over(parent, x)
	if x.session != nil {
		x.Last()
	}
}

// ContextValue implements callctx.Values.
func (x *exchange) ContextValue(key any) (any, bool) {
	switch key.(type) {
	case exchangeKey:
		return x, true
	case owner.ContextKey:
		if x.session != nil {
			return &x.session.owner, true
		}
		// of what the call leaves behind
		return owner.Or(x.h.principal(x.req), owner.Address(x.req.RemoteAddr)), true
	case owner.SessionKey:
		if x.session != nil {
			return &x.session.owner, true
		}
	}
	return nil, false
}

// contextOf returns the context of a request for its handlers.
func contextOf(r *http.Request) context.Context {
	return farcall.WithTraceHeader(r.Context(), r.Header)
}

// unreached finds the status for an answer that no handler has given: of what is
// no message, or of a call too many.
func unreached(answer []byte) int {
	var code jsonrpc.Code
	for name, value := range scan.Members(answer) {
		if string(name) == "error" {
			code = codeOf(value)
		}
	}
	if code == jsonrpc.Overloaded {
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// enter begins an exchange, or refuses it. What goes on beyond it is one, too.
func (h *Handler) enter(w http.ResponseWriter) bool {
	h.active.Add(1)
	if !h.draining.Load() {
		return true
	}
	h.leave()
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, jsonrpc.NullID(), &jsonrpc.Error{
		Code: jsonrpc.Overloaded, Message: "Shutting down",
		Data: jsonrpc.Raw(`{"sent":"no","retryable":true,"retryAfterMs":1000}`),
	})
	return false
}

// debug logs failures that have no response to carry them.
func (h *Handler) debug(text string, args ...any) {
	if log := h.opts.RPC.Logger; log != nil {
		log.Debug(text, args...)
	}
}

// leave ends an exchange.
func (h *Handler) leave() {
	if h.active.Add(-1) == 0 && h.draining.Load() {
		select {
		case h.drained <- struct{}{}:
		default:
		}
	}
}

// Sessions returns how many sessions there are.
func (h *Handler) Sessions() int { return h.table.len() }

// Shutdown ends the handler: subscriptions and the clients' own streams at
// once, sessions when their calls are answered. New requests get 503. When the
// context ends first, the calls of sessions are cancelled and the context's
// error is returned; calls without a session end with their connections.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.draining.Store(true)
	h.mu.Lock()
	for _, cancel := range h.subscribed {
		cancel()
	}
	h.mu.Unlock()
	for _, s := range h.table.all() {
		s.hangUp()
	}
	var err error
	for err == nil && h.active.Load() > 0 {
		select {
		case <-h.drained:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	for _, s := range h.table.close() {
		s.end()
	}
	return err
}

// gate checks where a request comes from.
type gate struct {
	policy origin.Policy
}

// open reports whether the request may go on. If not, it is answered.
func (g *gate) open(w http.ResponseWriter, r *http.Request, methods string) bool {
	if err := g.policy.Check(r); err != nil {
		refuseHTTP(w, http.StatusForbidden, "Forbidden: "+err.Error())
		return false
	}
	if len(r.Header["Origin"]) > 0 {
		g.policy.AllowOrigin(w, r, methods, "Mcp-Session-Id")
	}
	if r.Method == http.MethodOptions {
		w.Header().Set("Allow", methods)
		slow.AnswerNothing(w, http.StatusNoContent)
		return false
	}
	return true
}

// refuseMethod answers a method that is not served.
func refuseMethod(w http.ResponseWriter, allowed, hint string) {
	w.Header().Set("Allow", allowed)
	refuseHTTP(w, http.StatusMethodNotAllowed, "Method not allowed: "+hint)
}

// stateless answers a POST of a revision without sessions. The context of the
// handlers is that of the request: a client that goes cancels (2026-07-28,
// Streamable HTTP, "Cancellation").
func (h *Handler) stateless(
	w http.ResponseWriter, r *http.Request, b *onhttp.Buffers, accept accepts,
) {
	defer h.pool.Put(b)
	x := &exchange{h: h, req: r, accept: accept, events: events{out: h.stream(w)}}
	x.derive(contextOf(r))
	defer x.events.end()
	responder := h.calls
	if first(r.Header[headerMethod]) == spec.MethodSubscriptionsListen {
		responder = h.listens
		defer h.subscribe(x)()
	}
	if accept&acceptsEvents != 0 {
		h.slow.Enter(&x.place, x)
		defer h.unwatch(x)
	}
	b.Out = responder.Respond(x, b.Out, b.In, x.push)
	h.finish(x, b)
}

// finish writes the answer of a stateless call.
func (h *Handler) finish(x *exchange, b *onhttp.Buffers) {
	if len(b.Out) > 0 && !x.reached {
		x.status = unreached(b.Out)
	}
	eventsOnly := x.accept&acceptsJSON == 0 && x.status == 0 && len(b.Out) > 0
	plain := !eventsOnly && x.events.plain(func(w http.ResponseWriter) {
		switch {
		case len(b.Out) > 0:
			onhttp.Answer(w, x.status, b.Out)
		case !x.reached:
			h.unanswered(w, b.In)
		case x.refusal != nil && x.status == http.StatusBadRequest:
			refuse(w, x.status, jsonrpc.NullID(), x.refusal)
		default:
			slow.AnswerNothing(w, http.StatusAccepted)
		}
	})
	if !plain && len(b.Out) > 0 {
		_ = x.events.send(b.Out) // the client has gone
	}
}

// unanswered tells what became of a message that reached no handler and has no
// answer: an answer itself, or a notification too many.
func (h *Handler) unanswered(w http.ResponseWriter, frame []byte) {
	if m, _ := h.peek(frame); m.Kind == jsonrpc.Response {
		h.noSession(w, m, false)
		return
	}
	refuse(w, http.StatusServiceUnavailable, jsonrpc.NullID(),
		jsonrpc.Refusal(jsonrpc.Overloaded, "more messages are in flight than the server takes"))
}

// subscribe lets Shutdown end the call. It returns what takes that back.
func (h *Handler) subscribe(x *exchange) (done func()) {
	ctx, cancel := context.WithCancel(x.Parent())
	x.derive(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subscribed == nil {
		h.subscribed = map[*exchange]context.CancelFunc{}
	}
	h.subscribed[x] = cancel
	if h.draining.Load() {
		cancel()
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribed, x)
		cancel()
	}
}

// push sends a notification before the answer. A client that reads no event
// streams does without.
func (x *exchange) push(frame []byte) error {
	if x.accept&acceptsEvents == 0 {
		return nil
	}
	return x.events.send(frame)
}

// serve is the handler of what belongs to no session.
func (h *Handler) serve(ctx context.Context, x *exchange, req *farcall.Request) (any, error) {
	m := readMirrored(req.Params, nameParam(req.Method))
	if e := x.check(req, &m); e != nil {
		x.status, x.refusal = http.StatusBadRequest, e
		return nil, e
	}
	result, err := h.backend.ServeRPC(ctx, req)
	if err != nil {
		x.fail(err, m.complete)
	}
	return result, err
}

// check compares the headers with the body. For notifications the headers are
// not defined; what is there must be right.
func (x *exchange) check(req *farcall.Request, m *mirrored) *jsonrpc.Error {
	if !req.IsNotification() {
		return checkHeaders(x.req.Header, req.Method, m)
	}
	versions := x.req.Header[headerVersion]
	if len(versions) > 0 && m.version != nil && string(m.version) != versions[0] {
		return mismatch("MCP-Protocol-Version is %.100q, but the body has %.100q", versions[0], m.version)
	}
	return nil
}

// fail finds the status for an error (2026-07-28: Streamable HTTP, "Protocol
// Version Header"; basic, "_meta"). complete says whether _meta had what it must
// have.
func (x *exchange) fail(err error, complete bool) {
	wire := remote.Own(err)
	if wire == nil {
		return
	}
	x.refusal = wire
	if x.status = statusOf(wire); x.status != 0 {
		return
	}
	switch wire.Code {
	case jsonrpc.MethodNotFound:
		x.status = http.StatusNotFound
	case spec.HeaderMismatch, spec.MissingRequiredClientCapability, spec.UnsupportedProtocolVersion,
		jsonrpc.InvalidRequest, jsonrpc.ParseError:
		x.status = http.StatusBadRequest
	case jsonrpc.InvalidParams:
		if !complete {
			x.status = http.StatusBadRequest
		}
	case jsonrpc.Overloaded:
		x.status = http.StatusServiceUnavailable
	}
}

// statusOf returns the status that the cause of an error asks for, as that of a refusal by a guard
// does, the same for each path that it refuses on; else that of the registry for a refusal. 0:
// none. What another server has sent has no cause, and says nothing about the request here.
func statusOf(e *jsonrpc.Error) int {
	if cause, ok := errors.AsType[interface {
		error
		HTTPStatus() int
	}](e.Cause); ok {
		return cause.HTTPStatus()
	}
	if e.Cause == nil {
		return 0
	}
	for _, row := range jsonrpc.Lookup(e.Code) {
		if row.Modern == e.Code && (row.Category == "auth" || row.Plain == jsonrpc.RateLimited) {
			return row.HTTPStatus
		}
	}
	return 0
}

// settle is the first interceptor. What one after it has refused is answered as what the handler
// refuses, not as a message that is not valid.
func (h *Handler) settle(next farcall.Handler) farcall.Handler {
	return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		result, err := next.ServeRPC(ctx, req)
		if x := exchangeFrom(ctx); err != nil && x != nil && !x.reached && !req.InBatch() {
			x.reached = true
			if x.session == nil {
				x.fail(err, true)
			}
		}
		return result, err
	})
}
