package raw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/beginning"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

var errDialTimeout = errors.New("raw: no connection within " + dialTimeout.String())

// dial makes a connection. end releases what it needs once it is closed.
func (u *Upstream) dial(ctx context.Context) (t farcall.Transport, end func(), err error) {
	if err := u.reconnect.wait(ctx); err != nil {
		return nil, nil, err
	}
	u.meter.dials.Add(1)
	dialling := ctx
	// the connection is closed first
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	timer := time.AfterFunc(dialTimeout, func() { cancel(errDialTimeout) })
	stop := context.AfterFunc(dialling, func() { cancel(context.Cause(dialling)) })
	t, err = u.opts.Dial(ctx)
	if timely, wanted := timer.Stop(), stop(); err == nil && (!timely || !wanted) {
		_ = t.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		if errors.Is(context.Cause(ctx), errDialTimeout) {
			err = fmt.Errorf("%w: %w", errDialTimeout, err)
		}
		if ctx.Err() == nil || errors.Is(err, errDialTimeout) { // and not because it is no longer needed
			after, _ := u.opts.Explain(err)
			u.reconnect.failed(err, after)
			u.health.set("down", err)
		}
		cancel(nil)
		return nil, nil, err
	}
	u.reconnect.reset()
	u.health.set("up", nil)
	return t, func() { cancel(nil) }, nil
}

// line is a connection to the upstream that many calls share.
type line struct {
	peer *farcall.Peer
	tap  *tap
	end  func()
	born time.Time
}

func (l *line) close() {
	_ = l.peer.Close() // its handlers do not block, or on a client that has gone
	l.end()
}

// open makes a line. h gets what the upstream asks.
func (u *Upstream) open(ctx context.Context, h farcall.HandlerFunc) (*line, error) {
	t, end, err := u.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &line{tap: newTap(u, t), end: end, born: time.Now()}
	l.peer = farcall.NewPeer(l.tap.transport(), h, &farcall.Options{ //nolint:contextcheck // a peer lives until it is closed
		Logger: u.opts.Logger, MaxDepth: maxDepth, Budget: u.opts.Budget,
	})
	return l, nil
}

// shared returns the line that all share, and makes it where there is none.
func (u *Upstream) shared(ctx context.Context) (*line, error) {
	waited := false
	for {
		u.mu.Lock()
		if l := u.line; l != nil && (l.tap.dead.Load() || l.peer.Err() != nil) {
			u.lost(l)
		}
		l, dialing, err := u.line, u.dialing, u.dialErr
		switch {
		case l != nil:
			u.mu.Unlock()
			return l, nil
		case dialing == nil && waited && err != nil:
			u.mu.Unlock()
			return nil, err
		case dialing == nil:
			dialing = make(chan struct{})
			u.dialing = dialing
			u.work.Go(func() { u.redial(dialing) }) // the caller is booked, so there is work
		}
		u.mu.Unlock()
		waited = true
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lost takes a line that has ended out of use.
func (u *Upstream) lost(l *line) {
	u.line = nil
	err := l.tap.cause()
	if time.Since(l.born) < steadyTime {
		u.reconnect.failed(err, 0)
	}
	u.health.set("down", err)
	u.work.Go(l.close) // anyone who has found it is booked
}

// redial makes the shared line.
func (u *Upstream) redial(done chan struct{}) {
	l, err := u.open(u.ctx, u.asked)
	u.mu.Lock()
	u.line, u.dialing, u.dialErr = l, nil, err
	u.mu.Unlock()
	close(done)
}

// tap is the transport of a line. It skips what is no message, knows whether
// anything was sent, and finds progress that a token of ours names. It is not
// farcall.Buffered: what is there may be all to be skipped.
type tap struct {
	farcall.Transport
	u      *Upstream
	keeper farcall.Keeper

	writes atomic.Uint64 // that were begun
	dead   atomic.Bool   // nothing comes any more

	// Of the goroutine that reads.
	dec   jsonrpc.Decoder
	batch jsonrpc.Batch

	mu    sync.Mutex
	err   error // why it is dead
	last  uint64
	sinks map[string]func(value jsonrpc.Raw) // by the token as it is written
}

func newTap(u *Upstream, t farcall.Transport) *tap {
	p := &tap{Transport: t, u: u, dec: newDecoder()}
	p.keeper, _ = t.(farcall.Keeper)
	return p
}

// tryTap is a tap with writes that can be tried without blocking.
type tryTap struct {
	*tap
	try farcall.TryWriter
}

// TryWrite implements farcall.TryWriter.
func (t tryTap) TryWrite(frames ...[]byte) (bool, error) {
	t.writes.Add(1)
	return t.try.TryWrite(frames...)
}

// transport returns the tap with the optional halves of what is below it.
func (t *tap) transport() farcall.Transport {
	if try, ok := t.Transport.(farcall.TryWriter); ok {
		return tryTap{t, try}
	}
	return t
}

// Write implements farcall.Transport.
func (t *tap) Write(frames ...[]byte) error {
	t.writes.Add(1)
	return t.Transport.Write(frames...)
}

// Keep implements farcall.Keeper.
func (t *tap) Keep() {
	if t.keeper != nil {
		t.keeper.Keep()
	}
}

// Read implements farcall.Transport.
func (t *tap) Read() ([]byte, error) {
	for {
		letGo(&t.batch)
		frame, err := t.Transport.Read()
		if err != nil {
			refused := new(jsonrpc.Error)
			if errors.As(err, &refused) && !errors.Is(err, io.EOF) {
				if beginning.Of(beginning.BytesOf(err)).Answer {
					return nil, err // the peer fails the call
				}
				t.u.garbage(t.u.ctx, nil, err)
				continue
			}
			t.mu.Lock()
			t.err = err
			t.mu.Unlock()
			t.dead.Store(true)
			return nil, err
		}
		if e := t.dec.Decode(frame, &t.batch); e != nil {
			if beginning.Of(frame).Answer {
				return frame, nil // as above
			}
			t.u.garbage(t.u.ctx, frame, e)
			continue
		}
		m := &t.batch.Messages[0]
		switch {
		case t.batch.Array:
		case m.Kind == jsonrpc.Invalid && (m.ID.IsNull() || scan.Member(m.Raw, "method") != nil):
			t.u.garbage(t.u.ctx, frame, m.Err)
			continue
		case m.Kind == jsonrpc.Notification && t.progressed(m):
			continue
		}
		return frame, nil
	}
}

func (t *tap) cause() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

const progressMethod = "$/progress"

// progressed hands progress to the one that has the token.
func (t *tap) progressed(m *jsonrpc.Message) bool {
	if string(m.Method) != progressMethod {
		return false
	}
	t.mu.Lock()
	sink := t.sinks[string(scan.Member(m.Params, "token"))]
	t.mu.Unlock()
	if sink == nil {
		return false
	}
	sink(scan.Member(m.Params, "value"))
	return true
}

// token returns a token, and gives what is marked with it to sink until stop is
// called.
func (t *tap) token(sink func(value jsonrpc.Raw)) (token jsonrpc.Raw, stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	token = fmt.Appendf(nil, `"farcall-%d"`, t.last)
	if t.sinks == nil {
		t.sinks = map[string]func(jsonrpc.Raw){}
	}
	t.sinks[string(token)] = sink
	return token, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.sinks, string(token))
	}
}

const (
	// carried is how many bytes of small frames are collected while more of them
	// are there, so that they share a write.
	carried   = 32 << 10
	largeSize = 8 << 10 // a frame from this size on is not copied
)

// chunks lends the memory of what is collected.
var chunks = sync.Pool{New: func() any { b := make([]byte, 0, carried); return &b }}

// carrier writes the frames of one transport to another in their order.
type carrier struct {
	src    farcall.Transport
	to     func(frames ...[]byte) error
	settle func(calls int) // told once the answers to so many calls are written; may be nil

	chunk  *[]byte
	frames [][]byte
	calls  int
}

// more reports whether src has another frame at once.
func (c *carrier) more() bool {
	b, ok := c.src.(farcall.Buffered)
	return ok && b.Buffered()
}

// pause writes what is collected unless another frame is there already.
func (c *carrier) pause() error {
	if len(c.frames) == 0 || c.more() {
		return nil
	}
	return c.flush()
}

// put writes a frame, which answers so many calls, or collects it.
func (c *carrier) put(frame []byte, calls int) error {
	c.calls += calls
	if c.chunk != nil && len(*c.chunk)+len(frame) > carried {
		c.frames = append(c.frames, frame)
		return c.flush()
	}
	if len(frame) >= largeSize || c.chunk == nil && !c.more() {
		c.frames = append(c.frames, frame)
		return c.flush()
	}
	if c.chunk == nil {
		c.chunk = chunks.Get().(*[]byte) //nolint:errcheck // nothing else is in the pool
	}
	at := len(*c.chunk)
	*c.chunk = append(*c.chunk, frame...)
	c.frames = append(c.frames, (*c.chunk)[at:len(*c.chunk):len(*c.chunk)])
	return nil
}

// flush writes what is collected.
func (c *carrier) flush() error {
	if len(c.frames) == 0 {
		return nil
	}
	err := c.to(c.frames...)
	clear(c.frames)
	c.frames = c.frames[:0]
	if c.chunk != nil {
		*c.chunk = (*c.chunk)[:0]
		chunks.Put(c.chunk)
		c.chunk = nil
	}
	if c.settle != nil {
		c.settle(c.calls)
	}
	c.calls = 0
	return err
}
