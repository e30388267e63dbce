package http1

import (
	"errors"
	"io"
	"sync"
	"time"
)

// A watch notices a client that leaves while its request is served: the read that
// does so begins after a millisecond, and when the body was read.
type watch struct {
	mu       sync.Mutex
	x        *exchange // that is served; nil: none
	late     bool      // a millisecond has passed
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
