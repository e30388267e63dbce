package raw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/beginning"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	// lingerTime bounds how long calls under way may take when the client sends no
	// more. It may be gone altogether, or wait for them (printf … | nc).
	lingerTime = 10 * time.Second
	// closeGrace is how long the last answers may take to be written.
	closeGrace = time.Second
)

// Pipe carries a connection, which it closes in the end. It returns when either
// end has closed, nil when the client has, and when the context ends.
//
// Frames go on as they came, in their order, over their own connection
// (but see Options.Lifetime). What is no JSON, or too large, is answered and not
// sent on. When the client sends no more, its calls are given 10 s; then the
// upstream's connection is closed. When the upstream ends, the calls that it has
// not answered get an error, and the client's connection is closed. While no
// connection can be made, calls are answered with an error that says so, and the
// next call tries again.
//
// With Options.Calls messages are handled one by one. The client has a connection to the upstream
// all the same.
//
// To an Exchanger each frame is an exchange. Notifications and answers go one
// after the other, and what follows them waits for them; calls go side by side.
// A call that the client cancels in the dialect of the Language Server Protocol
// is broken off and answered with -32800.
func (u *Upstream) Pipe(ctx context.Context, t farcall.Transport) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &pipe{
		front: newFront(ctx, u, t), cancel: cancel, downDone: make(chan struct{}), owner: owner.From(ctx),
		making: make(chan struct{}, 1),
	}
	if !u.enter(ctx, p) {
		_ = t.Close()
		return errShuttingDown
	}
	defer u.leave(p)
	defer context.AfterFunc(u.ctx, cancel)()
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(closed); p.close() }) //nolint:contextcheck // it closes, and does not wait
	defer func() {
		p.close()
		if !stop() {
			<-closed
		}
	}()
	defer p.settleAsked(farcall.ErrClosed)
	defer func() {
		if p.counted {
			p.u.own.leave(p.owner)
		}
	}()
	switch {
	case p.handler != nil:
		return p.calls(ctx, p.handler, p.peerOpts)
	case u.client != nil:
		return p.exchanges(ctx)
	case u.opts.Lifetime == "shared":
		return p.calls(ctx, p.admitting(p.owning(u)), &farcall.Options{Logger: u.opts.Logger})
	}
	return p.carry(ctx)
}

// pipe is a connection of a client that is being carried.
type pipe struct {
	*front
	cancel   context.CancelFunc
	downDone chan struct{} // closed when nothing comes from the upstream any more
	downErr  error         // set before
	byServer bool          // as well: it was the upstream that has ended
	watch    *time.Timer   // of up: ends a write that takes too long
	owner    owner.Key
	counted  bool // it has one of the connections to the upstream; of up, or under making
	handler  farcall.Handler
	peerOpts *farcall.Options

	making chan struct{} // has a place for the one that uses conn
	conn   *line         // for the calls of handler; nil before the first

	mu        sync.Mutex
	server    farcall.Transport // nil before it is connected
	endServer func()
	peer      *farcall.Peer // in place of all that, where the connection is shared
	ended     bool
	draining  bool
	stalled   bool // the upstream did not read
}

// drain lets no new calls in, and ends the pipe when those under way are
// answered.
func (p *pipe) drain() {
	p.track.drain(errShuttingDown)
	p.mu.Lock()
	peer := p.peer
	p.draining = true
	p.mu.Unlock()
	p.u.work.Go(func() {
		if peer != nil {
			_ = peer.Shutdown(p.u.ctx)
			return
		}
		select {
		case <-p.track.whenIdle():
			p.close()
		case <-p.u.ctx.Done():
		}
	})
}

// close closes both ends.
func (p *pipe) close() {
	_ = p.t.Close()
	p.closeServer()
	p.cancel() // of an attempt to connect
}

// closeServer closes the upstream's end, now or as soon as it is there.
func (p *pipe) closeServer() {
	p.mu.Lock()
	server, end := p.server, p.endServer
	p.ended = true
	p.mu.Unlock()
	if server != nil {
		_ = server.Close()
		end()
	}
}

// connect makes the connection to the upstream.
func (p *pipe) connect(ctx context.Context) error {
	if !p.u.own.enter(p.owner) {
		return errCrowded
	}
	t, end, err := p.u.dial(ctx)
	if err != nil {
		p.u.own.leave(p.owner)
		return err
	}
	p.counted = true
	p.mu.Lock()
	ended := p.ended
	if !ended {
		p.server, p.endServer = t, end
	}
	p.mu.Unlock()
	if ended {
		_ = t.Close()
		end()
		return farcall.ErrClosed
	}
	go p.down(ctx, t)
	return nil
}

// carry carries frames between two connections.
func (p *pipe) carry(ctx context.Context) error {
	err := p.up(ctx)
	if p.server == nil {
		return nil
	}
	lost := new(serverError)
	switch {
	case errors.As(err, &lost):
		p.linger(ctx, closeGrace) // it is about to say why it has ended
	case errors.Is(err, io.EOF):
		p.linger(ctx, lingerFor(err))
	}
	p.closeServer()
	late := time.AfterFunc(closeGrace, func() { _ = p.t.Close() })
	defer late.Stop()
	<-p.downDone
	if p.byServer {
		return fmt.Errorf("raw: the upstream %s has ended the connection: %w", p.u.opts.Name, p.downErr)
	}
	return nil
}

// serverError is a failure to write to the upstream.
type serverError struct{ err error }

func (e *serverError) Error() string { return e.err.Error() }

// lingerFor returns how long calls may take after the end of the client's input, as farcall.Peer
// does; less than 0: as long as they take.
func lingerFor(end error) time.Duration {
	var half interface{ HalfClosed() bool }
	if errors.As(end, &half) && half.HalfClosed() {
		return -1
	}
	return lingerTime
}

// linger waits until no call is under way, for a time at most; less than 0: however long it takes.
func (p *pipe) linger(ctx context.Context, most time.Duration) {
	var over <-chan time.Time
	if most >= 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-p.track.whenIdle():
	case <-p.downDone:
	case <-over:
	case <-ctx.Done():
	}
}

// up carries frames to the upstream until either end has ended.
func (p *pipe) up(ctx context.Context) error {
	dialErr := errUnasked
	if p.admission == nil {
		dialErr = p.connect(ctx)
	}
	c := &carrier{src: p.t, to: p.toServer}
	for {
		if err := c.pause(); err != nil {
			return err
		}
		frame, err := p.next()
		if err != nil {
			return cmp.Or(c.flush(), err) // what the client said last
		}
		if frame == nil {
			continue
		}
		if dialErr != nil {
			if dialErr = p.connect(ctx); dialErr != nil {
				if err := p.reject(p.u.failure(dialErr, false)); err != nil {
					return err
				}
				continue
			}
		}
		_, ok, err := p.admit()
		if ok {
			err = c.put(frame, 0)
		}
		if err != nil {
			return err
		}
	}
}

// errUnasked is why nothing is connected before a call may pass.
var errUnasked = errors.New("raw: nothing was asked yet")

// toServer gives the upstream up when it does not read: no reader would notice that
// the client has gone.
func (p *pipe) toServer(frames ...[]byte) error {
	if p.watch == nil {
		p.watch = time.AfterFunc(p.u.opts.Timeout, p.stall)
	} else {
		p.watch.Reset(p.u.opts.Timeout)
	}
	defer p.watch.Stop()
	if err := p.server.Write(frames...); err != nil {
		return &serverError{err}
	}
	return nil
}

var errStalled = errors.New("raw: the upstream does not read")

func (p *pipe) stall() {
	p.mu.Lock()
	p.stalled = true
	p.mu.Unlock()
	p.closeServer()
}

// down carries frames to the client until either end has ended. Then it answers
// what is under way and closes the client's end.
func (p *pipe) down(ctx context.Context, server farcall.Transport) {
	defer close(p.downDone)
	var gone bool
	p.downErr, gone = p.downward(ctx, server)
	p.mu.Lock()
	if p.stalled {
		p.downErr = errStalled
	}
	p.byServer = p.stalled || !gone && !p.ended
	p.mu.Unlock()
	left := p.track.end(farcall.ErrClosed)
	if p.byServer {
		p.u.health.note(p.downErr)
	}
	if gone {
		for _, c := range left {
			p.u.meter.end(true, time.Since(c.began))
			c.finish(nil, farcall.ErrClosed)
		}
	} else {
		p.u.opts.Logger.DebugContext(ctx, "the connection to an upstream has ended",
			"upstream", p.u.opts.Name, "error", textOf(p.downErr), "in flight", len(left))
		p.fail(left, p.u.failure(p.downErr, true))
	}
	_ = p.t.Close()
	p.closeServer() // up may be writing to what is not read any more
}

// downward reports with gone that it is the client who has ended.
func (p *pipe) downward(ctx context.Context, server farcall.Transport) (err error, gone bool) {
	dec := newDecoder()
	var batch jsonrpc.Batch
	c := &carrier{src: server, to: p.write, settle: p.track.settle}
	for {
		if err := c.pause(); err != nil {
			return err, true
		}
		letGo(&batch)
		frame, err := server.Read()
		var unread *jsonrpc.Error
		begins := frame
		if errors.As(err, &unread) && !errors.Is(err, io.EOF) {
			begins = beginning.BytesOf(err)
		} else if err != nil {
			return err, c.flush() != nil
		} else {
			unread = dec.Decode(frame, &batch)
		}
		if unread != nil {
			p.u.garbage(ctx, begins, unread)
			if frame = standIn(begins); frame == nil || dec.Decode(frame, &batch) != nil {
				continue
			}
		}
		calls, pass := p.answered(&batch)
		switch most := p.u.opts.MaxMessage; {
		case !pass:
			p.u.garbage(ctx, frame, batch.Messages[0].Err)
			continue
		case unread != nil:
			frame = p.instead(&batch, p.unread(unread))
		case most > 0 && len(frame) > most:
			p.u.garbage(ctx, frame, errTooLarge)
			if frame = p.instead(&batch, p.tooLarge()); frame == nil {
				p.track.settle(calls)
				continue
			}
		}
		if err := c.put(frame, calls); err != nil {
			return err, true
		}
	}
}

// standIn returns an answer with the id of one that was not read, nil when it was no answer or its
// id is not known.
func standIn(begins []byte) []byte {
	f := beginning.Of(begins)
	if !f.Answer || f.Batch || f.ID.IsAbsent() || f.ID.IsNull() {
		return nil
	}
	return jsonrpc.V2.AppendResult(nil, f.ID, jsonrpc.Raw("null"))
}

// unread is the error in place of an answer that was not read.
func (p *pipe) unread(reason *jsonrpc.Error) *jsonrpc.Error {
	if reason.Code == jsonrpc.TooLarge {
		return p.tooLarge()
	}
	e := p.u.failure(reason, true)
	e.Message = "The answer of the upstream " + p.u.opts.Name +
		" could not be read; whether the call had an effect is not known"
	return e
}

func (p *pipe) tooLarge() *jsonrpc.Error {
	e := p.u.failure(errTooLarge, true)
	e.Data = fmt.Appendf(e.Data[:len(e.Data)-1], `,"maxSize":%d,"unit":"bytes"}`, p.u.opts.MaxMessage)
	e.Code, e.Message = jsonrpc.TooLarge, "The answer of the upstream "+p.u.opts.Name+" is too large"
	return e
}

// instead returns an error in place of the answers of a frame, nil when there are none.
func (p *pipe) instead(b *jsonrpc.Batch, e *jsonrpc.Error) []byte {
	var out []byte
	for i := range b.Messages {
		m := &b.Messages[i]
		if m.Kind != jsonrpc.Response {
			continue
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		p.u.meter.errors.Add(1)
		out = m.Version.AppendError(out, m.ID, e)
	}
	if b.Array && out != nil {
		out = append(append([]byte{'['}, out...), ']')
	}
	return out
}
