package httprpc

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// maxPooled is the largest buffer that is kept for the next request.
const maxPooled = 64 << 10

// NewHandler serves h: each POST carries one message or batch.
func NewHandler(h farcall.Handler, o *Options) http.Handler {
	opts := o.withDefaults()
	return &handler{
		responder: farcall.NewResponder(h, opts.RPC),
		gate:      gate{methods: "POST, OPTIONS", policy: origin.Policy{Origins: opts.Origins, Hosts: opts.Hosts}},
		opts:      opts,
	}
}

type handler struct {
	responder *farcall.Responder
	gate      gate
	opts      Options
	pool      sync.Pool // of *buffers
}

// buffers are the memory of one request and its answer.
type buffers struct {
	in, out []byte
	loan    budget.Loan // holds in, where it is large
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	slow.Limit(h.opts.BodyTimeout).Begin(w, r)
	if !h.gate.open(w, r, http.MethodPost) {
		return
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		w.Header().Set("Accept-Post", jsonType) // W3C LDP §7.1
		refuse(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json, charset utf-8")
		return
	}
	gzipped, ok := h.encoded(w, r)
	if !ok {
		return
	}
	b, _ := h.pool.Get().(*buffers)
	if b == nil {
		b = &buffers{in: make([]byte, 0, 1<<10), loan: budget.Lend(h.opts.Budget)}
	}
	defer h.release(b)
	if err := h.read(w, r, b, gzipped); err != nil {
		h.unread(w, r, b, err)
		return
	}
	slow.Limit(h.opts.BodyTimeout).End(w, r)
	ctx := farcall.WithTraceHeader(withOwner(r), r.Header)
	if acceptsEvents(r.Header["Accept"]) {
		e := events{w: w, keepAlive: h.opts.KeepAlive, rpc: h.opts.RPC}
		defer e.end()
		b.out = h.responder.Respond(ctx, b.out, b.in, e.send)
		if e.started {
			if len(b.out) > 0 {
				_ = e.send(b.out) // the caller has gone
			}
			return
		}
	} else {
		b.out = h.responder.Respond(ctx, b.out, b.in, nil)
	}
	answer(w, h.encode(w, r, b.out))
}

// read reads the body of a request.
func (h *handler) read(w http.ResponseWriter, r *http.Request, b *buffers, gzipped bool) (err error) {
	body, size := slow.Limit(h.opts.BodyTimeout).Body(w, r), r.ContentLength
	if gzipped {
		body, size = inflate(body, h.opts.MaxMessage), -1
	}
	b.in, err = b.loan.ReadAll(b.in, body, size, h.opts.MaxMessage, budget.Body(w, r))
	return err
}

func (h *handler) release(b *buffers) {
	if cap(b.in) > maxPooled {
		b.in = nil
	}
	if cap(b.out) > maxPooled {
		b.out = nil
	}
	b.in, b.out = b.in[:0], b.out[:0]
	if b.loan.Release() {
		h.pool.Put(b)
	}
}

// unread answers a request when its body could not be read.
func (h *handler) unread(w http.ResponseWriter, r *http.Request, b *buffers, err error) {
	var bounded *http.MaxBytesError
	switch {
	case errors.Is(err, budget.ErrNoRoom), b.loan.Evicted():
		overloaded(w)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestTimeout, "The body took too long")
	case errors.Is(err, budget.ErrTooLarge):
		refuseWith(w, http.StatusRequestEntityTooLarge, jsonrpc.Oversize("Request", int64(h.opts.MaxMessage), "bytes"))
	case errors.As(err, &bounded): // by what is around the handler
		refuseWith(w, http.StatusRequestEntityTooLarge, jsonrpc.Oversize("Request", bounded.Limit, "bytes"))
	case errors.Is(err, errGzip):
		refuse(w, http.StatusBadRequest, "The body is not valid gzip, as its Content-Encoding says")
	case r.Context().Err() == nil:
		refuse(w, http.StatusBadRequest, "The body could not be read")
	}
}

// The headers of an answer are shared: a map entry costs no allocation.
var (
	jsonHeader = []string{jsonType}
	sseHeader  = []string{mediaSSE}
)

// answer writes a plain answer, or 204 when there is none.
func answer(w http.ResponseWriter, body []byte) {
	if len(body) == 0 {
		slow.AnswerNothing(w, http.StatusNoContent)
		return
	}
	header := w.Header()
	header["Content-Type"] = jsonHeader
	if len(body) >= 2<<10 { // net/http counts smaller bodies itself
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	writePatiently(w, body)
}

// writePatiently writes an answer that the buffers of the system may not hold, and
// gives up when the caller takes nothing of it for a time.
func writePatiently(w http.ResponseWriter, body []byte) {
	for part := range slices.Chunk(body, maxPooled) {
		slow.Answer(w)
		if _, err := w.Write(part); err != nil {
			return // the caller has gone
		}
	}
}

// overloaded answers a request when there is no memory for its body.
func overloaded(w http.ResponseWriter) {
	header := w.Header()
	header["Content-Type"] = jsonHeader
	header.Set("Retry-After", "1")
	header.Set("Connection", "close") // what is left of the body is not read
	slow.Answer(w)
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), budget.Overloaded()))
}

// refuse answers for HTTP itself: the body is a JSON-RPC error all the same.
func refuse(w http.ResponseWriter, status int, message string) {
	refuseWith(w, status, &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: message})
}

func refuseWith(w http.ResponseWriter, status int, e *jsonrpc.Error) {
	body := jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), e)
	w.Header()["Content-Type"] = jsonHeader
	slow.Answer(w)
	w.WriteHeader(status)
	_, _ = w.Write(body)
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
		g.allowOrigin(w, r)
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

// allowOrigin adds the headers of CORS (Fetch, section 3.3) for an allowed page
// of another host.
func (g *gate) allowOrigin(w http.ResponseWriter, r *http.Request) {
	from := g.policy.Cross(r)
	if from == "" {
		return
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", from)
	header.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return
	}
	header.Set("Access-Control-Allow-Methods", g.methods)
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		header.Set("Access-Control-Allow-Headers", asked)
	}
	header.Set("Access-Control-Max-Age", "600")
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
