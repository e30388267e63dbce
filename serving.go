package farcall

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

// core is what a Peer and a Responder share: how one message becomes a call of
// a handler, and its outcome an answer.
type core struct {
	opts      *Options // with defaults; it does not change, and connections without options share it
	handler   Handler  // with the interceptors around it; nil serves nothing
	mux       *Mux     // the handler without them, when it is a Mux
	responder *Responder
	unlisted  atomic.Pointer[unlisted] // nil: nothing so far; see others
	observer  *observe.Observer        // nil: none
	clock     clock
}

func (c *core) init(h Handler, o *Options) {
	c.handler, c.opts = h, o.withDefaults()
	c.mux, _ = h.(*Mux)
	c.observer = observe.Join(c.opts.Observer, recorder(c.opts.OnRecord))
	for i := len(c.opts.Interceptors) - 1; i >= 0 && h != nil; i-- {
		c.handler = c.opts.Interceptors[i](c.handler)
	}
}

// lookup finds the statistics of a method, and its name without allocating
// when the method is known.
func (c *core) lookup(method []byte) (name string, l *load) {
	if c.mux != nil {
		if e := c.mux.find(method); e != nil {
			return e.name, &e.load
		}
	}
	o := c.others()
	return o.names.of(method), &o.load
}

// unlisted is what is known of the methods of a handler that is not a Mux, and of those that a
// Mux does not have.
type unlisted struct {
	load  load
	names names
}

// others returns c.unlisted, and makes it first if necessary: most connections never need it.
func (c *core) others() *unlisted {
	if o := c.unlisted.Load(); o != nil {
		return o
	}
	c.unlisted.CompareAndSwap(nil, new(unlisted))
	return c.unlisted.Load()
}

// names remembers the names of some methods that no Mux knows, so that the calls of a few methods
// do not allocate them. The methods that a peer makes up take no more room than a few names.
type names [8]atomic.Pointer[string]

// longestName bounds the names that are remembered.
const longestName = 64

func (n *names) of(method []byte) string {
	if len(method) == 0 || len(method) > longestName {
		return string(method)
	}
	at := &n[(len(method)+int(method[len(method)-1]))%len(n)]
	if known := at.Load(); known != nil && *known == string(method) {
		return *known
	}
	name := string(method)
	at.Store(&name)
	return name
}

// serving is one request or notification that is being handled. It is also the
// context that its handler gets: its own type, for with a callctx.Context it would be in a larger
// size class, 32 bytes for each call (mcp.TestCallBytes). With a Peer that ends when the call is
// cancelled, when the connection ends, and when the handler has returned; else with the
// Responder's.
type serving struct {
	parent context.Context //nolint:containedctx // it is a context itself

	core   *core
	peer   *Peer // nil under a Responder
	push   *pusher
	req    Request
	load   *load
	size   int                          // bytes booked against MaxInFlightBytes
	batch  *batchWork                   // the batch that it is an element of
	inline atomic.Uint64                // the turn of the reader in which it runs; 0 when it does not
	seen   atomic.Pointer[observation]  // nil: it is not observed, or not any more
	extra  atomic.Pointer[servingExtra] // nil: it has none of these
	// answered is apart from extra because a guard with an audit wants to know of each answer. See
	// OnAnswer; nil when it was called.
	answered func(result jsonrpc.Raw, err error)
	parked   atomic.Int32 // its own calls that it waits for
	silent   atomic.Bool  // the caller does not want the answer any more
	end      callctx.End  // the Peer's
}

// servingExtra is what calls in traces and captures need, and a pointer to the rest. It is apart
// from a serving, and servingRare from it, so that the others, which may be many, have no memory
// for it.
type servingExtra struct {
	span   observe.Span // in which it is handled; it is set before the handler runs, as is number
	number uint64       // observe.Call.Number
	rare   atomic.Pointer[servingRare]
}

// servingRare is what few calls need.
type servingRare struct {
	// takes the values of a streaming method; nil: they go where the caller wants
	item  func(jsonrpc.Raw) error
	opens *subscriber // what its answer opens; nil: nothing
	// the owner of its scarce place of the Responder; nil: it has none
	scarce atomic.Pointer[owner.Key]
	// how to report progress; nil: not asked for, or not known yet. Under end
	report *report
	work   atomic.Pointer[workDone] // what the handler has reported; nil: nothing so far
}

// needExtra returns s.extra and makes it first if necessary.
func (s *serving) needExtra() *servingExtra { return needed(&s.extra) }

// rare returns what few calls need; nil: it has none of these.
func (s *serving) rare() *servingRare {
	if x := s.extra.Load(); x != nil {
		return x.rare.Load()
	}
	return nil
}

// needRare returns s.rare and makes it first if necessary.
func (s *serving) needRare() *servingRare { return needed(&s.needExtra().rare) }

func needed[T any](p *atomic.Pointer[T]) *T {
	if x := p.Load(); x != nil {
		return x
	}
	p.CompareAndSwap(nil, new(T))
	return p.Load()
}

// opens returns the subscription that the answer opens; nil: none.
func (s *serving) opens() *subscriber {
	if x := s.rare(); x != nil {
		return x.opens
	}
	return nil
}

type servingKey struct{}

func servingFrom(ctx context.Context) *serving {
	s, _ := ctx.Value(servingKey{}).(*serving)
	return s
}

// Parent returns the context that s is over.
func (s *serving) Parent() context.Context { return s.parent }

// Deadline implements context.Context: it is the parent's.
func (s *serving) Deadline() (time.Time, bool) { return s.parent.Deadline() }

// Done implements context.Context.
func (s *serving) Done() <-chan struct{} {
	if s.peer == nil {
		return s.parent.Done()
	}
	return s.end.Done()
}

// Err implements context.Context.
func (s *serving) Err() error {
	if s.peer == nil {
		return s.parent.Err()
	}
	return s.end.Err()
}

// AfterFunc lets package context derive from this context without a goroutine.
func (s *serving) AfterFunc(f func()) (stop func() bool) {
	if s.peer == nil {
		return context.AfterFunc(s.parent, f)
	}
	return s.end.AfterFunc(f)
}

// Value implements context.Context.
func (s *serving) Value(key any) any {
	if v, ok := s.ContextValue(key); ok {
		return v
	}
	return s.end.Values(s.parent).Value(key)
}

// ContextValue returns what the call adds to the values of its parent.
func (s *serving) ContextValue(key any) (any, bool) {
	switch key.(type) {
	case servingKey:
		return s, true
	case traceKey:
		if t := s.trace(); t != (Trace{}) {
			whole := t.or(TraceFrom(s.Parent())) // t itself must not escape where there is none
			return &whole, true
		}
	case spanKey:
		if span := s.span(); span != nil {
			return span, true
		}
	case callctx.Numbered:
		if x := s.extra.Load(); x != nil && x.number > 0 {
			return &x.number, true
		}
	case callctx.Observed:
		if at := s.observation(); at != nil {
			return &at.call, true
		}
	}
	return nil, false
}

// trace returns the trace context that came in the message. Once the handler has
// returned there is none: the memory of the message may be in use for another.
func (s *serving) trace() (t Trace) {
	s.end.Before(func() { t = messageTrace(s.req.msg) })
	return t
}

// cancel ends the context. Only the first call counts.
func (s *serving) cancel(err error) { s.end.Cancel(err) }

// call runs the handler and appends the answer to dst. A notification appends
// nothing.
func (s *serving) call(dst []byte) []byte {
	var start time.Time
	sample := s.load.sample()
	if sample || s.core.observer != nil {
		start = s.core.clock.now()
	}
	s.begin(start)
	result, err := s.invoke()
	at := len(dst)
	dst, wire := s.answer(dst, result, err)
	if s.silent.Load() {
		dst = dst[:at]
		if sub := s.opens(); sub != nil {
			sub.close()
		}
	}
	if sample {
		s.load.timed(time.Since(start))
	}
	s.finish(wire, err, dst[at:], len(dst)-at)
	return dst
}

// invoke calls the handler and turns a panic into an error.
func (s *serving) invoke() (result any, err error) {
	if s.core.handler == nil {
		return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound, "Method not found")
	}
	defer func() {
		if r := recover(); r != nil {
			err = s.panicked(r)
		}
		s.workEnded()
	}()
	s.req.call = s
	ctx := s.context()
	if limit, ok := s.core.opts.Dialect.timeout(s.req.msg); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return s.core.handler.ServeRPC(ctx, &s.req)
}

// panicked logs a panic with its stack and returns the error to answer with.
func (s *serving) panicked(r any) *jsonrpc.Error {
	s.core.logger().ErrorContext(s.context(), "handler panicked", "method", s.req.Method, "id",
		s.req.ID.String(),
		"panic", r, "stack", string(debug.Stack()))
	return &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error", Cause: panicError{r}}
}

// goexit appends the answer of a handler that ended its goroutine.
func (s *serving) goexit(dst []byte) []byte {
	at, err := len(dst), s.panicked("the handler called runtime.Goexit")
	dst, wire := s.answer(dst, nil, err)
	s.finish(wire, err, dst[at:], len(dst)-at)
	return dst
}

// panicError is the cause of an error that is logged already.
type panicError struct{ value any }

func (e panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// answer appends the answer to dst and returns the error in it, if it is one.
func (s *serving) answer(dst []byte, result any, err error) (out []byte, wire *jsonrpc.Error) {
	defer func() {
		if r := recover(); r != nil { // the handler's types: MarshalJSON, Error, Unwrap
			out, wire = dst, s.panicked(r)
			if !s.req.IsNotification() {
				out = s.req.msg.Version.AppendError(dst, s.req.ID, wire)
			}
			s.ended(nil, wire)
		}
	}()
	id, v := s.req.ID, s.req.msg.Version
	if err == nil && !id.IsAbsent() {
		var ok bool
		if out, err, ok = s.result(dst, result); ok {
			return out, nil
		}
	}
	if err == nil {
		s.ended(nil, nil)
		return dst, nil
	}
	wire = wireError(err, s.core.opts.Errors, s.core.opts.Details)
	s.core.logInternal(s.context(), wire, err)
	s.ended(nil, wire)
	if id.IsAbsent() {
		return dst, wire
	}
	return v.AppendError(dst, id, wire), wire
}

func (s *serving) result(dst []byte, result any) (_ []byte, err error, ok bool) {
	switch r := result.(type) {
	case jsonrpc.Raw:
		if r == nil {
			r = jsonrpc.Raw("null")
		}
		s.ended(r, nil)
		return s.req.msg.Version.AppendResult(dst, s.req.ID, r), nil, true
	case nil:
		s.ended(jsonrpc.Raw("null"), nil)
		return s.req.msg.Version.AppendResult(dst, s.req.ID, jsonrpc.Raw("null")), nil, true
	}
	buf := getBuffer()
	defer putBuffer(buf)
	if *buf, err = jsonv2.Append((*buf)[:0], result); err != nil {
		return dst, err, false
	}
	s.ended(*buf, nil)
	return s.req.msg.Version.AppendResult(dst, s.req.ID, *buf), nil, true
}

// ended calls what OnAnswer was given, once.
func (s *serving) ended(result jsonrpc.Raw, err error) {
	if f := s.answered; f != nil {
		s.answered = nil
		f(result, err)
	}
}

// errUnanswered is what OnAnswer tells of a handler that ended its goroutine.
var errUnanswered = &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error"}

// OnAnswer has f called once, with the answer to the call that the handler with the context ctx
// serves: after a stream has ended, and also when the handler panics, calls runtime.Goexit, was
// cancelled, or handles a notification, which has neither result nor error. The error is a
// *[jsonrpc.Error] in the end, and f must not keep the result. For an interceptor that needs to
// know what became of a call: what next returned to it may still have to run. It is to be called
// before the handler returns, by its goroutine. Without such a context it returns false, and f is
// not called.
func OnAnswer(ctx context.Context, f func(result jsonrpc.Raw, err error)) bool {
	s := servingFrom(ctx)
	if s == nil {
		return false
	}
	if before := s.answered; before != nil {
		after := f
		f = func(result jsonrpc.Raw, err error) {
			after(result, err)
			before(result, err)
		}
	}
	s.answered = f
	return true
}

// logger takes the failures of handlers.
func (c *core) logger() *slog.Logger {
	if c.opts.Logger != nil {
		return c.opts.Logger
	}
	return slog.Default()
}

// logInternal logs what the wire does not tell.
func (c *core) logInternal(ctx context.Context, wire *jsonrpc.Error, err error) {
	if wire.Code != jsonrpc.InternalError || wire.Cause == nil {
		return
	}
	if _, logged := wire.Cause.(panicError); logged { //nolint:errorlint // ours, never wrapped
		return
	}
	method := ""
	if s := servingFrom(ctx); s != nil {
		method = s.req.Method
	}
	c.logger().ErrorContext(ctx, "handler failed", "method", method, "error", err)
}

// refused appends the answer to a message or frame that is not valid, and
// records it.
func (c *core) refused(
	ctx context.Context, dst []byte, m *jsonrpc.Message, e *jsonrpc.Error, inBatch bool,
) []byte {
	wire := wireError(e, nil, c.opts.Details)
	at := len(dst)
	id := m.ID
	if id.IsAbsent() {
		id = jsonrpc.NullID()
	}
	dst = m.Version.AppendError(dst, id, wire)
	c.observeRefusal(ctx, m, e, id, wire.Code, dst[at:], inBatch)
	return dst
}

// CallerFrom returns the end that called, so that a handler can call and notify
// it. Outside a handler, and where the transport cannot call back, its calls
// fail with ErrNoCallback. Its Done is nil where it cannot be pushed to once the
// handler has returned. In the producer of a subscription it is the subscriber.
func CallerFrom(ctx context.Context) Caller {
	s := servingFrom(ctx)
	if l, ok := ctx.Value(lastingKey{}).(*lasting); ok && s == nil {
		return l.peer
	}
	switch {
	case s == nil:
		return (*pusher)(nil)
	case s.peer != nil:
		return s.peer
	default:
		return s.push
	}
}

// A sink takes the values of a streaming method while its handler runs, so that interceptors
// surround all of the call. The values go to item where there is one, else out as progress when the
// caller asked for it, and else into the array that is the answer.
type sink struct {
	call   *serving                // nil: the handler was called by a program itself
	item   func(jsonrpc.Raw) error // of Responder.Stream
	asked  bool                    // the caller asked for progress
	values jsonrpc.Raw             // the array so far
	count  int
}

// newSink returns the sink of a request.
func newSink(req *Request) *sink {
	k := &sink{call: req.call}
	if s := req.call; s != nil {
		s.req.streams = true
		if x := s.rare(); x != nil {
			k.item = x.item
		}
		if k.item == nil {
			k.asked = s.reporting() != nil
		}
	}
	return k
}

// put takes a value. Its error is for the handler to return: the caller has gone, the context has
// ended, or the value has no JSON.
func (k *sink) put(ctx context.Context, v any) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if k.count++; k.call != nil && (k.item != nil || k.asked) {
		k.call.req.Observed().Event("value")
	}
	switch {
	case k.item != nil:
		raw, err := jsonv2.Append(nil, v)
		if err != nil {
			return err
		}
		return k.item(raw)
	case k.asked:
		return Progress(ctx, v)
	case len(k.values) == 0:
		k.values = append(k.values, '[')
	default:
		k.values = append(k.values, ',')
	}
	if k.values, err = jsonv2.Append(k.values, v); err != nil {
		return err
	}
	if k.call != nil && len(k.values) > k.call.core.opts.MaxUnsent {
		e := jsonrpc.Oversize("Answer", int64(k.call.core.opts.MaxUnsent), "bytes")
		e.Message += ": the stream is longer than an answer may be; ask for progress to get it in parts"
		return e
	}
	return nil
}

// result returns the answer of a sequence that has ended: null when its values went elsewhere.
func (k *sink) result() any {
	switch {
	case k.item != nil || k.asked:
		return nil
	case k.count == 0:
		return jsonrpc.Raw("[]")
	}
	return append(k.values, ']')
}
