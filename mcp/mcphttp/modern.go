package mcphttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// stateless answers a POST of a revision without sessions. The context of the
// handlers is that of the request: a client that goes cancels (2026-07-28,
// Streamable HTTP, "Cancellation").
func (h *Handler) stateless(w http.ResponseWriter, r *http.Request, b *buffers, accept accepts) {
	defer h.release(b)
	x := &exchange{h: h, req: r, accept: accept, events: events{w: w, beat: h.opts.Heartbeat, rpc: h.opts.RPC}}
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
	b.out = responder.Respond(x, b.out, b.in, x.push)
	h.finish(x, b)
}

// finish writes the answer of a stateless call.
func (h *Handler) finish(x *exchange, b *buffers) {
	if len(b.out) > 0 && !x.reached {
		x.status = unreached(b.out)
	}
	eventsOnly := x.accept&acceptsJSON == 0 && x.status == 0 && len(b.out) > 0
	plain := !eventsOnly && x.events.plain(func(w http.ResponseWriter) {
		switch {
		case len(b.out) > 0:
			answerJSON(w, x.status, b.out)
		case !x.reached:
			h.unanswered(w, b.in)
		case x.refusal != nil && x.status == http.StatusBadRequest:
			refuse(w, x.status, jsonrpc.NullID(), x.refusal)
		default:
			slow.AnswerNothing(w, http.StatusAccepted)
		}
	})
	if !plain && len(b.out) > 0 {
		_ = x.events.send(b.out) // the client has gone
	}
}

// unanswered tells what became of a message that reached no handler and has no
// answer: an answer itself, or a notification too many.
func (h *Handler) unanswered(w http.ResponseWriter, frame []byte) {
	if m, _ := h.peek(frame); m.Kind == jsonrpc.Response {
		h.noSession(w, m, false)
		return
	}
	refuse(w, http.StatusServiceUnavailable, jsonrpc.NullID(), jsonrpc.Refusal(jsonrpc.Overloaded, "more messages are in flight than the server takes"))
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
