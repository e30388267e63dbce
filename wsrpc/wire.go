package wsrpc

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall/internal/slow"
)

const (
	// collectBytes is how many bytes of frames share one system call, and the
	// largest fragment: a control frame waits for one fragment at most.
	collectBytes = 64 << 10
	scratchBytes = 1 << 10
)

// scratch lends the memory in which frames are collected.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, scratchBytes); return &b }}

func putScratch(b *[]byte) {
	if cap(*b) <= 2*collectBytes {
		*b = (*b)[:0]
		scratch.Put(b)
	}
}

// A wire is the connection below the WebSocket framing. While it holds, it
// collects what is written, so that the frames of one Write share system calls;
// control frames, which are written by the goroutine that reads, then come along
// in their place.
type wire struct {
	remote string // of the handshake; "" at the calling end

	rwc   io.ReadWriteCloser
	sock  syscall.RawConn // nil where bytes cannot be written past rwc
	alive atomic.Bool     // bytes have arrived since this was last reset
	conn  net.Conn        // its reads can be interrupted; may be nil
	limit slow.Limit      // of a message that has begun
	late  func()          // called when it takes longer
	watch atomic.Pointer[slow.Frame]
	// inside is true while a message has begun; begun, that watch waits for the
	// rest of it: it is set for one that does not arrive in one piece.
	inside, begun atomic.Bool
	sent          atomic.Int64 // bytes that the system took

	mu      sync.Mutex
	holding bool
	whole   bool // collect everything, whatever its size
	buf     *[]byte
}

// newWire returns a wire on rwc. When conn is a plain socket, writes can be tried
// without blocking; it goes by the type, since one that embeds a *net.TCPConn
// may mean something else by Write.
func newWire(rwc io.ReadWriteCloser, conn net.Conn) *wire {
	w := &wire{rwc: rwc, conn: conn}
	if !canTry {
		return w
	}
	switch s := conn.(type) {
	case *net.TCPConn:
		w.sock, _ = s.SyscallConn() // nil when it fails
	case *net.UnixConn:
		w.sock, _ = s.SyscallConn()
	case interface {
		Direct() (syscall.RawConn, error)
	}: // it counts what is written so
		w.sock, _ = s.Direct()
	}
	return w
}

func (w *wire) Read(p []byte) (int, error) {
	if w.inside.Load() && !w.begun.Load() && w.limit > 0 {
		w.begin()
	}
	n, err := w.rwc.Read(p)
	if n > 0 && !w.alive.Load() {
		w.alive.Store(true)
	}
	if w.begun.Load() {
		w.watch.Load().Add(n)
	}
	return n, err
}

func (w *wire) begin() {
	f := w.watch.Load()
	if f == nil {
		f = slow.NewFrame(w.limit, w.late)
		w.watch.Store(f)
	}
	w.begun.Store(true)
	f.Begin()
}

// complete says that nothing of the message is still to come.
func (w *wire) complete() {
	w.inside.Store(false)
	if w.begun.Load() {
		w.begun.Store(false)
		w.watch.Load().End()
	}
}

// stop ends the watch over messages.
func (w *wire) stop() {
	w.inside.Store(false)
	if f := w.watch.Load(); f != nil {
		f.Stop()
	}
}

// interrupt makes a Read fail that waits, until resume.
func (w *wire) interrupt() {
	if w.conn == nil || w.conn.SetReadDeadline(time.Unix(1, 0)) != nil {
		_ = w.rwc.Close()
	}
}

func (w *wire) resume() {
	if w.conn != nil {
		_ = w.conn.SetReadDeadline(time.Time{}) // it was supported
	}
}

func (w *wire) Close() error { return w.rwc.Close() }

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.holding {
		return w.sendLocked(p)
	}
	if w.buf == nil {
		w.buf = scratch.Get().(*[]byte) //nolint:errcheck // nothing else is in the pool
	}
	if w.whole || len(*w.buf)+len(p) <= collectBytes {
		*w.buf = append(*w.buf, p...)
		return len(p), nil
	}
	return w.sendBothLocked(p)
}

func (w *wire) sendLocked(p []byte) (int, error) {
	n, err := w.rwc.Write(p)
	w.sent.Add(int64(n))
	return n, err
}

// sendBothLocked writes what was collected, and p.
func (w *wire) sendBothLocked(p []byte) (int, error) {
	both := net.Buffers{*w.buf, p}
	n, err := both.WriteTo(w.rwc)
	w.sent.Add(n)
	n -= int64(len(*w.buf))
	*w.buf = (*w.buf)[:0]
	return int(max(n, 0)), err
}

// hold begins to collect.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding, w.whole = true, false
}

// tryHold begins to collect everything, unless that would have to wait.
func (w *wire) tryHold() bool {
	if !w.mu.TryLock() {
		return false // a control frame is being written, and may be stuck
	}
	defer w.mu.Unlock()
	w.holding, w.whole = true, true
	return true
}

// release writes what was collected.
func (w *wire) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding = false
	if w.buf == nil {
		return nil
	}
	b := w.buf
	w.buf = nil
	defer putScratch(b)
	if len(*b) == 0 {
		return nil
	}
	_, err := w.sendLocked(*b)
	return err
}

// tryRelease writes what it can of what was collected without blocking. When
// something is left, it goes on holding.
func (w *wire) tryRelease() (done bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.buf != nil {
		n, err := tryWrite(w.sock, *w.buf)
		if err != nil {
			return false, err
		}
		if n < len(*w.buf) {
			*w.buf = append((*w.buf)[:0], (*w.buf)[n:]...)
			return false, nil
		}
		putScratch(w.buf)
		w.buf = nil
	}
	w.holding = false
	return true, nil
}
