package stream

import (
	"errors"
	"net"
	"time"

	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A frame that arrives.
//
//	         first byte                       last byte
//	(idle) ─────────────> begun ────────────────────────────> taken, or dropped
//	                        │ │ no room in the budget              ^
//	                        │ └───────────> skipped ───────────────┘
//	                        │ FrameTimeout, or evicted from the budget
//	                        └───────────────────> answered, and the stream ends

// errNoRoom is why nothing was read: the buffer must grow, and the budget has no
// room for that.
var errNoRoom = errors.New("stream: no room in the budget")

// arriving reports whether part of a frame is there. Where other things than
// messages may come between them, it must look like one: a program that prints a
// word and no line end is not a slow one.
func (c *conn) arriving() bool {
	p := c.in.unread()
	switch {
	case c.need >= 0 || c.skip > 0:
		return true
	case c.skipper == nil:
		return len(p) > 0 || c.noEnd
	case c.header || c.noEnd:
		return false
	}
	for _, b := range p {
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return b == '{' || b == '['
		}
	}
	return false
}

// begin watches the frame that has begun, if it is not watched already.
func (c *conn) begin() {
	if c.begun || c.timeout <= 0 {
		return
	}
	w := c.watch.Load()
	if w == nil {
		w = slow.NewFrame(c.timeout, func() { c.interrupt(c.timeout.TooSlow()) })
		c.watch.Store(w)
	}
	c.begun = true
	w.Begin()
}

// complete says that nothing of the frame is still to come.
func (c *conn) complete() {
	if c.begun {
		c.begun = false
		c.watch.Load().End()
	}
	if c.in.loan.Held() > 0 {
		c.in.loan.Grow(len(c.in.buf.b)) // it is not incomplete any more
	}
}

// drop removes a frame that is not returned.
func (c *conn) drop(n int) {
	c.in.take(n)
	c.complete()
}

// Busy tells the connection below what reports whether it is in use, so that it does
// not count as idle: see package accept. Not all connections want to know.
func (c *conn) Busy(f func() bool) {
	for under := any(c.rwc); ; {
		switch x := under.(type) {
		case interface{ Busy(f func() bool) }:
			x.Busy(f)
			return
		case interface{ NetConn() net.Conn }:
			under = x.NetConn()
		default:
			return
		}
	}
}

// Remote is the address at the other end of the stream, for the budget.
func (c *conn) Remote() string {
	if n, ok := c.rwc.(net.Conn); ok && n.RemoteAddr() != nil {
		return n.RemoteAddr().String()
	}
	return ""
}

// Evicted ends the stream because its frame, which is incomplete, has made room
// for another one.
func (c *conn) Evicted() { c.interrupt(budget.Overloaded()) }

// interrupt ends the stream after an answer. A Read that waits returns.
func (c *conn) interrupt(reason *jsonrpc.Error) {
	c.ending.CompareAndSwap(nil, reason)
	past := time.Unix(1, 0)
	if d, ok := c.rwc.(interface{ SetReadDeadline(t time.Time) error }); !ok || d.SetReadDeadline(past) != nil {
		_ = c.rwc.Close() // nothing else unblocks it, and so there is no answer
	}
}

// giveUp refuses the frame that is incomplete and ends the stream.
func (c *conn) giveUp(reason *jsonrpc.Error) {
	c.drop(len(c.in.unread()))
	c.scanned, c.need, c.skip, c.noEnd = 0, -1, 0, false
	c.refusal = &refusedError{reason: reason}
	c.err = errors.New("stream: the stream was ended: " + reason.Message)
}

// overloaded refuses the frame that is incomplete, for which there is no room,
// and skips the rest of it.
func (c *conn) overloaded() {
	p := c.in.unread()
	c.scanned = 0
	switch {
	case c.header && c.need < 0: // within a header, after which nothing can be found
		c.lost(errNoRoom)
		return
	case c.header:
		c.skip, c.need = int64(c.need), -1
	default:
		c.noEnd = true
		c.in.take(len(p))
	}
	if !c.skips(p, false) {
		c.refuse(budget.Overloaded(), p)
	}
}
