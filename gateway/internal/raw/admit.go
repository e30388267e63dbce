package raw

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// An Admission decides whether a request or notification of a client may go to the
// upstream. Its error, in the end a *jsonrpc.Error, is the answer. done, which may be nil, is
// called exactly once: with the result or the error, when the call is given up, or when the
// connection ends; it must not block. The params must not be kept. An Admission may be
// called by any number of goroutines.
type Admission func(
	method string, params jsonrpc.Raw,
) (done func(result jsonrpc.Raw, err error), err error)

// screen asks about every request and notification of the frame at hand, and returns what
// may go on of it: nil when there is nothing. What may not is answered, or dropped, and so
// is what another reader might take for a call although it is not one.
func (f *front) screen(frame []byte) ([]byte, error) {
	var answers [][]byte
	all := f.batch.Messages
	kept := all[:0]
	for i := range all {
		m := &all[i]
		done, e := f.ask(m)
		switch {
		case e == nil && f.own(m):
			if answer := f.answerOwn(m, done); answer != nil {
				answers = append(answers, answer)
			}
		case e == nil:
			f.asked = append(f.asked, done)
			kept = append(kept, *m)
		case m.Kind == jsonrpc.Request || m.Kind == jsonrpc.Invalid:
			f.u.meter.calls.Add(1)
			f.u.meter.errors.Add(1)
			answers = append(answers, m.Version.AppendError(nil, m.ID, e))
		default:
			f.u.meter.dropped.Add(1)
		}
	}
	clear(all[len(kept):])
	f.batch.Messages = kept
	if err := f.answer(answers, f.batch.Array); err != nil {
		return nil, err
	}
	switch len(kept) {
	case len(all):
		return frame, nil
	case 0:
		return nil, nil
	}
	rest := make([]byte, 0, len(frame))
	for i := range kept {
		rest = append(append(rest, "[,"[min(i, 1)]), kept[i].Raw...)
	}
	return append(rest, ']'), nil
}

// owns reports whether the frame at hand has a message that is not for the upstream.
func (f *front) owns() bool {
	if f.u.opts.Own == nil {
		return false
	}
	for i := range f.batch.Messages {
		if f.own(&f.batch.Messages[i]) {
			return true
		}
	}
	return false
}

// own reports whether a message is not for the upstream.
func (f *front) own(m *jsonrpc.Message) bool {
	return f.u.opts.Own != nil && (m.Kind == jsonrpc.Request || m.Kind == jsonrpc.Notification) &&
		f.u.opts.Own(m.Method)
}

// answerOwn answers a message that is not for the upstream. Nil: it wants no answer.
func (f *front) answerOwn(m *jsonrpc.Message, done func(jsonrpc.Raw, error)) []byte {
	result, err := f.u.opts.Answer(string(m.Method), m.Params)
	if done != nil {
		done(result, err)
	}
	if m.Kind != jsonrpc.Request {
		return nil
	}
	f.u.meter.calls.Add(1)
	if err == nil {
		return m.Version.AppendResult(nil, m.ID, result)
	}
	f.u.meter.errors.Add(1)
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		wire = &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error", Cause: err}
	}
	return m.Version.AppendError(nil, m.ID, wire)
}

// owning answers the calls of the gateway's own methods before h gets the others.
func (f *front) owning(h farcall.Handler) farcall.Handler {
	if f.u.opts.Own == nil {
		return h
	}
	return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		if f.u.opts.Own([]byte(req.Method)) {
			return f.u.opts.Answer(req.Method, req.Params)
		}
		return h.ServeRPC(ctx, req)
	})
}

// ask asks about one message.
func (f *front) ask(m *jsonrpc.Message) (done func(jsonrpc.Raw, error), refused *jsonrpc.Error) {
	switch {
	case f.admission == nil:
		return nil, nil
	case disguised(m.Raw):
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "Invalid Request: the names of members are case-sensitive",
		}
	case m.Kind == jsonrpc.Response && !f.admitted: // no client was connected
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "Invalid Request: nothing was asked",
		}
	case m.Kind == jsonrpc.Response:
		return nil, nil
	case m.Kind == jsonrpc.Invalid: // the upstream might be less strict
		return nil, m.Err
	case len(m.ID.Raw()) > trackedID: // its end would not be noticed
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "Invalid Request: the id is too long",
		}
	}
	done, err := f.admission(string(m.Method), m.Params)
	if err == nil {
		f.admitted = true
		return done, nil
	}
	if !errors.As(err, &refused) {
		refused = &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error", Cause: err}
	}
	return nil, refused
}

// envelope are the names that some readers accept in any case.
var envelope = [...][]byte{
	[]byte("jsonrpc"), []byte("id"), []byte("method"), []byte("params"),
	[]byte("result"), []byte("error"),
}

// disguised reports whether a message has a member that some readers take for one of
// JSON-RPC, and others do not: the call that they see is another.
func disguised(message jsonrpc.Raw) bool {
	if len(message) == 0 || message[0] != '{' {
		return false
	}
	for key := range scan.Members(message) {
		for _, name := range envelope {
			if bytes.EqualFold(key, name) && !bytes.Equal(key, name) {
				return true
			}
		}
	}
	return false
}

// settleAsked ends what was admitted and is no call under way.
func (f *front) settleAsked(err error) {
	for i, done := range f.asked {
		if done != nil {
			f.asked[i] = nil
			done(nil, err)
		}
	}
	f.asked = f.asked[:0]
}

// settleCancelled ends calls that the client has cancelled in a dialect in which no
// answer follows.
func (f *front) settleCancelled() {
	for i := range f.batch.Messages {
		m := &f.batch.Messages[i]
		if m.Kind != jsonrpc.Notification || string(m.Method) != "notifications/cancelled" {
			continue
		}
		id, err := jsonrpc.ParseID(scan.Member(m.Params, "requestId"))
		if err != nil {
			continue
		}
		if done := f.track.cancelled(id); done != nil {
			done(nil, context.Canceled)
		}
	}
}

// admitting asks about each call before h gets it.
func (f *front) admitting(h farcall.Handler) farcall.Handler {
	if f.admission == nil {
		return h
	}
	return farcall.HandlerFunc(func(
		ctx context.Context, req *farcall.Request,
	) (result any, err error) {
		done, err := f.admission(req.Method, req.Params)
		if err != nil {
			if req.IsNotification() {
				f.u.meter.dropped.Add(1)
			}
			return nil, err
		}
		if done != nil {
			farcall.OnAnswer(ctx, done)
		}
		return h.ServeRPC(ctx, req)
	})
}

// places bounds the calls of ServeRPC that are under way. Half of the places are for who comes
// first; of the other half one owner alone gets seven eighths, so that it leaves room for others.
// While there are plenty, owners are not counted.
type places struct {
	limit   int64
	running atomic.Int64

	mu     sync.Mutex
	scarce share.Ledger // the second half, by owner
}

func (p *places) init(limit int) {
	p.limit = int64(limit)
	p.scarce.SetBounds(share.Bounds{Total: limit - limit/2, Ratio: 7})
}

// enter takes a place, or reports that there is none for the caller. scarce is for leave.
func (p *places) enter(ctx context.Context) (scarce *owner.Key, ok bool) {
	switch n := p.running.Add(1); {
	case n > p.limit:
	case n <= p.limit/2:
		return nil, true
	default:
		o := owner.From(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.scarce.Take(o, 1) {
			return &o, true
		}
	}
	p.running.Add(-1)
	return nil, false
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

// ownConnections bounds the connections to the upstream that belong to piped ones. One owner alone
// gets seven eighths.
type ownConnections struct {
	mu   sync.Mutex
	held share.Ledger // by owner; without bounds nothing is counted
}

// enter takes a connection for an owner, or reports that there is none for it.
func (c *ownConnections) enter(o owner.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held.Bounds().Total == 0 || c.held.Take(o, 1)
}

// leave gives a connection back.
func (c *ownConnections) leave(o owner.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held.Bounds().Total > 0 {
		c.held.Give(o, 1)
	}
}
