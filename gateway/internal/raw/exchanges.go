package raw

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// exchangedBytes bounds the frames of a pipe that are being exchanged, but one
// frame is always sent.
const exchangedBytes = 64 << 20

const cancelMethod = "$/cancelRequest"

// exchanges are the frames of a connection on their way to an Exchanger.
type exchanges struct {
	*pipe
	wg sync.WaitGroup

	mu     sync.Mutex
	change sync.Cond
	count  int
	bytes  int
	calls  map[string]context.CancelCauseFunc // by the id, of those that are alone in their frame
}

// errCancelled ends an exchange with a call that was cancelled.
var errCancelled = errors.New("raw: the client has cancelled the call")

// exchanges carries a connection to an Exchanger.
func (p *pipe) exchanges(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x := &exchanges{pipe: p, calls: map[string]context.CancelCauseFunc{}}
	x.change.L = &x.mu
	defer context.AfterFunc(ctx, x.wake)()
	defer x.wg.Wait()
	defer cancel()
	for {
		frame, err := p.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				p.linger(ctx, lingerFor(err))
			}
			return nil
		}
		if frame == nil || x.cancelled() {
			continue
		}
		g, ok, err := p.admit()
		if err != nil {
			return nil // the client has gone
		}
		if !ok {
			continue
		}
		if g == nil {
			x.notify(ctx, frame)
			continue
		}
		if !x.enter(ctx, len(frame)) {
			x.fail(x.track.giveUp(g), x.u.failure(farcall.ErrClosed, false))
			return nil
		}
		frame = bytes.Clone(frame) // it is read on meanwhile
		inner, stop := x.register(ctx, g)
		trace := traceOf(&p.batch)
		x.wg.Go(func() {
			defer x.leave(len(frame))
			defer stop()
			x.call(farcall.WithTrace(inner, trace), frame, g)
		})
	}
}

// traceOf returns the trace context of a frame with one message, which goes into
// headers as well.
func traceOf(b *jsonrpc.Batch) farcall.Trace {
	if b.Array {
		return farcall.Trace{}
	}
	text := func(name string) string {
		raw := b.Messages[0].Member(name)
		if len(raw) < 2 || raw[0] != '"' {
			return ""
		}
		return string(scan.Unquote(raw))
	}
	return farcall.Trace{
		Parent: text("traceparent"), State: text("tracestate"),
		Baggage: text("baggage"),
	}
}

func (x *exchanges) wake() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.change.Broadcast()
}

// enter waits until there is room for another exchange.
func (x *exchanges) enter(ctx context.Context, size int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.count >= x.u.opts.MaxInFlight || x.count > 0 && x.bytes+size > exchangedBytes {
		if ctx.Err() != nil {
			return false
		}
		x.change.Wait()
	}
	x.count++
	x.bytes += size
	return true
}

func (x *exchanges) leave(size int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count--
	x.bytes -= size
	x.change.Broadcast()
}

// register makes the context of an exchange, and lets the client cancel it.
func (x *exchanges) register(ctx context.Context, g *group) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if g.array || len(g.calls) != 1 {
		return ctx, func() { cancel(nil) }
	}
	id := g.calls[0].id
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls[id] = cancel
	return ctx, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.calls, id)
		cancel(nil)
	}
}

// cancelled reports whether the frame at hand cancels a call that is under way;
// then it is done.
func (x *exchanges) cancelled() bool {
	m := &x.batch.Messages[0]
	if x.batch.Array || m.Kind != jsonrpc.Notification || string(m.Method) != cancelMethod {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	cancel := x.calls[string(scan.Member(m.Params, "id"))]
	if cancel == nil {
		return false
	}
	cancel(errCancelled)
	return true
}

// notify sends a frame that has no answer, and waits until it has arrived.
func (x *exchanges) notify(ctx context.Context, frame []byte) {
	ctx, cancel := context.WithTimeout(farcall.WithTrace(ctx, traceOf(&x.batch)), x.u.opts.Timeout)
	defer cancel()
	if err := x.exchange(ctx, frame); err != nil {
		x.u.meter.dropped.Add(1)
		x.u.opts.Logger.WarnContext(ctx, "a notification was lost", "upstream", x.u.opts.Name, "error",
			textOf(err))
	}
}

// call sends a frame with calls and answers those that the upstream does not.
func (x *exchanges) call(ctx context.Context, frame []byte, g *group) {
	ctx, cancel := context.WithTimeout(ctx, x.u.opts.Timeout)
	defer cancel()
	err := x.exchange(ctx, frame)
	left := x.track.giveUp(g)
	if len(left) == 0 {
		return
	}
	if err == nil {
		err = fmt.Errorf("%w: the answer has no response to the call", farcall.ErrProtocol)
	}
	e := x.u.failure(err, !neverSent(err))
	if errors.Is(context.Cause(ctx), errCancelled) {
		e.Code, e.Message = jsonrpc.Cancelled, "Request cancelled"
	}
	x.fail(left, e)
}

// exchange sends a frame, and what is answered to the client.
func (x *exchanges) exchange(ctx context.Context, frame []byte) error {
	dec := newDecoder()
	var batch jsonrpc.Batch
	err := x.u.opts.Exchanger.Exchange(ctx, frame, func(answer []byte) error {
		if e := dec.Decode(answer, &batch); e != nil {
			x.u.garbage(ctx, answer, e)
			return fmt.Errorf("%w: %w", farcall.ErrProtocol, e)
		}
		calls, pass := x.answered(&batch)
		switch most := x.u.opts.MaxMessage; {
		case !pass:
			x.u.garbage(ctx, answer, batch.Messages[0].Err)
			return nil
		case most > 0 && len(answer) > most:
			x.u.garbage(ctx, answer, errTooLarge)
			answer = x.instead(&batch, x.tooLarge())
		}
		defer x.track.settle(calls)
		if answer == nil {
			return nil
		}
		if err := x.write(answer); err != nil {
			_ = x.t.Close() // the caller is gone
			return err
		}
		return nil
	})
	x.u.outcome(ctx, err)
	return err
}

// progressBytes bounds the progress of a call that its caller has not taken.
const progressBytes = 8 << 20

var errSlow = &jsonrpc.Error{
	Code:    jsonrpc.Overloaded,
	Message: "More than 8 MiB of progress were not taken; take it faster or ask for less",
}

// progress is what a call over a shared connection reports, on its way to a
// caller that must not hold up others.
type progress struct {
	cancel context.CancelCauseFunc // of the call

	mu     sync.Mutex
	change sync.Cond
	values []jsonrpc.Raw
	bytes  int
	ended  bool
	err    error
}

func newProgress(cancel context.CancelCauseFunc) *progress {
	q := &progress{cancel: cancel}
	q.change.L = &q.mu
	return q
}

// put adds a value. It does not block, nor keep the value.
func (q *progress) put(value jsonrpc.Raw) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.err != nil || value == nil:
		return
	case q.bytes+len(value) > progressBytes:
		q.failLocked(errSlow)
		return
	}
	q.values = append(q.values, slices.Clone(value))
	q.bytes += len(value)
	q.change.Broadcast()
}

func (q *progress) failLocked(err error) {
	q.err, q.values = err, nil
	q.cancel(err)
	q.change.Broadcast()
}

// end notes that there will be no more.
func (q *progress) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.change.Broadcast()
}

func (q *progress) failed() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// next waits for the next value.
func (q *progress) next() (value jsonrpc.Raw, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.values) == 0 && !q.ended && q.err == nil {
		q.change.Wait()
	}
	if len(q.values) == 0 {
		return nil, false
	}
	value, q.values = q.values[0], q.values[1:]
	q.bytes -= len(value)
	return value, true
}

// pump passes the values on to the caller with that context.
func (q *progress) pump(front context.Context) {
	for {
		value, more := q.next()
		if !more {
			return
		}
		if err := farcall.Progress(front, value); err != nil {
			q.mu.Lock()
			q.failLocked(errors.Join(errors.New("raw: the caller has gone"), err))
			q.mu.Unlock()
		}
	}
}

// replaced returns an object with another value for a member. The other values
// keep their bytes.
func replaced(object []byte, name string, value func(old []byte) []byte) []byte {
	out := []byte{'{'}
	for key, v := range scan.Members(object) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		if string(key) == name {
			v = value(v)
		}
		out = append(append(scan.AppendQuoted(out, key), ':'), v...)
	}
	return append(out, '}')
}
