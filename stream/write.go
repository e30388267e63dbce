package stream

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall"
)

const (
	maxHead = 48  // of what goes before or after a frame
	tail    = 512 // of a large frame is copied, so that its line end needs no separate write
)

// Write writes whole frames. Small ones share one write; of a large one only
// the beginning and the end are copied.
func (c *conn) Write(frames ...[]byte) error {
	_, err := c.write(frames, false)
	return err
}

// tryConn is a conn that can write without blocking.
type tryConn struct{ conn }

// TryWrite writes what the other end has room for and keeps a copy of the rest
// for the next Write or TryWrite.
func (t *tryConn) TryWrite(frames ...[]byte) (done bool, err error) {
	return t.write(frames, true)
}

func (c *conn) write(frames [][]byte, try bool) (done bool, err error) {
	if c.werr != nil {
		return false, c.werr
	}
	o := output{c: c, try: try}
	if rest := c.rest; len(rest) > 0 {
		c.rest = nil
		if try {
			var n int
			n, o.err = c.raw.write(rest)
			c.rest = rest[n:] // not copied again
		} else {
			o.emit(rest)
		}
	}
	if len(frames) > 0 {
		o.buf = getBuffer(largeSize / 2)
		for _, frame := range frames {
			o.frame(frame)
		}
		o.flush()
		o.buf.release()
	}
	if o.err != nil {
		// Part of a frame may have gone out: what follows would not be
		// understood.
		c.werr = c.failed(o.err)
		c.rest = nil
	}
	return len(c.rest) == 0, c.werr
}

// dying is how long a child that takes no more input may need to end.
const dying = time.Second

func (c *conn) failed(err error) error {
	// How a child has ended says more than that it takes no more input.
	if p, ok := c.rwc.(*child); ok && !c.closed.Load() &&
		(errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed)) && p.wait(dying) {
		return p.exitError()
	}
	if c.closed.Load() || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
		return farcall.ErrClosed
	}
	return fmt.Errorf("stream: write: %w", err)
}

// output combines frames into few writes.
type output struct {
	c   *conn
	try bool
	buf *buffer
	n   int // bytes in buf
	err error
}

func (o *output) frame(p []byte) {
	if len(o.buf.b)-o.n < maxHead {
		o.flush()
	}
	if o.c.header {
		o.n = len(appendHeader(o.buf.b[:o.n], len(p)))
		o.add(p)
		return
	}
	if bytes.IndexByte(p, '\n') < 0 && bytes.IndexByte(p, '\r') < 0 {
		o.add(p)
	} else {
		o.addLine(p)
	}
	if o.n == len(o.buf.b) {
		o.flush()
	}
	o.buf.b[o.n] = '\n'
	o.n++
}

func (o *output) add(p []byte) {
	for len(p) > 0 {
		if o.n == 0 && len(p) > largeSize {
			cut := len(p) - tail
			o.emit(p[:cut])
			p = p[cut:]
		}
		k := copy(o.buf.b[o.n:], p)
		o.n, p = o.n+k, p[k:]
		if o.n == len(o.buf.b) {
			o.flush()
		}
	}
}

// addLine adds a frame that has line breaks. In JSON they can only be white
// space, and so are spaces.
func (o *output) addLine(p []byte) {
	for len(p) > 0 {
		k := copy(o.buf.b[o.n:], p)
		for i, b := range o.buf.b[o.n : o.n+k] {
			if b == '\n' || b == '\r' {
				o.buf.b[o.n+i] = ' '
			}
		}
		o.n, p = o.n+k, p[k:]
		if o.n == len(o.buf.b) {
			o.flush()
		}
	}
}

func (o *output) flush() {
	if o.n > 0 {
		o.emit(o.buf.b[:o.n])
		o.n = 0
	}
}

// emit writes p, or what can be written of it, and keeps the rest.
func (o *output) emit(p []byte) {
	c := o.c
	switch {
	case o.err != nil:
	case !o.try:
		_, o.err = c.rwc.Write(p)
	default:
		if len(c.rest) == 0 {
			var n int
			n, o.err = c.raw.write(p)
			p = p[n:]
		}
		c.rest = append(c.rest, p...)
	}
}
