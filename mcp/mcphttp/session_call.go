package mcphttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/cancel"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// maxPending bounds the calls to one client that wait for their answers.
const maxPending = 4096

var (
	errSessionEnded = fmt.Errorf("%w: the client's session has ended", farcall.ErrClosed)
	errPending      = fmt.Errorf("%d calls to this client wait for their answers already", maxPending)
	errNoStream     = errors.New(
		"the client takes no event stream for this call and has none open; it must accept " +
			"text/event-stream or open a stream with GET")
)

// outgoingCall is a call to the client that waits for its answer.
type outgoingCall struct {
	id     uint64
	wire   jsonrpc.ID
	done   chan struct{}
	result jsonrpc.Raw
	err    error
}

// finish delivers the answer. Who took the call out of the table calls it, once.
func (c *outgoingCall) finish(result jsonrpc.Raw, err error) {
	c.result, c.err = result, err
	close(c.done)
}

// Call implements farcall.Caller.
func (s *session) Call(ctx context.Context, method string, params, result any) error {
	err := s.call(ctx, method, params, result)
	if wire := new(jsonrpc.Error); err == nil || errors.As(err, &wire) {
		return err
	}
	return fmt.Errorf("mcphttp: call %q: %w", method, err)
}

func (s *session) call(ctx context.Context, method string, params, result any) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	raw, err := encodeParams(params)
	if err != nil {
		return err
	}
	c, err := s.register()
	if err != nil {
		return err
	}
	defer s.forget(c)
	ctx, seen := s.observeCall(ctx, c, method)
	frame := jsonrpc.V2.AppendRequest(nil, c.wire, method, withTrace(ctx, raw))
	defer s.observeEnd(ctx, seen, c, frame, &err)
	if err := s.send(ctx, frame, true); err != nil {
		return err
	}
	defer farcall.Waiting(ctx)()
	if asker, ok := ctx.Value(incomingKey{}).(*incoming); ok && asker.session == s {
		asker.wait(1)
		defer asker.wait(-1)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if !s.forget(c) {
			<-c.done // the answer is being delivered
			break
		}
		s.cancelOut(ctx, c)
		return ctx.Err()
	}
	if c.err != nil {
		return c.err
	}
	return decodeResult(c.result, result)
}

// observeCall tells the observer of a call to the client. Nil: there is no observer.
func (s *session) observeCall(
	ctx context.Context, c *outgoingCall, method string,
) (context.Context, *observe.Call) {
	rpc := s.h.opts.RPC
	if rpc.Observer == nil {
		return ctx, nil
	}
	seen := &observe.Call{
		Outgoing: true, Transport: rpc.Transport, ID: c.wire, Method: method, Began: time.Now(),
	}
	seen.Caller.SetParent(farcall.TraceFrom(ctx).Parent)
	if rpc.Observer.Start != nil {
		ctx = rpc.Observer.Start(ctx, seen)
	}
	return ctx, seen
}

// observeEnd tells the observer what became of a call.
func (s *session) observeEnd(
	ctx context.Context, seen *observe.Call, c *outgoingCall, frame []byte, err *error,
) {
	if seen == nil || s.h.opts.RPC.Observer.End == nil {
		return
	}
	seen.Took, seen.Err, seen.BytesOut = time.Since(seen.Began), *err, len(frame)
	if wire := new(jsonrpc.Error); errors.As(*err, &wire) {
		seen.Code = wire.Code
	} else if *err != nil {
		seen.Code = jsonrpc.InternalError
	} else {
		seen.BytesIn = len(c.result)
	}
	s.h.opts.RPC.Observer.End(ctx, seen)
}

// withTrace returns params with the trace context of ctx in their _meta.
func withTrace(ctx context.Context, params jsonrpc.Raw) jsonrpc.Raw {
	t := farcall.TraceFrom(ctx)
	if t == (farcall.Trace{}) || len(params) > 0 && params[0] != '{' {
		return params
	}
	meta := scan.Member(params, "_meta")
	for _, v := range [...][2]string{
		{"traceparent", t.Parent}, {"tracestate", t.State}, {"baggage", t.Baggage},
	} {
		if v[1] != "" {
			meta = object.With(meta, v[0], jsonrpc.AppendString(nil, v[1]))
		}
	}
	return object.With(params, "_meta", meta)
}

// register books a call.
func (s *session) register() (*outgoingCall, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pushingLocked()
	switch {
	case s.closed:
		return nil, errSessionEnded
	case len(p.pending) >= maxPending:
		return nil, errPending
	}
	if p.pending == nil {
		p.pending = map[uint64]*outgoingCall{}
	}
	p.lastCall++
	c := &outgoingCall{id: p.lastCall, done: make(chan struct{})}
	if s.isSealed() {
		c.wire = s.h.sealed.sealQuestion(s.key, c.id)
	} else {
		c.wire = jsonrpc.IntID(int64(c.id))
	}
	p.pending[c.id] = c
	return c, nil
}

// forget takes a call out of the table. It reports false when its answer has
// come.
func (s *session) forget(c *outgoingCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pushingLocked()
	if p.pending[c.id] != c {
		return false
	}
	if delete(p.pending, c.id); len(p.pending) == 0 {
		p.pending = nil // an idle session is small
	}
	return true
}

// cancelOut tells the client that a call of ours is not wanted any more.
func (s *session) cancelOut(ctx context.Context, c *outgoingCall) {
	params := append([]byte(`{"requestId":`), c.wire.Raw()...)
	reason := cmp.Or(cancel.Reason(ctx), ctx.Err().Error())
	params = append(jsonrpc.AppendString(append(params, `,"reason":`...), reason), '}')
	frame := jsonrpc.V2.AppendRequest(nil, jsonrpc.ID{}, spec.NotificationCancelled, params)
	_ = s.send(ctx, frame, false) // the call has failed already
}

// Notify implements farcall.Caller.
func (s *session) Notify(ctx context.Context, method string, params any) error {
	raw, err := encodeParams(params)
	if err == nil {
		err = s.send(ctx, jsonrpc.V2.AppendRequest(nil, jsonrpc.ID{}, method, raw), false)
	}
	if err != nil {
		return fmt.Errorf("mcphttp: notify %q: %w", method, err)
	}
	return nil
}

// Done implements farcall.Caller.
func (s *session) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pushingLocked()
	if p.done == nil {
		p.done = make(chan struct{})
		if s.closed {
			close(p.done)
		}
	}
	return p.done
}

// send sends a message to the client: on the stream of the call that the context
// belongs to, or on one of the client's own.
func (s *session) send(ctx context.Context, frame []byte, call bool) error {
	if s.only != nil {
		return s.only.send(frame)
	}
	x := exchangeFrom(ctx)
	if x != nil && x.session == s && x.stream != nil {
		if taken, err := x.stream.push(frame); taken {
			return err
		}
	}
	st, open, err := s.ownStream()
	switch {
	case err != nil:
		return err
	case call && !open && x != nil && x.session == s:
		return errNoStream
	}
	return st.send(frame)
}

// deliver hands an answer to the call that waits for it. The message's memory is
// lent. An answer to what another replica has asked is noted in x.
func (s *session) deliver(x *exchange, m *jsonrpc.Message) {
	n, here := s.question(x, m)
	if !here {
		return
	}
	s.mu.Lock()
	c := s.pushingLocked().pending[n]
	delete(s.pushes.pending, n)
	s.mu.Unlock()
	switch {
	case c == nil:
		s.h.debug("dropped an answer that matches no call", "id", m.ID.String())
	case m.Err != nil:
		c.finish(nil, fmt.Errorf("%w: %w", farcall.ErrProtocol, m.Err.Cause))
	case m.Error != nil:
		c.finish(nil, &remote.Error{Wire: m.Failure()})
	default:
		c.finish(append(jsonrpc.Raw(nil), m.Result...), nil)
	}
}

// encodeParams marshals params, which must be an object or an array (JSON-RPC
// 2.0 §4.2). It returns nil for none.
func encodeParams(params any) (raw jsonrpc.Raw, err error) {
	switch v := params.(type) {
	case nil:
		return nil, nil
	case jsonrpc.Raw:
		raw = v
	default:
		if raw, err = jsonv2.Append(nil, params); err != nil {
			return nil, fmt.Errorf("the params cannot be marshalled: %w", err)
		}
	}
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case raw[0] != '{' && raw[0] != '[':
		return nil, fmt.Errorf("the params are %.20s; they must be an object or an array", raw)
	}
	return raw, nil
}

// decodeResult unmarshals a result.
func decodeResult(raw jsonrpc.Raw, result any) error {
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
