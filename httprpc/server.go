package httprpc

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// NewHandler serves h: each POST carries one message or batch.
func NewHandler(h farcall.Handler, o *Options) http.Handler {
	return &handler{endpoint: newEndpoint(h, o, "POST, OPTIONS")}
}

// endpoint is what both handlers have.
type endpoint struct {
	responder *farcall.Responder
	gate      gate
	opts      Options
}

func newEndpoint(h farcall.Handler, o *Options, methods string) endpoint {
	opts := o.withDefaults()
	policy := origin.Policy{Origins: opts.Origins, Hosts: opts.Hosts}
	return endpoint{farcall.NewResponder(h, opts.RPC), gate{policy, methods}, opts}
}

type handler struct {
	endpoint
	pool onhttp.Pool
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	slow.Limit(h.opts.BodyTimeout).Begin(w, r)
	if !h.gate.open(w, r, http.MethodPost) {
		return
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		w.Header().Set("Accept-Post", onhttp.JSON) // W3C LDP §7.1
		refuse(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json, charset utf-8")
		return
	}
	gzipped, ok := h.encoded(w, r)
	if !ok {
		return
	}
	b := h.pool.Get(h.opts.Budget)
	defer h.pool.Put(b)
	if err := h.read(w, r, b, gzipped); err != nil {
		h.unread(w, r, b, err)
		return
	}
	slow.Limit(h.opts.BodyTimeout).End(w, r)
	ctx := farcall.WithTraceHeader(withOwner(r), r.Header)
	if acceptsEvents(r.Header["Accept"]) {
		e := events{out: onhttp.Stream{W: w, Beat: h.opts.KeepAlive, RPC: h.opts.RPC}}
		defer e.end()
		b.Out = h.responder.Respond(ctx, b.Out, b.In, e.send)
		if e.started {
			if len(b.Out) > 0 {
				_ = e.send(b.Out) // the caller has gone
			}
			return
		}
	} else {
		b.Out = h.responder.Respond(ctx, b.Out, b.In, nil)
	}
	answer(w, h.encode(w, r, b.Out))
}

// read reads the body of a request.
func (h *handler) read(
	w http.ResponseWriter, r *http.Request, b *onhttp.Buffers, gzipped bool,
) (err error) {
	body, size := slow.Limit(h.opts.BodyTimeout).Body(w, r), r.ContentLength
	if gzipped {
		body, size = inflate(body, h.opts.MaxMessage), -1
	}
	b.In, err = b.Loan.ReadAll(b.In, body, size, h.opts.MaxMessage, budget.Body(w, r))
	return err
}

// unread answers a request when its body could not be read.
func (h *handler) unread(w http.ResponseWriter, r *http.Request, b *onhttp.Buffers, err error) {
	var bounded *http.MaxBytesError
	switch {
	case errors.Is(err, budget.ErrNoRoom), b.Loan.Evicted():
		overloaded(w)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestTimeout, "The body took too long")
	case errors.Is(err, budget.ErrTooLarge):
		refuseWith(w, http.StatusRequestEntityTooLarge,
			jsonrpc.Oversize("Request", int64(h.opts.MaxMessage), "bytes"))
	case errors.As(err, &bounded): // by what is around the handler
		refuseWith(w, http.StatusRequestEntityTooLarge,
			jsonrpc.Oversize("Request", bounded.Limit, "bytes"))
	case errors.Is(err, errGzip):
		refuse(w, http.StatusBadRequest, "The body is not valid gzip, as its Content-Encoding says")
	case r.Context().Err() == nil:
		refuse(w, http.StatusBadRequest, "The body could not be read")
	}
}

// answer writes a plain answer, or 204 when there is none.
func answer(w http.ResponseWriter, body []byte) {
	if len(body) == 0 {
		slow.AnswerNothing(w, http.StatusNoContent)
		return
	}
	onhttp.Answer(w, 0, body)
}

// overloaded answers a request when there is no memory for its body.
func overloaded(w http.ResponseWriter) {
	w.Header().Set("Connection", "close") // what is left of the body is not read
	refuseWith(w, http.StatusServiceUnavailable, budget.Overloaded())
}

// refuse answers for HTTP itself: the body is a JSON-RPC error all the same.
func refuse(w http.ResponseWriter, status int, message string) {
	refuseWith(w, status, &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: message})
}

func refuseWith(w http.ResponseWriter, status int, e *jsonrpc.Error) {
	onhttp.Answer(w, status, jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), e))
}

// gate checks what comes before the body: where the request comes from, and
// its method.
type gate struct {
	policy  origin.Policy
	methods string // for Allow
}

// open reports whether the request may go on. If not, it is answered.
func (g *gate) open(w http.ResponseWriter, r *http.Request, method string) bool {
	if err := g.policy.Check(r); err != nil {
		refuse(w, http.StatusForbidden, "Forbidden: "+err.Error())
		return false
	}
	if len(r.Header["Origin"]) > 0 {
		g.policy.AllowOrigin(w, r, g.methods, "")
	}
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", g.methods)
	if r.Method == http.MethodOptions {
		slow.AnswerNothing(w, http.StatusNoContent)
		return false
	}
	refuse(w, http.StatusMethodNotAllowed, "Method not allowed: use "+method)
	return false
}

// An owned is the context of a request with an owner: that of the request's context, or
// else the address that the request came from. It is a type because most calls never ask, and an
// owner costs more than the rest of them.
type owned struct {
	callctx.Context

	remote string
}

func withOwner(r *http.Request) context.Context {
	o := &owned{remote: r.RemoteAddr}
	o.Context = callctx.Over(r.Context(), o)
	return o
}

// ContextValue implements callctx.Values.
func (o *owned) ContextValue(key any) (any, bool) {
	if _, ok := key.(owner.ContextKey); !ok {
		return nil, false
	}
	if v := o.Parent().Value(key); v != nil {
		return v, true
	}
	return owner.Address(o.remote), true
}
