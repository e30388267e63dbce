package farcall

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

// observation is what the observer has of one call, from a pool.
type observation struct {
	call observe.Call
	ctx  context.Context //nolint:containedctx // that Observer.Start has returned
}

// clock tells the time of calls. It reads the monotonic clock alone, where time.Now reads the
// clock of the day as well, which takes twice as long; that one is read once a second.
type clock struct{ read atomic.Pointer[time.Time] }

func (c *clock) now() time.Time {
	if last := c.read.Load(); last != nil {
		if since := time.Since(*last); since < time.Second {
			return last.Add(since)
		}
	}
	now := time.Now()
	c.read.Store(&now)
	return now
}

// observations lends them. It is a table of memory, not state.
var observations = sync.Pool{New: func() any { return new(observation) }}

func getObservation() *observation { return observations.Get().(*observation) } //nolint:errcheck // only those are in it

func (at *observation) put() {
	*at = observation{}
	observations.Put(at)
}

// recorder makes an observer of Options.OnRecord.
func recorder(record func(context.Context, Record)) *observe.Observer {
	if record == nil {
		return nil
	}
	end := func(ctx context.Context, c *observe.Call) {
		if c.Outgoing && c.BytesOut == 0 {
			return // it could not be marshalled: there was no message
		}
		record(ctx, Record{
			Transport: c.Transport, Conn: c.Conn, ID: c.ID, Method: c.Method, Code: c.Code, Err: c.Err,
			Latency: c.Took,
			BytesIn: c.BytesIn, BytesOut: c.BytesOut, Request: c.Request, Response: c.Response,
			Notification: c.Notification, Batch: c.Batch, Outgoing: c.Outgoing,
		})
	}
	return &observe.Observer{End: end, Refuse: end, Messages: true}
}

// Observed returns what an observer sees of the call, for handlers and interceptors that know more
// of it, or nil when there is no observer. Its fields may be set until the handler returns.
func (r *Request) Observed() *observe.Call {
	if r.call == nil {
		return nil
	}
	if at := r.call.observation(); at != nil {
		return &at.call
	}
	return nil
}

// newServing begins the call of a message that arrived.
func (c *core) newServing(ctx context.Context, m *jsonrpc.Message) *serving {
	if c.observer == nil || !c.observer.Traces {
		v := new(serving)
		c.fill(ctx, v, m)
		return v
	}
	both := new(struct {
		serving
		servingExtra
	})
	both.extra.Store(&both.servingExtra)
	c.fill(ctx, &both.serving, m)
	return &both.serving
}

func (c *core) fill(ctx context.Context, v *serving, m *jsonrpc.Message) {
	v.parent, v.core, v.req = ctx, c, newRequest(m)
	v.req.Method, v.load = c.lookup(m.Method)
	if c.observer != nil {
		v.seen.Store(getObservation())
	}
}

// observation returns that of the call; nil: there is none, or it has ended.
func (s *serving) observation() *observation { return s.seen.Load() }

// context is that of the handler.
func (s *serving) context() context.Context {
	if at := s.observation(); at != nil && at.ctx != nil {
		return at.ctx
	}
	return s
}

// begin tells the observer that the handler is about to run.
func (s *serving) begin(now time.Time) {
	at := s.observation()
	if at == nil {
		return
	}
	o, call := s.core.opts, &at.call
	call.Transport, call.Conn = o.Transport, o.Conn
	call.ID, call.Method, call.Began = s.req.ID, s.req.Method, now
	call.Known = s.load != &s.core.others().load
	call.Notification, call.Batch = s.req.IsNotification(), s.req.batch
	call.BytesIn, call.Request = len(s.req.msg.Raw), s.req.msg.Raw
	traces := s.core.observer.Traces
	if traces {
		setCallers(s.Parent(), call, s.req.msg)
	}
	at.ctx = started(s, s.core.observer, call)
	if call.Number > 0 {
		s.needExtra().number = call.Number
	}
	if traces {
		switch x := s.extra.Load(); {
		case call.Span.IsSet():
			x.span = call.Span
		case call.Caller.IsSet():
			x.span = call.Caller
		}
	}
}

// setCallers sets Caller and Linked of the call of a message that arrived with a context.
func setCallers(ctx context.Context, call *observe.Call, m *jsonrpc.Message) {
	header, _ := ctx.Value(spanKey{}).(*observe.Span)
	switch said := messageSpan(m, &call.Caller); {
	case header == nil:
	case !said:
		call.Caller = *header
	case call.Caller != *header && !header.Local:
		call.Linked = *header
	}
}

// span returns that in which the handler makes calls; nil: neither an observer nor the message has
// said so.
func (s *serving) span() *observe.Span {
	if x := s.extra.Load(); x != nil && x.span.IsSet() {
		return &x.span
	}
	span, said := new(observe.Span), false
	s.end.Before(func() { said = messageSpan(s.req.msg, span) })
	if !said {
		return nil
	}
	return span
}

// finish tells the observer how the call has ended. The observation ends with it: what a handler
// has left behind finds none in its context.
func (s *serving) finish(wire *jsonrpc.Error, err error, response []byte, out int) {
	at := s.observation()
	if at == nil {
		return
	}
	s.seen.Store(nil)
	defer at.put()
	if s.core.observer.End == nil {
		return
	}
	call := &at.call
	if wire != nil {
		call.Code, call.Err = wire.Code, err
	}
	call.Took = time.Since(call.Began)
	call.BytesOut, call.Response = out, response
	s.core.observer.End(at.ctx, call)
}

func started(ctx context.Context, o *observe.Observer, call *observe.Call) context.Context {
	if o.Start == nil {
		return ctx
	}
	return o.Start(ctx, call)
}

// observeRefusal tells the observer of what is answered with e and reaches no handler.
func (c *core) observeRefusal(
	ctx context.Context, m *jsonrpc.Message, e *jsonrpc.Error, id jsonrpc.ID, code jsonrpc.Code,
	response []byte, inBatch bool,
) {
	if c.observer == nil {
		return
	}
	if m.Kind == jsonrpc.Invalid {
		c.observeBad(m.Raw, problemKind(code))
	}
	if c.observer.Refuse == nil {
		return
	}
	call := &observe.Call{
		Transport: c.opts.Transport, Conn: c.opts.Conn, ID: id, Method: string(m.Method),
		Began: time.Now(),
		Known: c.mux != nil && c.mux.find(m.Method) != nil, Batch: inBatch,
		Code: code, Err: e, BytesIn: len(m.Raw), BytesOut: len(response), Request: m.Raw,
		Response: response,
	}
	if c.observer.Traces && m.Kind != jsonrpc.Invalid {
		setCallers(ctx, call, m)
	}
	c.observer.Refuse(ctx, call)
}

// What is wrong with a frame: see observe.Observer.Bad.
const (
	problemSyntax  = "syntax"
	problemMessage = "message"
	problemSize    = "size"
	problemRead    = "read"

	problemLate      = "late answer"
	problemDuplicate = "duplicate answer"
	problemUnknown   = "unknown answer"
)

func problemKind(code jsonrpc.Code) string {
	switch code {
	case jsonrpc.ParseError:
		return problemSyntax
	case jsonrpc.TooLarge:
		return problemSize
	case jsonrpc.InvalidRequest:
		return problemMessage
	}
	return problemRead
}

func (c *core) observeBad(frame []byte, problem string) {
	if c.observer != nil && c.observer.Bad != nil {
		c.observer.Bad(observe.Frame{Transport: c.opts.Transport, Conn: c.opts.Conn, Data: frame},
			problem)
	}
}

func (c *core) observeFrame(frame []byte, out bool) {
	if c.observer != nil && c.observer.Frame != nil {
		c.observer.Frame(
			observe.Frame{Transport: c.opts.Transport, Conn: c.opts.Conn, Out: out, Data: frame})
	}
}

// observeOut tells the observer of the frames that are about to be written.
func (p *Peer) observeOut(out *outbox) {
	if p.observer == nil || p.observer.Frame == nil {
		return
	}
	for _, frame := range out.frames {
		p.observeFrame(frame, true)
	}
}

func (p *Peer) observeOpen() {
	if p.observer != nil && p.observer.Open != nil {
		p.observer.Open(observe.Lifetime{Kind: observe.Connection, Transport: p.opts.Transport})
	}
}

func (p *Peer) observeClose() {
	if p.observer != nil && p.observer.Close != nil {
		p.observer.Close(observe.Lifetime{Kind: observe.Connection, Transport: p.opts.Transport})
	}
}

// observedCall makes the memory of a call with an observation.
func observedCall() *call {
	both := new(struct {
		call
		callExtra
	})
	both.seen, both.extra = getObservation(), &both.callExtra
	return &both.call
}

// begin tells the observer of a call or notification of ours, and returns the context with which to
// send it.
func (at *observation) begin(
	ctx context.Context, p *Peer, method string, batch bool,
) context.Context {
	call := &at.call
	call.Outgoing, call.Batch = true, batch
	call.Transport, call.Conn = p.opts.Transport, p.opts.Conn
	call.Method, call.Began = method, p.clock.now()
	if p.observer.Traces {
		call.Caller = spanOf(ctx)
	}
	at.ctx = started(ctx, p.observer, call)
	return at.ctx
}

// observeCall begins the observation of a call, if there is an observer. done ends it.
func (p *Peer) observeCall(
	ctx context.Context, c *call, method string, batch bool,
) context.Context {
	at := c.extras().seen
	if at == nil {
		return ctx
	}
	at.call.ID = c.wire()
	return at.begin(ctx, p, method, batch)
}

// observeNote is observeCall for a notification. The observation is nil without an observer.
func (p *Peer) observeNote(
	ctx context.Context, method string, batch bool,
) (context.Context, *observation) {
	if p.observer == nil {
		return ctx, nil
	}
	at := getObservation()
	at.call.Notification = true
	return at.begin(ctx, p, method, batch), at
}

// sent notes the message.
func (at *observation) sent(p *Peer, request []byte) {
	if at == nil {
		return
	}
	at.call.BytesOut = len(request)
	if p.observer.Sent != nil {
		at.call.Request = request
		p.observer.Sent(at.ctx, &at.call)
		at.call.Request = nil
	}
	if p.observer.Messages {
		at.call.Request = bytes.Clone(request)
	}
}

// answeredBy notes the answer.
func (c *call) answeredBy(m *jsonrpc.Message) {
	at := c.extras().seen
	if at == nil {
		return
	}
	at.call.BytesIn = len(m.Raw)
	if c.peer.observer.Messages {
		at.call.Response = bytes.Clone(m.Raw)
	}
}

// done tells the observer what became of the call.
func (at *observation) done(p *Peer, err error) {
	if at == nil {
		return
	}
	defer at.put()
	if p.observer.End == nil {
		return
	}
	call := &at.call
	call.Err, call.Took = err, time.Since(call.Began)
	if err != nil {
		call.Code = codeOf(err)
	}
	p.observer.End(at.ctx, call)
}

// codeOf returns the code of the error that a call has failed with.
func codeOf(err error) jsonrpc.Code {
	if wire := new(jsonrpc.Error); errors.As(err, &wire) {
		return wire.Code
	}
	return translate(err, nil).Code
}

// observedBatch is the observations of a batch of ours, by element; nil without an observer.
type observedBatch struct {
	all    []*observation
	failed error // why none of it was sent
}

func (p *Peer) observeBatch(n int) *observedBatch {
	if p.observer == nil {
		return nil
	}
	return &observedBatch{all: make([]*observation, 0, n)}
}

// begin begins the observation of the next element: c is its call unless it is a notification.
func (o *observedBatch) begin(
	ctx context.Context, p *Peer, b *BatchCall, c *call,
) (context.Context, *observation) {
	if o == nil {
		return ctx, nil
	}
	var at *observation
	if c == nil {
		ctx, at = p.observeNote(ctx, b.Method, true)
	} else {
		ctx, at = p.observeCall(ctx, c, b.Method, true), c.extras().seen
	}
	o.all = append(o.all, at)
	return ctx, at
}

// unsent notes that the batch was not sent, because one of its elements could not be marshalled.
func (o *observedBatch) unsent(err error) {
	if o == nil {
		return
	}
	o.failed = err
	for _, at := range o.all {
		at.call.BytesOut, at.call.Request = 0, nil
	}
}

// done ends the observations of the elements that have begun.
func (o *observedBatch) done(p *Peer, calls []*BatchCall) {
	if o == nil {
		return
	}
	for i, at := range o.all {
		if o.failed != nil {
			at.done(p, o.failed)
			continue
		}
		at.done(p, calls[i].Err)
	}
}
