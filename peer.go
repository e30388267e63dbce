package farcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/jsonrpc"
)

var (
	// ErrClosed is, or is wrapped by, the failure of calls on a connection that
	// has ended.
	ErrClosed = errors.New("farcall: connection closed")
	// ErrProtocol is wrapped by the failure of a call when its answer was not valid
	// JSON-RPC.
	ErrProtocol = errors.New("farcall: the other end broke the protocol")

	errStalled = errors.New("farcall: the other end does not read what it asked for")
	errFlooded = errors.New(
		"farcall: more notifications arrived than their handlers take; the connection was closed so " +
			"that none is lost silently")
	errNoIDs    = errors.New("farcall: the ids of this connection are used up; connect again")
	errShutdown = errors.New("the peer is shutting down")
)

// Peer is one end of a connection. Its methods may be called by any number of
// goroutines at once, also by handlers.
type Peer struct {
	core
	t        Transport // nil over an Exchanger
	x        Exchanger
	keeper   Keeper          // t, where it is one
	buffered Buffered        // t, where it is one
	try      TryWriter       // t, where it is one
	ctx      context.Context //nolint:containedctx // the connection's own, which ends with it
	handling context.Context //nolint:containedctx // that of handlers, see Options.ConnContext
	stop     context.CancelFunc

	ids  atomic.Uint64 // the last id of ours
	tick func()        // onTick as a value, made once

	outgoing Handler // Options.CallInterceptors around send; nil: there are none

	mu   sync.Mutex
	st   state
	loan budget.Loan // holds state.held

	// active counts the goroutines of the peer; the one that ends last closes
	// gone.
	active atomic.Int64
	gone   chan struct{}
	turns  turns
}

// NewPeer starts a peer on a transport, which it closes in the end. The handler
// may be nil when this end serves nothing.
func NewPeer(t Transport, h Handler, o *Options) *Peer {
	p := newPeer(h, o)
	p.t = t
	p.keeper, _ = t.(Keeper)
	p.buffered, _ = t.(Buffered)
	p.try, _ = t.(TryWriter)
	if b, ok := t.(interface{ Busy(f func() bool) }); ok {
		b.Busy(p.busy)
	}
	p.st.reading = true
	p.observeOpen()
	p.active.Store(1)
	p.launch(p.lead)
	return p
}

// busy reports whether the connection is in use, though nothing may come over it:
// calls or subscriptions are open, in either direction.
func (p *Peer) busy() (yes bool) {
	p.update(func(s *state) { yes = !s.idle() || len(s.calls) > 0 || s.subscribed() > 0 })
	return yes
}

func newPeer(h Handler, o *Options) *Peer {
	p := &Peer{gone: make(chan struct{})}
	p.init(h, o)
	p.ids.Store(p.opts.FirstID - 1)
	p.loan = budget.Lend(p.opts.Budget)
	p.tick = p.onTick
	p.outgoing = p.intercepted()
	//nolint:forbidigo // a connection lives until it is closed, not as long as the call that made it
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.handling = p.ctx
	if p.opts.ConnContext != nil {
		p.handling = p.opts.ConnContext(p.ctx)
	}
	return p
}

// start runs f in a goroutine that Close waits for. Once the last goroutine has
// ended, nothing is started any more: the connection has ended, too.
func (p *Peer) start(f func()) {
	if p.acquire() {
		p.launch(f)
	}
}

// acquire reserves the place of a goroutine, for launch or exit.
func (p *Peer) acquire() bool {
	for {
		n := p.active.Load()
		if n == 0 {
			return false
		}
		if p.active.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (p *Peer) launch(f func()) {
	go func() {
		defer p.exit()
		f()
	}()
}

func (p *Peer) exit() {
	if p.active.Add(-1) == 0 {
		close(p.gone)
	}
}

// Done is closed when the connection has ended. Handlers may still be running.
func (p *Peer) Done() <-chan struct{} { return p.ctx.Done() }

// Err returns why the connection ended: io.EOF when the other end closed it in
// order, ErrClosed when this end did, nil while it lives.
func (p *Peer) Err() (err error) {
	p.update(func(s *state) { err = s.err })
	return err
}

// Stats returns what happened so far.
func (p *Peer) Stats() (st Stats) {
	p.update(func(s *state) {
		n := &s.counts
		st.Requests, st.Notifications, st.Refused = n.requests, n.notifications, n.refused
		st.Overloaded, st.Dropped, st.DroppedEvents = n.overloaded, n.dropped, n.droppedEvents
		st.InFlight, st.Waiting, st.Queued = s.running, s.waiting, len(s.notes)
		st.Calls, st.UnsentBytes = len(s.calls), s.unsent()
		if s.subs != nil {
			st.Subscriptions = len(s.subs.theirs)
		}
	})
	return st
}

// Close ends the connection: calls in both directions fail, and the contexts of handlers end. Calls
// of this end are cancelled at the other end, which would go on with them. It waits until the
// handlers have returned, at most Options.CloseTimeout; it is an error when some have not.
func (p *Peer) Close() error {
	p.cancelCalls()
	p.writeOut()
	p.fail(ErrClosed)
	timeout := time.NewTimer(p.opts.CloseTimeout)
	defer timeout.Stop()
	select {
	case <-p.gone:
		return nil
	case <-timeout.C:
		return fmt.Errorf(
			"farcall: closed, but handlers still run after %v; they must return when their context ends",
			p.opts.CloseTimeout)
	}
}

// Shutdown refuses new requests, waits until those in flight are answered and
// the answers are written, and closes the connection. When the context ends
// first it answers them with an error, closes, and returns the context's error. It does not wait
// for an end that does not read: when nothing but answers is left, a write may take 2 s, and a
// second more for each 64 KiB.
func (p *Peer) Shutdown(ctx context.Context) error {
	p.update(func(s *state) { s.drain = true })
	err := p.quiesce(ctx, true)
	if err != nil && errors.Is(err, ctx.Err()) {
		p.cutOff("this end shuts down, and the call took longer than it waits", "shutdown")
	}
	if cerr := p.Close(); err == nil {
		err = cerr
	}
	return err
}

// outTime bounds how long Close waits for what is being written.
const outTime = 20 * time.Millisecond

// writeOut waits a moment for what is queued, which may be that calls are
// cancelled.
func (p *Peer) writeOut() {
	var timeout *time.Timer
	for {
		var change chan struct{}
		p.update(func(s *state) {
			if s.err != nil || !s.writing && s.out == nil {
				return
			}
			if s.room == nil {
				s.room = make(chan struct{})
			}
			change = s.room
		})
		if change == nil {
			return
		}
		if timeout == nil {
			timeout = time.NewTimer(outTime)
			defer timeout.Stop()
		}
		select {
		case <-change:
		case <-timeout.C:
			return
		}
	}
}

const (
	// lastWrite bounds how long Shutdown waits for a write when nothing else is left to finish.
	lastWrite = 2 * time.Second
	// lastRate is how much more, in bytes, it waits a second for.
	lastRate = 64 << 10
)

// quiesce waits until nothing is left to finish. bounded: each write that is the last thing left
// has its time.
func (p *Peer) quiesce(ctx context.Context, bounded bool) error {
	var last lastWrites
	for {
		var change chan struct{}
		var unsent int // when nothing else is left
		p.update(func(s *state) {
			if s.idle() || s.err != nil {
				return
			}
			if s.room == nil {
				s.room = make(chan struct{})
			}
			if change = s.room; bounded && !s.working() {
				unsent = s.unsent()
			}
		})
		if change == nil {
			return nil
		}
		late, stop := last.late(unsent)
		select {
		case <-change:
			stop()
		case <-late:
			return errStalled
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
	}
}

// lastWrites bounds how long the writes take that are the last thing left.
type lastWrites struct {
	least int // the fewest bytes that were left so far
	by    time.Time
}

// late returns a channel that says that the other end does not read: it reads nothing in the time
// that the rest of the bytes may take. unsent is 0 while there is more to finish than these.
func (w *lastWrites) late(unsent int) (late <-chan time.Time, stop func()) {
	if unsent == 0 {
		*w = lastWrites{}
		return nil, func() {}
	}
	if w.by.IsZero() || unsent < w.least {
		w.least = unsent
		w.by = time.Now().Add(lastWrite + time.Duration(unsent)*time.Second/lastRate)
	}
	timer := time.NewTimer(time.Until(w.by))
	return timer.C, func() { timer.Stop() }
}

// fail ends the connection for a reason. Only the first reason counts.
func (p *Peer) fail(err error) {
	var calls map[uint64]*call
	var serving []*serving
	var subs []*subscriber
	var feeds []*feed
	first := false
	p.update(func(s *state) {
		if s.err != nil {
			return
		}
		first = true
		s.err, s.reading = err, false
		calls, s.calls = s.calls, nil
		serving = s.served.all()
		if s.note != nil {
			serving = append(serving, s.note)
		}
		for _, v := range s.notes {
			s.unbook(v.size)
		}
		s.notes = nil
		subs, feeds = s.takeSubscriptions()
		s.wake()
	})
	if !first {
		return
	}
	for _, c := range calls {
		c.finish(nil, closedError(err))
	}
	for _, v := range serving {
		v.cancel(context.Canceled)
	}
	for _, sub := range subs {
		sub.release()
	}
	for _, f := range feeds {
		f.broke(p, closedError(err))
	}
	p.turns.halt()
	p.stop()
	// Last, because closing may take its time: a child process is waited for.
	if p.t != nil {
		_ = p.t.Close()
		p.observeClose()
	} else {
		_ = p.x.Close()
	}
	if p.opts.OnClose != nil {
		p.opts.OnClose(err)
	}
}

// ErrNotSent is what errors.Is finds in the failure of a call or notification, with ErrClosed, when
// the connection had ended before: it was surely not sent, and can be sent over another connection.
var ErrNotSent = errors.New("farcall: not sent")

// unsentError is the failure of what was not sent. It reads as the reason does.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

func (unsentError) Is(target error) bool { return target == ErrNotSent }

// closedError is what calls on an ended connection fail with.
func closedError(err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w by the other end", ErrClosed)
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

// lead reads frames until the connection ends or another goroutine has taken
// over: the one that reads is the leader, and there is always one at most. The
// leader runs fast handlers itself, so that a call crosses no goroutine; when
// one turns out not to be fast, another goroutine leads on.
func (p *Peer) lead() {
	l := &leader{
		dec: jsonrpc.Decoder{
			MaxDepth: p.opts.MaxDepth, MaxBatch: p.opts.MaxBatch, AcceptV1: p.opts.V1,
			StrictAnswers: p.opts.StrictAnswers,
		},
	}
	for {
		if p.buffered == nil || !p.buffered.Buffered() || p.plenty() {
			p.flush()
		}
		frame, err := p.t.Read()
		if err != nil {
			var refused *jsonrpc.Error
			if errors.As(err, &refused) && !errors.Is(err, io.EOF) {
				p.notRead(err, refused)
				continue
			}
			p.hangUp(err)
			return
		}
		p.observeFrame(frame, false)
		l.fresh = p.keeper == nil
		if !p.receive(l, frame) {
			p.flush()
			return
		}
		if len(frame) > budget.Free || cap(l.batch.Messages) > fewMessages {
			// the next frame may take hours
			l.batch = jsonrpc.Batch{}
		}
	}
}

// fewMessages is how many messages an idle connection has memory for: 50 KB.
const fewMessages = 256

// leader is what the goroutine that reads needs. It is not shared.
type leader struct {
	dec   jsonrpc.Decoder
	batch jsonrpc.Batch
	fresh bool // the memory of the frame is ours
}

// keep makes the memory of the current frame ours.
func (p *Peer) keep(l *leader) {
	if !l.fresh {
		p.keeper.Keep()
		l.fresh = true
	}
}

// flush writes what is queued, unless another goroutine is writing already: that one
// writes it too.
func (p *Peer) flush() {
	if err := p.tryFlush(); err != nil {
		p.fail(err)
	}
}

// tryFlush is flush for callers that must not wait until the connection is closed.
func (p *Peer) tryFlush() error {
	var out *outbox
	p.update(func(s *state) {
		if s.writing || s.out == nil || s.err != nil {
			return
		}
		out = s.takeOut()
	})
	for out != nil {
		p.observeOut(out)
		if p.try == nil {
			p.startWriting(out, p.drainOut)
			return nil
		}
		done, err := p.try.TryWrite(out.frames...)
		if err != nil {
			return err
		}
		if !done {
			// The rest is with the transport. Writing it may block.
			p.startWriting(out, p.writeRest)
			return nil
		}
		out = p.wrote(out)
	}
	return nil
}

// startWriting is apart from flush so that flush does not allocate.
func (p *Peer) startWriting(out *outbox, write func(*outbox)) { p.start(func() { write(out) }) }

// takeOut begins a write of all that is queued.
func (s *state) takeOut() *outbox {
	out := s.out
	if s.wroteOne(); len(out.frames) > 1 {
		s.alone = 0
	}
	s.out, s.writing, s.written, s.owed = nil, true, out.bytes, out.owed
	return out
}

// wrote ends a write and returns what was queued meanwhile, if anything.
func (p *Peer) wrote(out *outbox) (next *outbox) {
	out.release()
	p.update(func(s *state) {
		s.written, s.owed, s.writing = 0, 0, false
		s.refill()
		if s.out != nil && s.err == nil {
			next = s.takeOut()
		}
		s.wake()
	})
	return next
}

func (p *Peer) writeRest(out *outbox) {
	if err := p.t.Write(); err != nil {
		p.fail(err)
		return
	}
	if out = p.wrote(out); out != nil {
		p.observeOut(out)
		p.drainOut(out)
	}
}

// drainOut writes, blocking, until nothing is queued.
func (p *Peer) drainOut(out *outbox) {
	for {
		if err := p.t.Write(out.frames...); err != nil {
			p.fail(err)
			return
		}
		if out = p.wrote(out); out == nil {
			return
		}
		p.observeOut(out)
	}
}

// plenty reports whether so much is queued that it is not worth waiting for
// more.
func (p *Peer) plenty() (yes bool) {
	p.update(func(s *state) { yes = s.out != nil && s.out.bytes >= poolLimit })
	return yes
}
