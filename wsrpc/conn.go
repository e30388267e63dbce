package wsrpc

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	closeGrace  = time.Second // for the close handshake
	answerGrace = time.Second // for the answer to a message that is too large
	smallFrame  = 4 << 10     // read buffers begin with this size
	maxPooled   = 64 << 10    // larger ones are not kept
)

// frames lends the memory of frames that are being read.
var frames = sync.Pool{New: func() any { b := make([]byte, 0, smallFrame); return &b }}

// conn is a connection as a farcall.Transport. Read is for one goroutine,
// Write for one other; Close and the timer of the pings come at any time.
type conn struct {
	ws     *websocket.Conn
	wire   *wire
	reader *bufio.Reader // what ws reads from; nil at the calling end
	max    int
	ping   time.Duration

	// Reading.
	last *[]byte     // the memory of the last frame, unless it was kept
	loan budget.Loan // holds it, where it is large
	rest io.Reader   // of a message that was refused, and is to be skipped; nil: there is none
	over bool        // the last message was refused, and nothing is read on

	ending atomic.Pointer[ending] // why the connection ends within a message

	// Writing.
	busy    atomic.Bool                   // a Write is under way
	later   [][]byte                      // frames that TryWrite has put off
	written atomic.Pointer[chan struct{}] // gets a value after each Write; nil when no goroutine waits

	// Closing and pings.
	mu     sync.Mutex
	closed bool
	cause  error // why we ended the connection without being asked to
	status websocket.StatusCode
	reason string
	timer  *time.Timer
	beats  sync.WaitGroup
	sent   int64 // at the last beat; used by beat alone
}

// tryConn is a conn with writes that can be tried without blocking.
type tryConn struct{ *conn }

func newTransport(
	ws *websocket.Conn, w *wire, reader *bufio.Reader, b *farcall.Budget, o *Options,
) farcall.Transport {
	// The limit of the library closes the connection before an answer can go out.
	ws.SetReadLimit(-1)
	c := &conn{
		ws: ws, wire: w, reader: reader, max: o.MaxMessage,
		status: websocket.StatusNormalClosure, loan: budget.Lend(b),
	}
	w.limit, w.late = slow.FrameLimit(o.MessageTimeout), c.tooSlow
	if c.ping = o.PingInterval; c.ping > 0 {
		c.mu.Lock()
		c.timer = time.AfterFunc(c.ping, c.beat)
		c.mu.Unlock()
	}
	if w.sock != nil {
		return tryConn{c}
	}
	return c
}

// Read returns the next message, of either kind: text, or binary that holds JSON just the same. Its
// memory is valid until the next Read, or for good after Keep.
func (c *conn) Read() ([]byte, error) {
	if c.last != nil {
		if cap(*c.last) <= maxPooled {
			*c.last = (*c.last)[:0]
			frames.Put(c.last)
		}
		c.last = nil
	}
	c.loan.Grow(0)
	if c.over {
		return nil, c.giveUp()
	}
	if c.rest != nil {
		if err := c.skip(); err != nil {
			return nil, err
		}
	}
	kind, r, err := c.ws.Reader(context.Background()) //nolint:forbidigo // Close ends it
	if err != nil {
		return nil, c.broken(err)
	}
	c.wire.inside.Store(true)
	c.last = frames.Get().(*[]byte) //nolint:errcheck // nothing else is in the pool
	buf := *c.last
	for {
		if len(buf) == cap(buf) {
			size := min(2*cap(buf), c.max+1)
			if !c.loan.Begin(size, c) {
				c.rest = r
				return nil, budget.Overloaded()
			}
			buf = append(make([]byte, 0, size), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		*c.last = buf
		switch {
		case len(buf) > c.max:
			return nil, c.refuse(c.tooLong())
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			if kind == websocket.MessageText && !utf8.Valid(buf) {
				return nil, c.refuse(notUTF8())
			}
			c.wire.complete()
			if c.loan.Held() > 0 {
				c.loan.Grow(cap(buf)) // it is not incomplete any more
			}
			return buf, nil
		case err != nil:
			return nil, c.broken(err)
		}
	}
}

// skip reads the rest of a message for which there was no room.
func (c *conn) skip() error {
	buf := frames.Get().(*[]byte) //nolint:errcheck // as in Read
	defer frames.Put(buf)
	for left := c.max; ; {
		n, err := c.rest.Read((*buf)[:cap(*buf)])
		switch left -= n; {
		case left < 0:
			c.rest = nil
			return c.refuse(c.tooLong())
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			c.rest = nil
			c.wire.complete()
			return nil
		case err != nil:
			return c.broken(err)
		}
	}
}

// An ending says why a connection ends within a message.
type ending struct {
	answer *jsonrpc.Error
	status websocket.StatusCode
	reason string
}

func (c *conn) tooLong() *ending {
	reason := fmt.Sprintf("the message has more than %d bytes", c.max)
	e := jsonrpc.Oversize("Request", int64(c.max), "bytes")
	e.Cause = errors.New(reason)
	return &ending{e, websocket.StatusMessageTooBig, reason}
}

// notUTF8 refuses a text message that is not UTF-8. RFC 6455 §8.1 demands the end of the
// connection.
func notUTF8() *ending {
	const reason = "the text message is not valid UTF-8"
	return &ending{
		jsonrpc.Refusal(jsonrpc.ParseError, reason),
		websocket.StatusInvalidFramePayloadData, reason,
	}
}

// tooSlow ends the connection because a message has begun and does not go on.
func (c *conn) tooSlow() {
	c.interrupt(
		&ending{c.wire.limit.TooSlow(), websocket.StatusPolicyViolation, "the message took too long"})
}

// Remote is the address at the other end, for the budget.
func (c *conn) Remote() string {
	if c.wire.remote != "" {
		return c.wire.remote
	}
	if c.wire.conn != nil && c.wire.conn.RemoteAddr() != nil {
		return c.wire.conn.RemoteAddr().String()
	}
	return ""
}

// Evicted ends the connection because its message, which is incomplete, has made
// room for another one.
func (c *conn) Evicted() {
	c.interrupt(
		&ending{budget.Overloaded(), websocket.StatusTryAgainLater, "no memory for large messages now"})
}

// interrupt ends the connection after an answer. A Read that waits returns.
func (c *conn) interrupt(e *ending) {
	if c.ending.CompareAndSwap(nil, e) {
		c.wire.interrupt()
	}
}

// broken returns the error for a message that did not arrive.
func (c *conn) broken(err error) error {
	if e := c.ending.Load(); e != nil {
		c.wire.resume()
		return c.refuse(e)
	}
	return c.ended(err)
}

// refuse returns the answer to a message after which nothing is read.
func (c *conn) refuse(e *ending) error {
	c.wire.complete()
	c.over = true
	c.ending.Store(e)
	ready := make(chan struct{}, 1)
	c.written.Store(&ready)
	return e.answer
}

// Keep leaves the memory of the last frame to the caller, who answers for it.
func (c *conn) Keep() {
	c.last = nil
	c.loan.Grow(0)
}

// Buffered reports whether a whole message, or the end, has been read beside the last message.
func (c *conn) Buffered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Close reads, too. What is left of a message that was refused is not one.
	if c.closed || c.over || c.rest != nil || c.reader == nil {
		return false
	}
	have, _ := c.reader.Peek(c.reader.Buffered()) // what is buffered can be peeked
	return whole(have)
}

// whole reports whether reading the frames in p (RFC 6455 §5.2) brings a message, or the end. Pings
// and the beginning of a message bring none: who waits for what follows them may wait for ever.
func whole(p []byte) bool {
	for len(p) >= 2 {
		op, head, size := p[0]&15, 2, uint64(p[1]&127)
		switch size {
		case 126:
			head = 4
		case 127:
			head = 10
		}
		if len(p) < head {
			return false
		}
		switch head {
		case 4:
			size = uint64(binary.BigEndian.Uint16(p[2:]))
		case 10:
			size = binary.BigEndian.Uint64(p[2:])
		}
		if p[1]&128 != 0 {
			head += 4
		}
		if len(p) < head || size > uint64(len(p)-head) {
			return false
		}
		if op == 8 || op < 8 && p[0]&128 != 0 { // close, or the last frame of a message
			return true
		}
		p = p[head+int(size):]
	}
	return false
}

// giveUp ends a connection after a message that was refused, when the answer to it has gone out.
func (c *conn) giveUp() error {
	if ready := c.written.Load(); ready != nil {
		t := time.NewTimer(answerGrace)
		defer t.Stop()
		select {
		case <-*ready:
		case <-t.C:
		}
		c.written.Store(nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.ending.Load()
	c.status, c.reason = e.status, e.reason
	return fmt.Errorf("wsrpc: %s", c.reason)
}

// closing is io.EOF of a connection without an open half: RFC 6455 §5.5.1.
type closing struct{}

func (closing) Error() string  { return io.EOF.Error() }
func (closing) Unwrap() error  { return io.EOF }
func (closing) BothEnds() bool { return true }

// ended explains the end of the connection.
func (c *conn) ended(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cause, closed := c.cause, c.closed
	var ce websocket.CloseError
	switch {
	case cause != nil:
		return cause
	case closed:
		return fmt.Errorf("wsrpc: %w", net.ErrClosed)
	case errors.As(err, &ce):
		if ce.Code == websocket.StatusNormalClosure || ce.Code == websocket.StatusGoingAway ||
			ce.Code == websocket.StatusNoStatusRcvd {
			return closing{}
		}
		return fmt.Errorf("wsrpc: the other end closed the connection with status %d, %q", ce.Code,
			ce.Reason)
	case errors.Is(err, io.EOF):
		// Not io.EOF: RFC 6455 §7.1.5, an end without a close frame is a failure.
		return fmt.Errorf("wsrpc: the connection broke: %w", io.ErrUnexpectedEOF)
	}
	var netErr net.Error
	if errors.As(err, &netErr) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("wsrpc: the connection broke: %w", err)
	}
	// The library sends a close frame for most violations, and none for unmasked frames and
	// impossible lengths (RFC 6455 §5.1, §5.2). Close sends this one where none was sent.
	c.status, c.reason = websocket.StatusProtocolError, "not a valid WebSocket frame"
	return fmt.Errorf("%w: %w", farcall.ErrProtocol, err)
}

// Write writes each frame as a text message.
func (c *conn) Write(frames ...[]byte) error {
	c.busy.Store(true)
	defer c.busy.Store(false)
	c.wire.hold()
	err := c.encode(c.later)
	c.later = nil
	if err == nil {
		err = c.encode(frames)
	}
	return c.wrote(cmp.Or(err, c.wire.release()))
}

// TryWrite writes frames as far as the socket takes them.
func (c tryConn) TryWrite(frames ...[]byte) (done bool, err error) {
	total := 0
	for _, f := range frames {
		total += len(f)
	}
	if total > collectBytes || !c.wire.tryHold() {
		for _, f := range frames {
			c.later = append(c.later, append([]byte(nil), f...))
		}
		return false, nil
	}
	if err = c.encode(frames); err == nil {
		done, err = c.wire.tryRelease()
	}
	if done || err != nil {
		err = c.wrote(err)
	}
	return done, err
}

// encode passes frames through the WebSocket framing to the wire.
func (c *conn) encode(frames [][]byte) error {
	ctx := context.Background() //nolint:forbidigo // Close ends it
	for _, f := range frames {
		if len(f) <= collectBytes {
			if err := c.ws.Write(ctx, websocket.MessageText, f); err != nil {
				return err
			}
			continue
		}
		// In fragments, so that the answer to a ping need not wait for all of it:
		// the library ends the connection when a control frame waits for 5 s.
		w, err := c.ws.Writer(ctx, websocket.MessageText)
		if err != nil {
			return err
		}
		for len(f) > 0 {
			n := min(len(f), collectBytes)
			if _, err := w.Write(f[:n]); err != nil {
				return err
			}
			f = f[n:]
		}
		if err := w.Close(); err != nil {
			return err
		}
	}
	return nil
}

// wrote ends a Write.
func (c *conn) wrote(err error) error {
	if ready := c.written.Load(); ready != nil {
		select {
		case *ready <- struct{}{}:
		default:
		}
	}
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	return fmt.Errorf("wsrpc: %w", err)
}

// Close says goodbye, and closes the connection when the other end has answered
// or a second has passed.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	status, reason := c.status, c.reason
	c.mu.Unlock()
	c.loan.Close()
	c.wire.stop()

	// The library waits up to 10 s for an end that does not read.
	abort := time.AfterFunc(closeGrace, func() { _ = c.wire.Close() })
	defer abort.Stop()
	_ = c.ws.Close(status, reason) // whether the goodbye arrived makes no difference
	c.beats.Wait()
	return nil
}

// beat runs every ping interval, and looks for signs of life since the last time.
func (c *conn) beat() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.beats.Add(1)
	c.mu.Unlock()
	defer c.beats.Done()

	if err := c.checkAlive(); err != nil {
		c.fail(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.timer.Reset(c.ping)
	}
}

func (c *conn) checkAlive() error {
	before := c.sent
	c.sent = c.wire.sent.Load()
	if c.wire.alive.Swap(false) {
		return nil
	}
	if c.busy.Load() {
		// A ping would have to wait for the Write, and its answer for all that
		// is on the way already.
		if c.sent != before {
			return nil
		}
		return fmt.Errorf("wsrpc: the other end has read nothing for %v", c.ping)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.ping) //nolint:forbidigo // Close ends it
	defer cancel()
	if c.ws.Ping(ctx) == nil || c.wire.alive.Load() || c.busy.Load() {
		return nil
	}
	return fmt.Errorf("wsrpc: the other end has not answered a ping within %v", c.ping)
}

// fail ends the connection for a reason of ours.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	if c.cause == nil && !c.closed {
		c.cause = cause
	}
	c.mu.Unlock()
	_ = c.wire.Close()
}
