package farcall

import "sync"

const (
	chunkSize  = 16 << 10 // small frames share chunks of this size
	largeFrame = 8 << 10  // a frame from this size on is queued as it is
	poolLimit  = 64 << 10 // larger buffers are not pooled
)

// buffers lends scratch space for encoding. It is a table of memory, not state.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

var chunks = sync.Pool{New: func() any { b := make([]byte, 0, chunkSize); return &b }}

var outboxes = sync.Pool{New: func() any { return new(outbox) }}

func getBuffer() *[]byte { return buffers.Get().(*[]byte) } //nolint:errcheck // only those are in it

func putBuffer(b *[]byte) {
	if cap(*b) <= poolLimit {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// outbox is a queue of encoded frames. Small frames are copied into shared
// chunks, so that a hundred thousand unread answers cost their bytes and
// little more.
type outbox struct {
	frames [][]byte
	used   []*[]byte // the chunks that frames point into; the last one is being filled
	bytes  int
	// answers counts the frames that are answers, and owed their bytes.
	answers, owed int
}

// add queues a frame. It reports whether it has taken the memory of the frame
// for itself.
func (o *outbox) add(frame []byte) (taken bool) {
	o.bytes += len(frame)
	if len(frame) >= largeFrame {
		o.frames = append(o.frames, frame)
		return true
	}
	var c *[]byte
	if n := len(o.used); n > 0 && cap(*o.used[n-1])-len(*o.used[n-1]) >= len(frame) {
		c = o.used[n-1]
	} else {
		c = chunks.Get().(*[]byte) //nolint:errcheck // only those are in it
		o.used = append(o.used, c)
	}
	start := len(*c)
	*c = append(*c, frame...)
	o.frames = append(o.frames, (*c)[start:len(*c):len(*c)])
	return false
}

// release gives the outbox back after its frames were written. An idle peer
// holds none.
func (o *outbox) release() {
	for i, c := range o.used {
		*c = (*c)[:0]
		chunks.Put(c)
		o.used[i] = nil
	}
	clear(o.frames)
	*o = outbox{frames: o.frames[:0], used: o.used[:0]}
	if cap(o.frames) <= 1024 {
		outboxes.Put(o)
	}
}
