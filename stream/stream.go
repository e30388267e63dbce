// Package stream answers one question: how do messages travel over bytes?
//
// A byte stream has no messages, so a framing marks them: [NDJSON], where a line
// is a message; [Header], where a Content-Length goes before each message, as
// language servers do it; and [Raw], where a message ends with its last bracket.
// [Detect] tells the first from the last. They work over anything that reads and
// writes ([New]): TCP and unix sockets ([Dial]), standard input and output
// ([Stdio]), a child process ([Command]), TLS.
//
// # Limits
//
// A message longer than [Options.MaxMessage] is refused before it is parsed,
// with a *[jsonrpc.Error] that the peer answers. Its bytes are skipped as they
// arrive and the stream goes on. No buffer is made as large as the other end
// announces: it grows with the bytes that are there.
//
// # Memory
//
// A connection that waits for input holds no buffer, or one of 1 KB where the
// operating system cannot be asked whether there is input. Frames are read into
// shared buffers and are valid until the next Read, unless they are kept: see
// [farcall.Keeper].
//
// # Concurrency
//
// One goroutine at a time may read (Read, Buffered, Keep) while another one
// writes (Write, TryWrite). Close may be called at any time by any goroutine.
package stream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Framing says where a message ends.
type Framing uint8

const (
	// NDJSON is newline-delimited JSON: one line, one message. A line may end
	// with \r\n, blank lines are skipped, and the last line needs no end.
	NDJSON Framing = iota
	// Header is the base protocol of language servers: header lines; of these,
	// Content-Length counts, then an empty line, then the message.
	Header
	// Raw is one JSON text after another, objects and arrays, with any white space between
	// them or none: several may be on a line, and one on several lines. A text may be nested
	// 1,024 deep. One that is no JSON is refused, and reading goes on where its brackets
	// balance, or at the next line that begins with one. What is written is as with NDJSON.
	Raw
	// Detect is for the end that does not know what the other one sends. It is NDJSON or Raw,
	// as the first message tells: Raw, when its first line has a bracket only, or when
	// another message follows on the same line.
	Detect
)

const (
	defaultLocal   = 10 << 20  // stdio and child processes
	defaultNetwork = 100 << 20 // sockets
	defaultHeader  = 8 << 10
	defaultGrace   = 2 * time.Second
)

// Options adjust a stream. Nil and the zero value mean the defaults.
type Options struct {
	// MaxMessage bounds a message that arrives, in bytes. Default 100 MB for a
	// net.Conn, 10 MB for anything else, such as stdio.
	MaxMessage int
	// MaxHeader bounds the header lines before a message that arrives, in
	// bytes. Default 8 KB.
	MaxHeader int
	// FrameTimeout is how long a message may take from its first byte until it is
	// complete, and a second more for each 100 KB of it. Then it is answered with an
	// error, and the stream ends. Default 30 s; negative: for ever.
	FrameTimeout time.Duration
	// Budget has the memory for messages of more than 64 KiB. One for which there is
	// none is answered with -32010 and skipped. Default: that of the process, see
	// [farcall.Budget].
	Budget *farcall.Budget
	// Prefix is what was read from the stream already. It comes before what
	// will be read. Default none.
	Prefix []byte
	// TLS makes Dial speak TLS. Default none.
	TLS *tls.Config
	// Grace is how long a child process may take to exit after its standard
	// input was closed, and again after SIGTERM. Default 2 s.
	Grace time.Duration
	// Skip is shown each frame, and with Header also what stands where a header
	// belongs. It reports whether to pass over it as if it was not there: a
	// program may print other things between its messages. Of what is longer
	// than the limits it gets the beginning, and whole is false. It runs in the
	// goroutine that reads and must not keep p. Default none: all are frames.
	Skip func(p []byte, whole bool) bool
	// OnExit is called once with how a child process has ended, before Read returns it. Read
	// and Close wait for it. Default none.
	OnExit func(*ExitError)
}

// New returns a transport over rwc, which it owns from now on. Closing rwc must
// unblock its Read and Write.
//
// Where rwc is a *net.TCPConn, a *net.UnixConn or a pipe, on unix, the
// transport is also a [farcall.TryWriter].
func New(rwc io.ReadWriteCloser, framing Framing, o *Options) farcall.Transport {
	o = cmp.Or(o, new(Options))
	t := &tryConn{
		conn{
			rwc: rwc, header: framing == Header, need: -1, max: o.MaxMessage, maxHeader: o.MaxHeader,
			skipper: o.Skip,
		},
	}
	c := &t.conn
	if framing == Raw || framing == Detect {
		c.text, c.detect = new(text), framing == Detect
	}
	if c.max <= 0 {
		c.max = defaultLocal
		if _, ok := rwc.(net.Conn); ok {
			c.max = defaultNetwork
		}
	}
	c.maxHeader = cmp.Or(max(c.maxHeader, 0), defaultHeader)
	// so that sums do not overflow
	c.max, c.maxHeader = min(c.max, math.MaxInt/2), min(c.maxHeader, math.MaxInt/2)
	c.timeout = slow.FrameLimit(o.FrameTimeout)
	c.in.loan = budget.Lend(o.Budget)
	c.in.conn = c
	c.in.fill(o.Prefix)
	c.raw = newRaw(rwc, &c.in)
	if c.raw.canWrite() {
		return t
	}
	return c
}

// conn carries frames over a byte stream.
type conn struct {
	rwc       io.ReadWriteCloser
	raw       *raw // nil where there are no non-blocking calls
	max       int
	maxHeader int
	timeout   slow.Limit                      // Options.FrameTimeout
	skipper   func(p []byte, whole bool) bool // Options.Skip
	ending    atomic.Pointer[jsonrpc.Error]   // why the stream ends before the frame is complete
	watch     atomic.Pointer[slow.Frame]      // of the frame that has begun; nil before there was one

	closing  sync.Once
	closed   atomic.Bool
	closeErr error

	// The rest up to werr belongs to the goroutine that reads.
	in      input
	err     error         // ends the stream once what was read is used up
	refusal *refusedError // what Read returns next
	size    int           // when ready: the length of the frame that is there
	step    int           // when ready: what is to be taken with it
	// the first bytes of what was read that hold no line end, or belong to the text
	scanned int
	need    int   // length of the message after the header, -1 before
	skip    int64 // bytes of a refused message that are still to come
	text    *text // with Raw, and while Detect does not know
	empty   int   // reads in a row that gave nothing

	// Side by side they take eight bytes, and apart eight each.
	header bool // the framing is Header
	ready  bool // a frame is there
	noEnd  bool // skip up to the next newline, or with Raw to the end of the text
	detect bool // it is not known yet whether the framing is NDJSON or Raw
	after  bool // there was a text already; for detect
	hungry bool // the last read filled its buffer
	begun  bool // watch waits for the rest of a frame

	// The rest belongs to the goroutine that writes.
	werr error
	rest []byte // what TryWrite could not write
}

var (
	_ farcall.Keeper    = (*conn)(nil)
	_ farcall.Buffered  = (*conn)(nil)
	_ farcall.TryWriter = (*tryConn)(nil)
)

// Read returns the next frame, which is valid until the next Read.
func (c *conn) Read() ([]byte, error) {
	for {
		if c.closed.Load() {
			c.in.release()
			return nil, farcall.ErrClosed
		}
		switch {
		case c.Buffered():
			return c.take()
		case c.err != nil:
			return c.end()
		}
		c.fill()
	}
}

// Buffered reports whether the next Read returns without waiting for more.
func (c *conn) Buffered() bool {
	if !c.ready && c.refusal == nil {
		switch {
		case c.header:
			c.locateMessage()
		case c.text != nil:
			c.locateText()
		default:
			c.locateLine()
		}
	}
	return c.ready || c.refusal != nil
}

// Keep leaves the memory of the last frame alone for good.
func (c *conn) Keep() { c.in.keep() }

// take returns what Buffered has found.
func (c *conn) take() ([]byte, error) {
	if err := c.refusal; err != nil {
		c.refusal = nil
		return nil, err
	}
	frame := c.in.unread()[:c.size:c.size]
	c.in.take(c.step)
	c.ready, c.need = false, -1
	c.complete()
	return frame, nil
}

// A refusedError refuses one frame. Peers want to know how it begins: who waits for it has to learn
// of it.
type refusedError struct {
	reason *jsonrpc.Error
	begins []byte
}

func (e *refusedError) Error() string  { return e.reason.Error() }
func (e *refusedError) Unwrap() error  { return e.reason }
func (e *refusedError) Begins() []byte { return e.begins }

// keptOfRefused is how much of a refused frame is kept: its envelope.
const keptOfRefused = 512

// refuse refuses the frame that begins with p.
func (c *conn) refuse(reason *jsonrpc.Error, p []byte) {
	c.refusal = &refusedError{reason, slices.Clone(p[:min(len(p), keptOfRefused)])}
}

// fill reads more. It sets err when there is no more.
func (c *conn) fill() {
	before := len(c.in.unread())
	if c.arriving() {
		c.begin()
	}
	var err error
	if c.raw.canRead() {
		err = c.raw.read(c.limit())
	} else {
		err = c.read()
	}
	n := len(c.in.unread()) - before
	if c.begun {
		c.watch.Load().Add(n)
	}
	if c.empty++; n > 0 {
		c.empty = 0
	} else if c.empty == 100 && err == nil {
		err = io.ErrNoProgress
	}
	switch reason := c.ending.Load(); {
	case reason != nil && n == 0:
		c.giveUp(reason)
	case errors.Is(err, errNoRoom):
		c.overloaded()
	case err != nil:
		c.err = c.ended(err)
	}
}

// read reads where there are no non-blocking calls.
func (c *conn) read() error {
	size := smallSize
	if c.hungry {
		size = largeSize
	}
	free := c.in.room(size, c.limit())
	if free == nil {
		return errNoRoom
	}
	n, err := c.rwc.Read(free)
	c.hungry = n == len(free)
	c.in.w += n
	return err
}

// limit is how large the buffer may have to be.
func (c *conn) limit() int {
	switch {
	case c.need >= 0:
		return c.need
	case c.header:
		return c.maxHeader + smallSize
	default:
		return c.max + smallSize
	}
}

// ended makes the error of a Read from the error of the stream.
func (c *conn) ended(err error) error {
	if c.closed.Load() {
		return farcall.ErrClosed
	}
	if e, ok := c.rwc.(interface{ ended(cause error) error }); ok {
		return e.ended(err)
	}
	if errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("stream: read: %w", err)
}

// end returns what is left when the stream has ended, and then err.
func (c *conn) end() ([]byte, error) {
	rest := c.in.unread()
	c.scanned = 0
	if errors.Is(c.err, io.EOF) {
		switch {
		case c.header && c.need < 0 && c.skip == 0 && len(rest) > 0 && c.skips(rest, true):
		case c.header && (len(rest) > 0 || c.need >= 0 || c.skip > 0):
			c.err = fmt.Errorf("stream: the stream ended within a message: %w", io.ErrUnexpectedEOF)
		case !c.header && !c.noEnd && !blank(rest):
			c.in.take(len(rest))
			rest = trimCR(rest)
			switch {
			case len(rest) > c.max && !c.skips(rest, false):
				return nil, c.tooLarge("a line")
			case len(rest) <= c.max && !c.skips(rest, true):
				return slices.Clip(rest), nil
			}
		}
	}
	c.in.release()
	return nil, c.err
}

// Close closes the stream. What is being written may be lost.
func (c *conn) Close() error {
	c.closing.Do(func() {
		c.closed.Store(true)
		c.in.loan.Close()
		if w := c.watch.Load(); w != nil {
			w.Stop()
		}
		if err := c.rwc.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			c.closeErr = fmt.Errorf("stream: close: %w", err)
		}
	})
	return c.closeErr
}

func blank(p []byte) bool {
	for _, b := range p {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return false
		}
	}
	return true
}

func trimCR(line []byte) []byte { return bytes.TrimSuffix(line, carriageReturn) }

// Dial connects to an address: "tcp" with host:port, or "unix" with a path.
// The context bounds the connecting, the TLS handshake included, and nothing
// after it.
func Dial(
	ctx context.Context, network, addr string, framing Framing, o *Options,
) (farcall.Transport, error) {
	switch network {
	case "tcp", "tcp4", "tcp6", "unix":
	default:
		return nil, fmt.Errorf(`stream: cannot dial the network %q; use "tcp" or "unix"`, network)
	}
	var conn net.Conn
	var err error
	if o != nil && o.TLS != nil {
		conn, err = (&tls.Dialer{Config: o.TLS}).DialContext(ctx, network, addr)
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
	}
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	return New(conn, framing, o), nil
}

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
	if d, ok := c.rwc.(interface{ SetReadDeadline(t time.Time) error }); !ok ||
		d.SetReadDeadline(past) != nil {
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
