package farcall

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"github.com/farcall-dev/farcall/internal/cancel"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/late"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Caller can call and notify the other end: a Peer, or what CallerFrom
// returns.
type Caller interface {
	// Call calls a method and waits for the answer. The params are marshalled to
	// an object or an array; nil means none. The result is unmarshalled into the
	// value that result points to; nil drops it. A *jsonrpc.Raw takes the bytes.
	//
	// An error that the other end answered wraps a *jsonrpc.Error; every other error
	// is this end's: the context's, ErrClosed, ErrProtocol, or one of marshalling.
	Call(ctx context.Context, method string, params, result any) error
	// Notify sends a notification. It waits when the other end does not read;
	// nil means that it will be written, not that it has arrived.
	Notify(ctx context.Context, method string, params any) error
	// Done is closed when the other end is gone for good. It is nil when there is no
	// connection over which the other end could be pushed to, as over HTTP.
	Done() <-chan struct{}
}

// Call calls a method and returns its result as an R. See [Caller].
func Call[R any](ctx context.Context, c Caller, method string, params any) (R, error) {
	var result R
	err := c.Call(ctx, method, params, &result)
	return result, err
}

// maxID bounds our ids: JavaScript peers keep integers exact up to 2^53 only.
const maxID = 1 << 53

// call is a call of ours that waits for its answer.
type call struct {
	peer   *Peer
	id     uint64
	digits [16]byte      // the id as it is written
	batch  uint64        // the first id of the batch that it belongs to, or its own
	done   chan struct{} // gets one value when result or err is there
	result jsonrpc.Raw
	shared *[]byte // the lent buffer that result is in, if it is in one
	err    error
	reason error      // it was given up before it was registered; the state's
	extra  *callExtra // nil: it has none of these
	raw    bool       // the caller wants the bytes of the result
}

// callExtra is what few calls need. It is apart so that the others have no memory for it.
type callExtra struct {
	queue progressSink // nil: progress is not asked for
	work  workFunc     // nil: work done is not asked for
	opens *opener      // nil: it does not subscribe
	seen  *observation // nil: it is not observed
}

// asking is what a request asks for beside its answer.
type asking struct {
	progress bool
	work     bool
	credit   int64 // how much of a stream may be sent; 0: none is announced
}

// extras returns what c.extra has.
func (c *call) extras() callExtra {
	if c.extra == nil {
		return callExtra{}
	}
	return *c.extra
}

func (c *call) asking() asking {
	x := c.extras()
	a := asking{progress: x.queue != nil, work: x.work != nil}
	if q, ok := x.queue.(*progressQueue); ok {
		a.credit = q.begin(c)
	}
	return a
}

// newCall makes a call. It is not pooled: a channel must not leave the
// testing/synctest bubble that it was made in.
func (p *Peer) newCall(ctx context.Context) (*call, error) {
	var c *call
	if p.observer == nil {
		c = new(call)
	} else {
		c = observedCall()
	}
	c.peer, c.id, c.done = p, p.ids.Add(1), make(chan struct{}, 1)
	if c.id >= maxID {
		return nil, errNoIDs
	}
	c.batch = c.id
	p.fillExtra(ctx, c)
	return c, nil
}

// fillExtra notes what a call with that context needs beside the answer.
func (p *Peer) fillExtra(ctx context.Context, c *call) {
	var x callExtra
	switch v := ctx.Value(progressKey{}).(type) {
	case progressSink:
		x.queue = v
	case *opener:
		x.opens = v
	}
	if p.opts.Dialect.ProgressValue != "" {
		x.work, _ = ctx.Value(workKey{}).(workFunc)
	}
	if x.queue == nil && x.work == nil && x.opens == nil {
		return
	}
	if c.extra == nil {
		c.extra = new(callExtra)
	}
	c.extra.queue, c.extra.work, c.extra.opens = x.queue, x.work, x.opens
}

var _ late.Call = (*call)(nil)

// GiveUp implements late.Call.
func (c *call) GiveUp(reason error) {
	if c.peer.abandon(c.peer.ctx, c, reason, cancel.Text(reason)) {
		c.finish(nil, reason)
	}
}

func (c *call) finish(result jsonrpc.Raw, err error) {
	c.result, c.err = result, err
	c.done <- struct{}{}
}

// version is the one in which to write: with Options.V1 that of the request
// that is being handled, or 1.0.
func (p *Peer) version(ctx context.Context) jsonrpc.Version {
	if !p.opts.V1 {
		return jsonrpc.V2
	}
	if v := servingFrom(ctx); v != nil && v.peer == p {
		return v.req.version
	}
	return jsonrpc.V1
}

// wire returns the id as it is written.
func (c *call) wire() jsonrpc.ID {
	id, _ := jsonrpc.ParseID(strconv.AppendUint(c.digits[:0], c.id, 10))
	return id
}

// Call implements [Caller].
func (p *Peer) Call(ctx context.Context, method string, params, result any) error {
	if p.outgoing != nil {
		return p.intercept(ctx, method, params, result)
	}
	return p.call(ctx, method, params, result)
}

func (p *Peer) call(ctx context.Context, method string, params, result any) error {
	if err := ctx.Err(); err != nil {
		return callError(method, err)
	}
	c, err := p.newCall(ctx)
	if err != nil {
		return callError(method, err)
	}
	ctx = p.observeCall(ctx, c, method, false)
	if p.x != nil {
		err = p.exchangeOne(ctx, c, method, params, result)
	} else {
		err = p.transact(ctx, c, method, params, result)
	}
	c.extras().seen.done(p, err)
	return callError(method, err)
}

// transact sends a call and waits for its result.
func (p *Peer) transact(ctx context.Context, c *call, method string, params, result any) error {
	_, c.raw = result.(*jsonrpc.Raw)
	if o := c.extras().opens; o != nil && o.space.subscribe != method { // an interceptor's own call
		c.extra.opens = nil
	}
	if l, ok := ctx.Value(late.LimitKey{}).(late.Limit); ok {
		l.Began(c)
	}
	if err := p.begin(ctx, c, method, params); err != nil {
		return err
	}
	if err := p.await(ctx, c); err != nil {
		return err
	}
	return p.outcome(c, result)
}

// callError says which call failed, unless the other end has said so.
func callError(method string, err error) error {
	if err == nil {
		return nil
	}
	if wire := new(jsonrpc.Error); errors.As(err, &wire) {
		return err
	}
	return fmt.Errorf("farcall: call %q: %w", method, err)
}

// begin sends the request of a call.
func (p *Peer) begin(ctx context.Context, c *call, method string, params any) error {
	buf := getBuffer()
	var err error
	if *buf, err = p.appendRequest(ctx, *buf, c.wire(), method, params, c.asking()); err != nil {
		putBuffer(buf)
		return err
	}
	c.extras().seen.sent(p, *buf)
	return p.submit(ctx, buf, p.opts.MaxUnsent/4, c)
}

// submit registers calls and queues the frame that makes them, when at most most bytes
// wait to be written.
func (p *Peer) submit(ctx context.Context, buf *[]byte, most int, calls ...*call) error {
	taken, yield := false, false
	var err error
	for {
		var room chan struct{}
		p.update(func(s *state) {
			switch {
			case s.err != nil:
				err = unsentError{closedError(s.err)}
			case !s.reading && len(calls) > 0:
				err = unsentError{fmt.Errorf("%w by the other end", ErrClosed)}
			case len(calls) == 1 && calls[0].reason != nil:
				err = calls[0].reason
			case s.unsent() > most:
				if s.room == nil {
					s.room = make(chan struct{})
				}
				room = s.room
			default:
				s.await(calls)
				yield, taken = s.gathers(), s.queue(*buf)
			}
		})
		if room == nil {
			break
		}
		select {
		case <-room:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			break
		}
	}
	if !taken {
		putBuffer(buf)
	}
	if err == nil {
		if yield {
			runtime.Gosched()
		}
		p.flush()
	}
	return err
}

// await waits for the answer of a call. When the context ends first, the call
// is given up and the other end is notified.
func (p *Peer) await(ctx context.Context, c *call) error {
	if v := servingFrom(ctx); v != nil && v.peer == p {
		p.park(v)
		defer p.unpark(v)
	}
	ended := ctx.Done()
	if ended == nil { // one channel is cheaper than two
		<-c.done
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-ended:
	}
	if !p.abandon(ctx, c, ctx.Err(), cancel.Reason(ctx)) {
		<-c.done // the answer is being delivered
		return nil
	}
	return ctx.Err()
}

// abandon removes a call from the table and notifies the other end. It reports
// false when the answer has come, and when the call is still to be made, which
// fails for the reason then. The text is the reason for the other end.
func (p *Peer) abandon(ctx context.Context, c *call, reason error, text string) (ours bool) {
	p.update(func(s *state) {
		if s.calls[c.id] != c {
			c.reason = reason
			s.wake() // it may wait for room
			return
		}
		ours = true
		delete(s.calls, c.id)
		s.gaveUp(c.id)
		if c.extras().opens != nil {
			s.abandonSubscription(c)
		}
		if s.err == nil {
			s.queue(p.opts.Dialect.appendCancel(nil, p.version(ctx), c.wire(), text))
		}
	})
	if ours {
		p.flush()
	}
	return ours
}

// outcome turns the answer of a call into the caller's result or error.
func (p *Peer) outcome(c *call, result any) error {
	if c.err != nil {
		var wire *jsonrpc.Error
		if errors.As(c.err, &wire) && wire.Cause == nil {
			wire.Cause = p.opts.Errors.decode(wire)
		}
		return c.err
	}
	err := decode(c.result, result)
	if c.shared != nil {
		putBuffer(c.shared)
	}
	return err
}

// decode unmarshals a result.
func decode(raw jsonrpc.Raw, result any) error {
	switch r := result.(type) {
	case nil:
		return nil
	case *jsonrpc.Raw:
		*r = raw
		return nil
	}
	if err := jsonv2.Unmarshal(raw, result); err != nil {
		return fmt.Errorf("the result does not fit %T: %w", result, err)
	}
	return nil
}

// Notify implements [Caller].
func (p *Peer) Notify(ctx context.Context, method string, params any) error {
	if p.outgoing != nil {
		return p.interceptNote(ctx, method, params)
	}
	return p.notify(ctx, method, params)
}

func (p *Peer) notify(ctx context.Context, method string, params any) error {
	ctx, seen := p.observeNote(ctx, method, false)
	err := p.sendNote(ctx, seen, method, params)
	seen.done(p, err)
	if err != nil {
		return fmt.Errorf("farcall: notify %q: %w", method, err)
	}
	return nil
}

func (p *Peer) sendNote(
	ctx context.Context, seen *observation, method string, params any,
) (err error) {
	buf := getBuffer()
	if *buf, err = p.appendRequest(ctx, *buf, jsonrpc.ID{}, method, params, asking{}); err != nil {
		putBuffer(buf)
		return err
	}
	seen.sent(p, *buf)
	if p.x == nil {
		return p.submit(ctx, buf, p.opts.MaxUnsent/4)
	}
	defer putBuffer(buf)
	p.observeFrame(*buf, true)
	return p.x.Exchange(ctx, *buf, func([]byte) error { return nil })
}

// appendRequest appends a request or notification.
func (p *Peer) appendRequest(
	ctx context.Context, dst []byte, id jsonrpc.ID, method string, params any, ask asking,
) ([]byte, error) {
	if method == "" {
		return dst, errors.New("the method has no name")
	}
	scratch := getBuffer()
	defer putBuffer(scratch)
	raw, err := appendParams(*scratch, params)
	if err != nil {
		return dst, err
	}
	switch params.(type) {
	case jsonrpc.Raw, *remote.Params: // not ours to lend
	default:
		if cap(raw) > cap(*scratch) {
			*scratch = raw[:0]
		}
	}
	named := raw == nil || raw[scan.Space(raw, 0)] == '{'
	if ask.work && named {
		raw = insertMember(raw, workToken, appendWorkToken(nil, id))
	}
	if ask.progress && p.opts.Dialect.PartialResults && named {
		raw = insertMember(raw, partialToken, id.Raw())
		ask.progress = false
	}
	extra, err := p.extensions(ctx, id, ask)
	if err != nil {
		return dst, err
	}
	if len(extra) == 0 {
		return p.version(ctx).AppendRequest(dst, id, method, raw), nil
	}
	if meta := p.opts.Dialect.Meta; meta != "" && named {
		return p.version(ctx).AppendRequest(dst, id, method, insertMeta(raw, meta, extra)), nil
	}
	dst = p.version(ctx).AppendRequest(dst, id, method, raw)
	return append(append(dst[:len(dst)-1], extra...), '}'), nil
}

// insertMember returns params, an object or nothing, with a member set.
func insertMember(params jsonrpc.Raw, name string, value jsonrpc.Raw) jsonrpc.Raw {
	out := append([]byte{'{'}, appendMember(nil, name, value)[1:]...)
	for key, value := range scan.Members(params) {
		if string(key) != name {
			out = appendMember(out, string(key), value)
		}
	}
	return append(out, '}')
}

// appendMember appends a member with the comma before it.
func appendMember(dst []byte, name string, value jsonrpc.Raw) []byte {
	dst = jsonrpc.AppendString(append(dst, ','), name)
	return append(append(dst, ':'), value...)
}

// insertMeta returns params, an object or nothing, with members set in its
// member meta. Each of them begins with a comma.
func insertMeta(params jsonrpc.Raw, meta string, members []byte) jsonrpc.Raw {
	set := append(append([]byte{'{'}, members[1:]...), '}')
	var rest []byte
	parent := scan.Member(set, memberParent) != nil // a tracestate belongs to its traceparent
	for key, value := range scan.Members(params) {
		if string(key) != meta {
			rest = appendMember(rest, string(key), value)
			continue
		}
		for key, value := range scan.Members(value) {
			if scan.Member(set, string(key)) == nil && (!parent || string(key) != memberState) {
				members = appendMember(members, string(key), value)
			}
		}
	}
	out := append(jsonrpc.AppendString([]byte{'{'}, meta), ":{"...)
	out = append(append(append(out, members[1:]...), '}'), rest...)
	return append(out, '}')
}

// appendParams marshals params into dst[:0]. It returns nil for none.
func appendParams(dst []byte, params any) (raw jsonrpc.Raw, err error) {
	switch v := params.(type) {
	case nil:
		return nil, nil
	case *remote.Params:
		raw = jsonrpc.Raw(*v)
	case jsonrpc.Raw:
		if err := jsonrpc.Valid(v); len(v) > 0 && err != nil {
			return nil, fmt.Errorf("the params are not valid JSON: %w", err)
		}
		raw = v
	default:
		if raw, err = jsonv2.Append(dst[:0], params); err != nil {
			return nil, fmt.Errorf("the params cannot be marshalled: %w", err)
		}
	}
	for _, c := range raw {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '{', '[':
			return raw, nil
		}
		break
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	// JSON-RPC 2.0 §4.2: params is a structured value.
	return nil, fmt.Errorf("the params are %.20s; they must be an object or an array", raw)
}

// deliver hands an answer to the call that waits for it.
func (p *Peer) deliver(l *leader, m *jsonrpc.Message) {
	var calls []*call
	var one [1]*call
	var late *namespace // the answer opens a subscription that was given up
	var problem string
	p.update(func(s *state) {
		if n, ok := m.ID.Uint(); ok {
			if c := s.calls[n]; c != nil {
				delete(s.calls, n)
				one[0] = c
				calls = one[:]
			} else if late = s.abandoned(n); late != nil {
				return
			}
		} else if m.ID.IsNull() && m.Error != nil {
			calls = s.takeSole()
		}
		if len(calls) == 0 {
			s.counts.dropped++
			problem = p.unexpectedAnswer(s, m.ID)
		}
	})
	if late != nil {
		p.endThere(late, m.Result)
		return
	}
	for _, c := range calls {
		c.answeredBy(m)
		switch {
		case m.Err != nil:
			c.finish(nil, fmt.Errorf("%w: %w", ErrProtocol, m.Err.Cause))
		case m.Error != nil:
			c.finish(nil, &remote.Error{Wire: m.Failure()})
		default:
			if o := c.extras().opens; o != nil {
				if err := p.listen(o, m.Result); err != nil {
					c.finish(nil, err)
					continue
				}
			}
			c.finish(p.result(l, c, m.Result), nil)
		}
	}
	if len(calls) == 0 {
		p.observeBad(m.Raw, problem)
	}
	if len(calls) == 0 && p.opts.Logger != nil {
		p.opts.Logger.DebugContext(p.ctx, "dropped an answer that matches no call", "id", m.ID.String(),
			"problem", problem)
	}
}

// takeSole takes the one call or batch that waits. An error without an id can
// only be meant for it.
func (s *state) takeSole() (calls []*call) {
	for _, c := range s.calls {
		if len(calls) > 0 && calls[0].batch != c.batch {
			return nil
		}
		calls = append(calls, c)
	}
	s.calls = nil
	return calls
}

// result makes the bytes of a result last.
func (p *Peer) result(l *leader, c *call, raw jsonrpc.Raw) jsonrpc.Raw {
	if !l.fresh && len(raw) >= largeFrame {
		p.keep(l)
	}
	if l.fresh {
		return raw
	}
	if c.raw {
		return append(jsonrpc.Raw(nil), raw...)
	}
	c.shared = getBuffer()
	*c.shared = append(*c.shared, raw...)
	return *c.shared
}
