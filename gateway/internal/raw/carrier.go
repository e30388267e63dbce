package raw

import (
	"sync"

	"github.com/farcall-dev/farcall"
)

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
