package farcall

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
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
	// absent for a notification; null when it is to be sent: each attempt gets its own
	ID     jsonrpc.ID
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
func HandleNotification[P any](
	m *Mux, method string, f func(context.Context, P) error, doc ...string,
) {
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
		return nil, &jsonrpc.Error{
			Code: jsonrpc.MethodNotFound, Message: "Method not found",
			Cause: onlyNotifiedError(req.Method),
		}
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

// What a call carries beside its params: the members that JSON-RPC does not define. Each stands in
// the message itself or, where the dialect has a Meta, in that member of the params; both are
// understood.
//
//	progressToken    what progress is marked with
//	progressCredit   how much of a stream may be sent, see credit.go
//	traceparent      the trace context, with tracestate and baggage; over HTTP headers
//	metadata         what WithMetadata adds
//	TimeoutMember    of the dialect: how long the caller waits, in milliseconds

// memberMetadata holds an object of strings.
const memberMetadata = "metadata"

// maxMetadata bounds the member metadata.
const maxMetadata = 8 << 10

// extension returns a member that JSON-RPC does not define, from either place; nil when there is
// none.
func extension(m *jsonrpc.Message, name string) jsonrpc.Raw {
	if raw := m.Member(name); raw != nil {
		return raw
	}
	return scan.Member(scan.Member(m.Params, "_meta"), name)
}

// extensions returns the members of a request that JSON-RPC does not define, each with the comma
// before it.
func (p *Peer) extensions(
	ctx context.Context, id jsonrpc.ID, ask asking,
) (extra []byte, err error) {
	if ask.progress {
		// The id is the token: unique, without separate bookkeeping.
		extra = appendMember(extra, "progressToken", id.Raw())
	}
	if ask.credit > 0 {
		extra = appendMember(extra, memberCredit, jsonrpc.IntID(ask.credit).Raw())
	}
	if p.x == nil || p.opts.Dialect.Meta != "" { // otherwise it travels in the headers
		extra = TraceFrom(ctx).appendMembers(extra)
	}
	if !id.IsAbsent() {
		extra = p.opts.Dialect.appendTimeout(ctx, extra)
	}
	return appendMetadata(ctx, extra)
}

type metadataKey struct{}

// WithMetadata returns a context; calls and notifications with it carry a value under a name,
// beside the params: in the member "metadata" of the message, over every transport. Names are up to
// both ends. A call fails when its metadata has more than 8 KiB. It is not passed on: what came
// with a call of a handler goes out with calls of the handler only when it is added again.
//
// It is part of the message, so that it is in Record.Request, and in a log of whole messages.
func WithMetadata(ctx context.Context, name, value string) context.Context {
	all, _ := ctx.Value(metadataKey{}).(map[string]string)
	all = maps.Clone(all)
	if all == nil {
		all = map[string]string{}
	}
	all[name] = value
	return context.WithValue(ctx, metadataKey{}, all)
}

// MetadataFrom returns the metadata that came with the call of a handler, by name; nil when there
// is none, when it has more than 8 KiB, and once the handler has returned. What is no string is
// left out.
func MetadataFrom(ctx context.Context) (all map[string]string) {
	s := servingFrom(ctx)
	if s == nil {
		return nil
	}
	s.end.Before(func() {
		raw := extension(s.req.msg, memberMetadata)
		if len(raw) > maxMetadata {
			return
		}
		for key, value := range scan.Members(raw) {
			if value[0] == '"' {
				if all == nil {
					all = map[string]string{}
				}
				all[string(key)] = string(scan.Unquote(value))
			}
		}
	})
	return all
}

// appendMetadata appends the member of the metadata in a context, if there is any.
func appendMetadata(ctx context.Context, dst []byte) ([]byte, error) {
	all, _ := ctx.Value(metadataKey{}).(map[string]string)
	if len(all) == 0 {
		return dst, nil
	}
	var members []byte
	for name, value := range all {
		members = appendMember(members, name, jsonrpc.AppendString(nil, value))
	}
	if len(members)+1 > maxMetadata {
		return dst, fmt.Errorf("the metadata has %d bytes; at most %d are carried", len(members)+1,
			maxMetadata)
	}
	members[0] = '{'
	return appendMember(dst, memberMetadata, append(members, '}')), nil
}

// maxTimeout bounds what a caller may say, so that it fits a time.Duration.
const maxTimeout = 1 << 40

// appendTimeout appends how long the caller waits, where the dialect has a member for it.
func (d *Dialect) appendTimeout(ctx context.Context, dst []byte) []byte {
	if d.TimeoutMember == "" {
		return dst
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return dst
	}
	ms := min(max(int64(time.Until(deadline)+time.Millisecond-1)/int64(time.Millisecond), 1),
		maxTimeout)
	return appendMember(dst, d.TimeoutMember, jsonrpc.IntID(ms).Raw())
}

// timeout returns how long the caller of a message waits. What is no positive integer is not taken
// for one.
func (d *Dialect) timeout(m *jsonrpc.Message) (limit time.Duration, ok bool) {
	if d.TimeoutMember == "" {
		return 0, false
	}
	ms, ok := positive(extension(m, d.TimeoutMember))
	return time.Duration(min(ms, maxTimeout)) * time.Millisecond, ok
}
