package farcall

import (
	"context"
	"io"
	"sync"
)

// A Transport carries frames between two ends. A frame is one JSON text: a
// message or a batch.
//
// A Peer reads in one goroutine and writes in one goroutine at a time; both
// may happen at once, and Close may be called at any time by any goroutine.
type Transport interface {
	// Read returns the next frame. It fails with io.EOF when the other end closed in order; calls in
	// flight are still answered, unless the error has a method BothEnds() bool that reports true; one
	// with a method HalfClosed() bool that reports true says that the other end still reads (see
	// Options.Linger). A *jsonrpc.Error (as errors.As finds it) refuses one frame only, too large for
	// example: the peer answers with it and reads on. A method Begins() []byte of the error returns
	// the beginning of the frame, so that the peer can fail the call that waits for it. Any other
	// error ends the connection.
	//
	// The frame belongs to the caller, unless the transport is a Keeper.
	Read() ([]byte, error)
	// Write writes whole frames in order. It may block until Close. It does not
	// keep the frames.
	Write(frames ...[]byte) error
	// Close closes both directions and unblocks Read and Write. It may be
	// called more than once.
	Close() error
}

// A Keeper is a Transport that reuses its memory: what Read returns is valid
// only until the next Read, unless Keep is called before it. Then that memory
// is left alone for good.
type Keeper interface {
	Keep()
}

// A Buffered transport knows whether the next Read returns without waiting for
// the other end. A Peer delays its answers while more input is there, so that
// they share system calls.
type Buffered interface {
	Buffered() bool
}

// A TryWriter writes as much as it can without blocking and keeps a copy of
// the rest. When it reports done as false, the rest goes out with the next
// Write, which may have none.
type TryWriter interface {
	TryWrite(frames ...[]byte) (done bool, err error)
}

// An Exchanger is a transport with answers that belong to one request, such as
// HTTP. It must allow concurrent calls.
type Exchanger interface {
	// Exchange sends one frame and gives each frame of the answer to reply, in
	// order, until the answer ends. There may be none. The context ends the
	// exchange. A frame given to reply belongs to the callee.
	Exchange(ctx context.Context, frame []byte, reply func(frame []byte) error) error
	// Close ends what is under way.
	Close() error
}

// pipeBytes is how much one direction of a Pipe holds before Write waits.
const pipeBytes = 256 << 10

// Pipe returns the two ends of a transport in memory. What one end writes the
// other one reads; a Write waits while more than 256 KiB are unread.
func Pipe() (Transport, Transport) {
	a, b := newPipeQueue(), newPipeQueue()
	return &pipeEnd{in: a, out: b}, &pipeEnd{in: b, out: a}
}

type pipeEnd struct{ in, out *pipeQueue }

func (e *pipeEnd) Read() ([]byte, error)        { return e.in.get() }
func (e *pipeEnd) Write(frames ...[]byte) error { return e.out.put(frames) }

func (e *pipeEnd) Buffered() bool {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	return len(e.in.frames) > 0
}

// TryWrite writes the frames for which there is room and holds the others.
func (e *pipeEnd) TryWrite(frames ...[]byte) (bool, error) { return e.out.tryPut(frames) }

func (e *pipeEnd) Close() error {
	// In this order: what reads the end of the input may write no last message.
	e.out.close()
	e.in.close()
	return nil
}

// pipeQueue is one direction: a queue of frames, bounded in bytes.
type pipeQueue struct {
	mu     sync.Mutex
	change sync.Cond // frames, bytes or closed changed
	frames [][]byte
	held   [][]byte // accepted by tryPut but beyond the bound; put moves them in
	bytes  int
	closed bool
}

func newPipeQueue() *pipeQueue {
	q := &pipeQueue{}
	q.change.L = &q.mu
	return q
}

func (q *pipeQueue) get() ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) == 0 {
		if q.closed {
			return nil, io.EOF
		}
		q.change.Wait()
	}
	f := q.frames[0]
	q.frames[0] = nil
	q.frames = q.frames[1:]
	q.bytes -= len(f)
	q.change.Broadcast()
	return f, nil
}

func (q *pipeQueue) put(frames [][]byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.held
	q.held = nil
	for _, f := range frames {
		all = append(all, append([]byte(nil), f...))
	}
	for _, f := range all {
		for q.bytes > 0 && q.bytes+len(f) > pipeBytes && !q.closed {
			q.change.Wait()
		}
		if q.closed {
			return io.ErrClosedPipe
		}
		q.addLocked(f)
	}
	return nil
}

func (q *pipeQueue) tryPut(frames [][]byte) (done bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, io.ErrClosedPipe
	}
	for _, f := range frames {
		f = append([]byte(nil), f...)
		if len(q.held) > 0 || (q.bytes > 0 && q.bytes+len(f) > pipeBytes) {
			q.held = append(q.held, f)
			continue
		}
		q.addLocked(f)
	}
	return len(q.held) == 0, nil
}

func (q *pipeQueue) addLocked(f []byte) {
	q.frames = append(q.frames, f)
	q.bytes += len(f)
	q.change.Broadcast()
}

func (q *pipeQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.change.Broadcast()
}
