package farcall

import (
	"context"
	"reflect"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Handler answers calls and takes notifications. It must be safe for
// concurrent use.
//
// The result is any value that marshals to JSON; a [jsonrpc.Raw] goes out as it
// is. An error that is, or wraps, a *[jsonrpc.Error] is sent as that error, but
// not one that a call of the handler was answered with: see [PassOn]. An error
// type that was registered with [MapError] is sent as registered. Any other error
// is sent as [jsonrpc.InternalError] without its text, which goes to the log only.
// What is returned for a notification is dropped.
type Handler interface {
	ServeRPC(ctx context.Context, req *Request) (any, error)
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, req *Request) (any, error)

// ServeRPC calls f.
func (f HandlerFunc) ServeRPC(ctx context.Context, req *Request) (any, error) { return f(ctx, req) }

// An Interceptor wraps a handler in another one that runs before and after it.
// Before next.ServeRPC returns, a streaming method has sent all of its values: its
// late error is next's, and a context that ends when the interceptor returns is of
// no harm. What next returns of a streaming method is nil when its values went out
// as progress, else the array of them, a [jsonrpc.Raw].
type Interceptor func(next Handler) Handler

// Request is one call or notification that arrived, or, for
// Options.CallInterceptors, one to send. Its slices are valid until the handler
// returns.
type Request struct {
	Method string
	ID     jsonrpc.ID  // absent for a notification; null when it is to be sent: each attempt gets its own
	Params jsonrpc.Raw // nil when absent or null

	batch   bool
	streams bool            // the method turned out to stream
	version jsonrpc.Version // of the message
	call    *serving        // nil: it was made by a program, not by a message
	msg     *jsonrpc.Message
	entry   *entry       // of the method, where a Mux has found it
	more    *requestMore // nil: it has none of these
}

// requestMore is what few requests have.
type requestMore struct {
	part  *batchPart // of a batch to send
	space *namespace // it subscribes to the method, in there
}

// newRequest returns the request of a message that arrived.
func newRequest(m *jsonrpc.Message) Request {
	return Request{ID: m.ID, Params: m.Params, msg: m, version: m.Version}
}

// IsNotification reports whether the caller wants no answer.
func (r *Request) IsNotification() bool { return r.ID.IsAbsent() }

// InBatch reports whether the request came in a batch.
func (r *Request) InBatch() bool { return r.batch }

// Member returns a top-level member of the message that JSON-RPC does not
// define, such as "traceparent", or nil.
func (r *Request) Member(name string) jsonrpc.Raw {
	if r.msg == nil {
		return nil
	}
	return r.msg.Member(name)
}

// HandleNotification adds a method that is only notified: there is no answer, and an error goes to
// the log. Params are bound as for [Handle], which a method that may be notified and called has. A
// request for it is answered with [jsonrpc.MethodNotFound]. Notifications of one connection are
// handled one after the other, in their order.
func HandleNotification[P any](m *Mux, method string, f func(context.Context, P) error, doc ...string) {
	h := &notified[P]{types: describe[P, struct{}](method, false), f: f}
	h.types.notification = true
	m.add(&entry{name: method, handler: h, doc: doc, types: h.types})
}

type notified[P any] struct {
	types *signature
	f     func(context.Context, P) error
}

// ServeRPC implements Handler.
func (h *notified[P]) ServeRPC(ctx context.Context, req *Request) (any, error) {
	if !req.IsNotification() {
		return nil, &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "Method not found", Cause: onlyNotifiedError(req.Method)}
	}
	var p P
	if err := h.types.params.Load().bind(reflect.ValueOf(&p).Elem(), req.Params); err != nil {
		return nil, err
	}
	return nil, h.f(ctx, p)
}

type onlyNotifiedError string

func (m onlyNotifiedError) Error() string {
	return "the method " + string(m) + " is a notification: send it without an id"
}
