package farcall

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Responder answers frames one at a time, without a connection: it is the
// serving half of transports such as HTTP. It may be used by any number of
// goroutines. Options.MaxInFlight bounds the calls of all of them together, and
// leaves room for others when one caller takes more than its share of the second
// half: alone it has 15 of 16 places, and the elements of its batches wait for one.
// What an Options says of connections does not apply.
type Responder struct {
	core
	places  places
	batches sync.Pool
}

// NewResponder returns a Responder that calls h.
func NewResponder(h Handler, o *Options) *Responder {
	r := new(Responder)
	r.init(h, o)
	r.responder = r
	r.places.init(r.opts.MaxInFlight)
	r.batches.New = func() any { return new(jsonrpc.Batch) }
	return r
}

// Respond handles one frame and appends the answer to dst: nothing when there is
// none to give. push, unless it is nil, sends a frame to the caller before the
// answer: progress, and notifications that handlers send. It is not called
// concurrently, nor after Respond has returned. The context is the handlers'
// context.
func (r *Responder) Respond(
	ctx context.Context, dst, frame []byte, push func(frame []byte) error,
) []byte {
	if r.observer == nil || r.observer.Frame == nil {
		return r.respond(ctx, dst, frame, push)
	}
	r.observeFrame(frame, false)
	at := len(dst)
	if dst = r.respond(ctx, dst, frame, push); len(dst) > at {
		r.observeFrame(dst[at:], true)
	}
	return dst
}

func (r *Responder) respond(
	ctx context.Context, dst, frame []byte, push func(frame []byte) error,
) []byte {
	batch := r.batches.Get().(*jsonrpc.Batch) //nolint:errcheck // only those are in it
	dec := jsonrpc.Decoder{MaxDepth: r.opts.MaxDepth, MaxBatch: r.opts.MaxBatch, AcceptV1: r.opts.V1}
	if err := dec.Decode(frame, batch); err != nil {
		return r.refused(ctx, dst, &jsonrpc.Message{Raw: frame}, err, false)
	}
	if batch.Array {
		out := &pusher{core: &r.core, push: push, version: jsonrpc.V2}
		defer out.end()
		return append(dst, r.respondBatch(ctx, batch.Messages, out)...)
	}
	m := &batch.Messages[0]
	switch m.Kind {
	case jsonrpc.Response:
		return dst // no call waits for it here
	case jsonrpc.Invalid:
		return r.refused(ctx, dst, m, m.Err, false)
	}
	defer r.recycle(batch, len(frame))
	return r.single(ctx, r.newPushing(ctx, m, push), m, dst)
}

// single answers a message that is no batch. In respond, which returns at more places, each of its
// defers would cost several times as much.
func (r *Responder) single(ctx context.Context, v *serving, m *jsonrpc.Message, dst []byte) []byte {
	defer v.push.end()
	if e := r.enter(v); e != nil {
		if v.req.IsNotification() {
			return dst // JSON-RPC 2.0 §4.1: not answered, not even with an error
		}
		return r.refused(ctx, dst, m, e, false)
	}
	defer r.leave(v)
	defer v.cancel(context.Canceled)
	defer v.ended(nil, errUnanswered)
	return v.call(dst)
}

// recycle gives a batch back. The pool would keep a large frame with it.
func (r *Responder) recycle(batch *jsonrpc.Batch, size int) {
	if size <= poolLimit {
		r.batches.Put(batch)
	}
}

// Stream calls a method and gives its values to item: each value of a streaming
// method as it comes, the one result of any other method. The error is the
// handler's, as the wire would carry it, or item's.
func (r *Responder) Stream(
	ctx context.Context, method string, params jsonrpc.Raw, item func(value jsonrpc.Raw) error,
) error {
	start := time.Now()
	m := &jsonrpc.Message{
		Kind: jsonrpc.Request, ID: jsonrpc.IntID(1), Method: []byte(method),
		Params: params,
	}
	m.Raw = m.Version.AppendRequest(nil, m.ID, method, params)
	v := r.newServing(ctx, m, &pusher{})
	defer v.ended(nil, errUnanswered)
	if e := r.enter(v); e != nil {
		return e
	}
	defer r.leave(v)
	sent := 0
	v.needRare().item = func(value jsonrpc.Raw) error {
		sent += len(value)
		return item(value)
	}
	v.begin(start)
	result, err := v.invoke()
	if err == nil && !v.req.streams {
		err = v.single(result)
	}
	var wire *jsonrpc.Error
	if err != nil {
		wire = wireError(err, r.opts.Errors, r.opts.Details)
		r.logInternal(v.context(), wire, err)
	}
	v.finish(wire, err, nil, sent)
	if wire != nil {
		v.ended(nil, wire)
		return wire
	}
	v.ended(nil, nil)
	return nil
}

// single gives the one value of a method that does not stream to item.
func (s *serving) single(result any) (err error) {
	defer func() {
		if r := recover(); r != nil { // the result's MarshalJSON
			err = s.panicked(r)
		}
	}()
	raw, err := jsonv2.Append(nil, result)
	if err != nil {
		return err
	}
	return s.rare().item(raw)
}

func (r *Responder) newServing(ctx context.Context, m *jsonrpc.Message, push *pusher) *serving {
	v := r.core.newServing(ctx, m)
	v.push = push
	return v
}

// newPushing is newServing of a message with its own way back, in one allocation.
func (r *Responder) newPushing(
	ctx context.Context, m *jsonrpc.Message, push func(frame []byte) error,
) *serving {
	if r.observer != nil && r.observer.Traces {
		all := &struct {
			serving
			servingExtra

			out pusher
		}{out: pusher{core: &r.core, push: push, version: jsonrpc.V2}}
		all.push = &all.out
		all.extra.Store(&all.servingExtra)
		r.fill(ctx, &all.serving, m)
		return &all.serving
	}
	both := &struct {
		serving

		out pusher
	}{out: pusher{core: &r.core, push: push, version: jsonrpc.V2}}
	both.push = &both.out
	r.fill(ctx, &both.serving, m)
	return &both.serving
}

// enter takes a place for a call, or refuses it.
func (r *Responder) enter(v *serving) *jsonrpc.Error {
	scarce, e := r.places.enter(v.Parent())
	if scarce != nil {
		v.needRare().scarce.Store(scarce)
	}
	return e
}

func (r *Responder) leave(v *serving) { r.places.leave(v.takeScarce()) }

// takeScarce returns the owner of the scarce place that the call has no more; nil: it had none.
func (s *serving) takeScarce() *owner.Key {
	if x := s.rare(); x != nil {
		return x.scarce.Swap(nil)
	}
	return nil
}

// Waiting notes that the handler with the context waits for something else
// until resume is called: it does not count against MaxInFlight then. The calls
// of a Peer note it themselves; this is for a transport that carries calls back
// beside a Responder. Outside of a handler it does nothing.
func Waiting(ctx context.Context) (resume func()) {
	return pause(ctx).resume // it is so small that it is inlined, and resume is not allocated
}

// pause notes that a handler waits, until resume is called. Nil: there is none.
func pause(ctx context.Context) *serving {
	s := servingFrom(ctx)
	switch {
	case s == nil || s.peer == nil && s.core.responder == nil:
		return nil
	case s.peer != nil:
		s.peer.park(s)
	case s.parked.Add(1) == 1: // a handler that waits for several things at once waits once
		s.core.responder.places.pause(s.takeScarce())
	}
	return s
}

func (s *serving) resume() {
	switch {
	case s == nil:
	case s.peer != nil:
		s.peer.unpark(s)
	case s.parked.Add(-1) == 0:
		s.core.responder.places.resume()
	}
}

// pusher is the way back to a caller while its call is being answered. A nil pusher
// has none.
type pusher struct {
	core    *core // nil: push is
	mu      sync.Mutex
	push    func(frame []byte) error
	version jsonrpc.Version
}

func (p *pusher) send(frame []byte) error {
	if p == nil {
		return ErrNoCallback
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.push == nil {
		return ErrNoCallback
	}
	p.core.observeFrame(frame, true)
	return p.push(frame)
}

// end cuts the way back: the answer follows.
func (p *pusher) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.push = nil
}

// Call implements Caller. It always fails: nothing could carry the answer.
func (p *pusher) Call(_ context.Context, method string, _, _ any) error {
	return fmt.Errorf("farcall: call %q: %w", method, ErrNoCallback)
}

// Done implements Caller: there is no connection.
func (p *pusher) Done() <-chan struct{} { return nil }

// Notify implements Caller.
func (p *pusher) Notify(_ context.Context, method string, params any) error {
	raw, err := appendParams(nil, params)
	if err == nil && p != nil {
		err = p.send(p.version.AppendRequest(nil, jsonrpc.ID{}, method, raw))
	} else if err == nil {
		err = ErrNoCallback
	}
	if err != nil {
		return fmt.Errorf("farcall: notify %q: %w", method, err)
	}
	return nil
}

// places bounds the calls that a Responder handles at once. Half of the places are for who comes
// first; of the other half an owner gets no more than its share, so that one that floods leaves
// room for others. Counting owners costs nothing while places are plenty.
type places struct {
	limit   int
	running atomic.Int64 // but for those that wait
	waiting atomic.Int64

	mu     sync.Mutex
	scarce share.Ledger // the second half
}

// scarceRatio lets one owner alone have seven eighths of the second half.
const scarceRatio = 7

func (p *places) init(limit int) {
	p.limit = limit
	p.scarce.SetBounds(share.Bounds{Total: limit - limit/2, Ratio: scarceRatio})
}

// enter takes a place, or reports why there is none. What it returns is for leave: the owner that
// has one of the scarce places, or nil.
func (p *places) enter(ctx context.Context) (scarce *owner.Key, e *jsonrpc.Error) {
	n := p.running.Add(1)
	switch {
	case p.waiting.Load() >= maxWaiting:
		e = overloaded("the limit of %d requests that wait for their own calls is reached", maxWaiting)
	case n > int64(p.limit):
		e = tooMany(p.limit)
	case n <= int64(p.limit/2):
		return nil, nil
	default:
		o := owner.From(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.scarce.Take(o, 1) {
			return &o, nil
		}
		e = overloaded(
			"more than half of the %d places for requests are taken, and this caller has its share "+
				"of the rest", p.limit)
	}
	p.running.Add(-1)
	return nil, e
}

// leave gives a place back.
func (p *places) leave(scarce *owner.Key) {
	p.running.Add(-1)
	if scarce != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.scarce.Give(*scarce, 1)
	}
}

// pause gives a place back while its call waits for something else.
func (p *places) pause(scarce *owner.Key) {
	p.waiting.Add(1)
	p.leave(scarce)
}

// resume takes the place again, whether there is one or not: the call has begun.
func (p *places) resume() {
	p.running.Add(1)
	p.waiting.Add(-1)
}
