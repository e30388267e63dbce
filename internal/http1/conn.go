package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/late"
)

// scratch is the memory of a connection that is in use.
type scratch struct {
	in      [4 << 10]byte
	pending []byte // of the body of an answer, which is held back
	out     output // what is to be sent
}

// maxKept is the largest output buffer that is kept.
const maxKept = 2 * maxOut

// A phase is what a connection does.
type phase uint8

const (
	idle    phase = iota // between requests
	reading              // a head has begun
	busy                 // a request is served, or the connection handed over
	closed               // by the server, or because the client was too slow
)

// A conn is a connection. Its goroutine is that of [Server.Serve]; what other
// goroutines use is in watch, in the exchange, and behind mu.
type conn struct {
	s      *Server
	rwc    net.Conn
	ctx    context.Context //nolint:containedctx // the values that its requests have
	tls    *tls.ConnectionState
	remote string
	number uint64

	buf    *scratch // nil: the connection has been idle for some time
	in     []byte   // that of buf, or a larger one for a long head
	r, w   int      // in[r:w] was read and is not used
	few    [16]byte // to read into without buf
	served bool     // a request was
	eof    bool     // the last read has ended with it

	head   head
	kept   []kept
	target string

	readErr, writeErr error // sticky
	readSet           bool  // a deadline for reads is set, for a body
	writeBy           time.Time
	watch             watch

	mu     sync.Mutex
	phase  phase
	since  int64 // turn of the server's timer, of the phase
	roused bool  // a deadline in the past ends the read of an idle connection
}

func (c *conn) out() *output { return &c.buf.out }

func (c *conn) lateness() *late.Watch { return &c.s.late[c.number%uint64(len(c.s.late))].Watch }

// move begins a phase. It reports false when the server has closed the connection.
func (c *conn) move(to phase) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == closed {
		return false
	}
	if c.phase == idle {
		c.calmLocked()
	}
	if c.phase != to {
		c.phase, c.since = to, c.s.turn.Load()
	}
	return true
}

// calmLocked takes the deadline of rouse back.
func (c *conn) calmLocked() {
	if c.roused {
		c.roused = false
		_ = c.rwc.SetReadDeadline(time.Time{}) // fails when it is closed
	}
}

// look bounds the time of a connection. It is called at each turn.
func (c *conn) look(turn int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := time.Duration(turn-c.since) * everyTurn
	switch {
	case c.phase == idle && c.s.idleTime > 0 && passed > c.s.idleTime,
		c.phase == reading && c.s.headTime > 0 && passed > c.s.headTime:
		c.closeLocked()
	case c.phase == idle && turn-c.since == leanAfter:
		c.roused = true
		_ = c.rwc.SetReadDeadline(time.Unix(1, 0)) // as above
	}
}

// closeIfIdle ends a connection that serves nothing.
func (c *conn) closeIfIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == idle {
		c.closeLocked()
	}
}

func (c *conn) closeLocked() {
	c.phase = closed
	_ = c.rwc.Close() // the client sees it
}

// serve serves requests until one is for net/http, or the connection ends.
func (c *conn) serve() (rest []byte, over bool) {
	defer c.release() // first, so that it is last: rest is a copy
	for {
		switch c.readHead() {
		case ours:
			if !c.serveOne() {
				return nil, false
			}
		case foreign:
			return c.handOver()
		default:
			return nil, false
		}
	}
}

// readHead reads the next head. It returns more when the connection has ended.
func (c *conn) readHead() verdict {
	c.head.reset()
	for {
		if p := c.in[c.r:c.w]; len(p) > 0 && !c.tooFew(p) {
			v := c.head.parse(p)
			if v == ours && !c.registered(c.head.target.of(p)) {
				v = foreign
			}
			if v != more {
				if !c.move(busy) {
					return more
				}
				return v
			}
		}
		if c.w > c.r && !c.move(reading) {
			return more
		}
		if !c.fill() {
			return c.cut()
		}
	}
}

// cut ends a head that is not complete: net/http answers a client that has sent a
// part of one and waits for an answer.
func (c *conn) cut() verdict {
	p := c.in[c.r:c.w]
	if !c.eof || len(p) == 0 || c.tooFew(p) || !c.move(busy) {
		return more
	}
	return foreign
}

// tooFew reports whether there is less than net/http looks at behind a request: of four
// bytes it drops the line ends, which some clients send after a body, and so does
// handOver. Fewer, before the client ends, get no answer.
func (c *conn) tooFew(p []byte) bool { return c.served && len(p) < 4 }

func lineEnds(p []byte) (n int) {
	for n < len(p) && n < 4 && (p[n] == '\r' || p[n] == '\n') {
		n++
	}
	return n
}

// registered reports whether a target is fast, and remembers it.
func (c *conn) registered(target []byte) bool {
	if c.target == string(target) {
		return true
	}
	text := string(target)
	if !c.s.fast(text) {
		return false
	}
	c.target = text
	return true
}

// fill reads more. It reports false when the connection has ended.
func (c *conn) fill() bool {
	for c.readErr == nil {
		if c.buf == nil {
			n, err := c.rwc.Read(c.few[:])
			if c.again(n, err) {
				continue
			}
			if n > 0 {
				c.borrow()
				c.w = copy(c.in, c.few[:n])
			}
			return n > 0
		}
		c.makeRoom()
		n, err := c.rwc.Read(c.in[c.w:])
		if c.again(n, err) {
			continue
		}
		c.w += n
		c.eof = errors.Is(err, io.EOF)
		return n > 0
	}
	return false
}

// again reports whether a read has to be repeated: it was roused because the
// connection is idle. Then the connection gives back its buffers.
func (c *conn) again(n int, err error) bool {
	if n > 0 || !isTimeout(err) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.roused || c.phase == closed {
		return false
	}
	c.calmLocked()
	if c.r == c.w {
		c.release()
		c.kept, c.head.fields = nil, nil
	}
	return true
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

func (c *conn) makeRoom() {
	switch {
	case c.r == c.w:
		c.r, c.w = 0, 0
		c.in = c.buf.in[:]
	case c.w < len(c.in):
	case c.r > 0:
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	default: // a long head
		large := make([]byte, maxHead)
		copy(large, c.in)
		c.in = large
	}
}

func (c *conn) borrow() {
	if c.buf, _ = c.s.pool.Get().(*scratch); c.buf == nil {
		c.buf = &scratch{pending: make([]byte, 0, maxPending)}
	}
	c.in, c.r, c.w = c.buf.in[:], 0, 0
}

func (c *conn) release() {
	if c.buf == nil {
		return
	}
	if cap(c.buf.out.b) > maxKept {
		c.buf.out.b = nil
	}
	c.buf.pending, c.buf.out.b = c.buf.pending[:0], c.buf.out.b[:0]
	c.s.pool.Put(c.buf)
	c.buf, c.in, c.r, c.w = nil, nil, 0, 0
}

// handOver gives what was not used to net/http.
func (c *conn) handOver() (rest []byte, over bool) {
	p := c.in[c.r:c.w]
	if c.served {
		p = p[lineEnds(p):]
	}
	if !c.writeBy.IsZero() {
		_ = c.rwc.SetWriteDeadline(time.Time{}) // fails when it is closed
	}
	return append([]byte(nil), p...), true
}

// serveOne serves the request that was read. It reports false when the connection
// is not used again.
func (c *conn) serveOne() bool {
	x := c.newExchange()
	c.r += c.head.end
	c.served = true
	c.s.hook(c.rwc, http.StateActive)
	c.beginWatch(x)
	handled := false
	defer func() {
		if !handled { // a panic, or runtime.Goexit
			x.over.Store(true)
			x.ctx.cancel()
			c.endWatch(x)
			c.s.panicked(c, recover())
		}
	}()
	c.s.handler.ServeHTTP(&x.res, &x.req)
	handled = true
	x.ctx.cancel()
	x.res.finish()
	x.over.Store(true)
	c.endWatch(x)
	_ = x.body.Close() // what it could not read, early says
	c.readUnbounded(x)
	if !x.res.reusable() {
		if x.res.tooMuch || x.body.early {
			c.linger()
		}
		return false
	}
	if c.s.draining.Load() || !c.move(idle) {
		return false
	}
	c.s.hook(c.rwc, http.StateIdle)
	return true
}

// linger lets the client read the answer before the connection is reset, for it may
// still send of a body that nothing reads.
func (c *conn) linger() {
	if w, ok := c.rwc.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite() // it may be closed
	}
	timer := time.NewTimer(lingerTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.s.done:
	}
}

// panicked logs the panic of a handler, as net/http does.
func (s *Server) panicked(c *conn, reason any) {
	if reason == nil || reason == http.ErrAbortHandler { //nolint:errorlint // it is that value
		return
	}
	stack := make([]byte, 64<<10)
	stack = stack[:runtime.Stack(stack, false)]
	s.logf("http: panic serving %s: %v\n%s", c.remote, reason, stack)
}

// A watch notices a client that leaves while its request is served: the read that
// does so begins when the request is late, see package late, and when the body was read.
type watch struct {
	mu       sync.Mutex
	x        *exchange // that is served; nil: none
	late     bool      // the request is
	read     bool      // the body was
	stopping bool
	done     chan struct{} // closed when the read has ended; nil: it has not begun
}

// Late implements late.Thing.
func (x *exchange) Late() {
	w := &x.conn.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.x == x {
		w.late = true
		x.conn.watchLocked()
	}
}

// bodyRead says that nothing of the body is still to come.
func (c *conn) bodyRead(x *exchange) {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	if c.watch.x == x {
		c.watch.read = true
		c.watchLocked()
	}
}

// beginWatch begins a request.
func (c *conn) beginWatch(x *exchange) {
	w := &c.watch
	w.mu.Lock()
	w.x, w.late, w.read, w.stopping = x, false, x.body.left == 0, false
	w.mu.Unlock()
	c.lateness().Enter(&x.place, x)
}

// watchLocked begins to read when all is given for that. What it reads is of the
// next request: the body is not read any more.
func (c *conn) watchLocked() {
	w := &c.watch
	if !w.late || !w.read || w.stopping || w.done != nil || c.readErr != nil {
		return
	}
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.w == len(c.in) {
		return // pipelined requests are in the way, as they are in net/http
	}
	c.readUnbounded(w.x)
	w.done = make(chan struct{})
	go c.watchClient(w.x, w.done)
}

func (c *conn) watchClient(x *exchange, done chan struct{}) {
	n, err := c.rwc.Read(c.in[c.w:])
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	c.w += n
	stopped := c.watch.stopping && isTimeout(err)
	if n == 0 && err != nil && !stopped {
		c.readErr, c.eof = err, errors.Is(err, io.EOF)
		x.ctx.cancel()
	}
	close(done)
}

// endWatch ends a request. Nothing reads from the connection when it returns.
func (c *conn) endWatch(x *exchange) {
	c.lateness().Leave(&x.place)
	w := &c.watch
	w.mu.Lock()
	done := w.done
	w.x, w.done, w.stopping = nil, nil, true
	if done != nil {
		_ = c.rwc.SetReadDeadline(time.Unix(1, 0)) // fails when it is closed
	}
	w.mu.Unlock()
	if done != nil {
		<-done
		_ = c.rwc.SetReadDeadline(time.Time{}) // as above
	}
}
