package stream

import (
	"sync"

	"github.com/farcall-dev/farcall/internal/budget"
)

const (
	largeSize = 64 << 10 // what is read or written at a time
	smallSize = 1 << 10  // what a connection may hold while it waits
)

// A buffer is memory on loan from a pool.
type buffer struct{ b []byte }

// These are tables of memory, not state.
var (
	largeBuffers = sync.Pool{New: func() any { return &buffer{make([]byte, largeSize)} }}
	smallBuffers = sync.Pool{New: func() any { return &buffer{make([]byte, smallSize)} }}
)

// getBuffer returns a buffer of at least size bytes.
func getBuffer(size int) *buffer {
	switch {
	case size <= smallSize:
		return smallBuffers.Get().(*buffer) //nolint:errcheck // the pool holds nothing else
	case size <= largeSize:
		b := largeBuffers.Get().(*buffer) //nolint:errcheck // the pool holds nothing else
		if len(b.b) < size {              // keep has cut it
			b.release()
			return &buffer{make([]byte, largeSize)}
		}
		return b
	default:
		return &buffer{make([]byte, size)}
	}
}

// release gives the buffer back. The pools refuse what grew beyond largeSize,
// and what keep has left too little of.
func (b *buffer) release() {
	switch n := len(b.b); {
	case n == smallSize:
		smallBuffers.Put(b)
	case n >= largeSize/2 && n <= largeSize:
		largeBuffers.Put(b)
	}
}

// input is what was read and not yet taken.
type input struct {
	buf  *buffer // nil while there is nothing
	r, w int     // what is unread is buf.b[r:w]

	conn *conn       // the owner of the input
	loan budget.Loan // what a buffer of more than budget.Free holds
}

func (in *input) unread() []byte {
	if in.buf == nil {
		return nil
	}
	return in.buf.b[in.r:in.w]
}

// take removes the first n bytes. They stay where they are until room, park or
// release is called.
func (in *input) take(n int) { in.r += n }

// keep cuts off what was taken: its memory is never written again, and code that
// keeps it answers for it. A few bytes that are left move, so that they do not
// hold the memory of a large frame.
func (in *input) keep() {
	if in.buf == nil {
		return
	}
	in.buf.b = in.buf.b[in.r:]
	in.r, in.w = 0, in.w-in.r
	if in.loan.Held() == 0 {
		return
	}
	if in.w <= largeSize/2 {
		in.move(max(in.w, smallSize))
	} else {
		in.loan.Force(len(in.buf.b))
	}
}

// fill puts p into an empty input.
func (in *input) fill(p []byte) {
	if len(p) > 0 {
		in.buf = getBuffer(len(p))
		in.w = copy(in.buf.b, p)
	}
}

// room returns free space to read into. An empty input gets a buffer of the
// size, which is smallSize or largeSize; one that is full of unread bytes
// doubles, up to the limit. It returns nil when the budget has no room for that.
func (in *input) room(size, limit int) []byte {
	n := in.w - in.r
	switch {
	case in.buf == nil, n == 0 && !fits(len(in.buf.b), size):
		in.move(size / 2) // half is enough where keep has cut buffers
	case n == 0:
		in.r, in.w = 0, 0
	case size == largeSize && len(in.buf.b) <= smallSize:
		in.move(largeSize / 2)
	case in.r > 0 && len(in.buf.b) > largeSize && n <= largeSize/2:
		in.move(largeSize / 2) // the large message is through
	case in.r > 0 && (n <= smallSize || in.w == len(in.buf.b)):
		copy(in.buf.b, in.buf.b[in.r:in.w])
		in.r, in.w = 0, n
	}
	if in.w == len(in.buf.b) {
		// Past the limit there is always room for one more read, in which the
		// framing finds that the limit is exceeded.
		size := max(min(2*in.w, limit), in.w+smallSize)
		if !in.loan.Begin(size, in.conn) {
			return nil
		}
		in.move(size)
	}
	return in.buf.b[in.w:]
}

// fits reports whether a buffer of n bytes may serve in place of one of size.
func fits(n, size int) bool { return n >= size/2 && n <= size }

// park gives a large buffer back before a wait. A few unread bytes, the
// beginning of a message, move to a small one: ten thousand connections that
// send a byte each must not hold ten thousand large buffers.
func (in *input) park() {
	if n := in.w - in.r; n == 0 {
		in.release()
	} else if n <= smallSize && len(in.buf.b) > smallSize {
		in.move(n)
	}
}

// move puts what is unread into another buffer.
func (in *input) move(size int) {
	old, unread := in.buf, in.unread()
	in.buf = getBuffer(size)
	in.r, in.w = 0, copy(in.buf.b, unread)
	if old != nil {
		old.release()
	}
	if len(in.buf.b) <= budget.Free {
		in.loan.Force(0)
	}
}

func (in *input) release() {
	if in.buf != nil {
		in.buf.release()
	}
	in.buf, in.r, in.w = nil, 0, 0
	in.loan.Force(0)
}
