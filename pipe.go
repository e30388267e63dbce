package farcall

import (
	"io"
	"sync"
)

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
