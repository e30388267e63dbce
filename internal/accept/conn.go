package accept

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// never is when a connection that is not watched becomes idle.
const never = math.MaxInt64

// looks is how often within Idle it is looked whether a connection was used. A read
// then costs a counter, and no look at the clock.
const looks = 4

// A core is what a connection of a Listener has in addition to those of the system.
type core struct {
	inner net.Conn
	l     *listener
	peer  netip.Addr
	idle  time.Duration
	start time.Time
	left  atomic.Bool // it was closed

	// until is our deadline for reads, in ns since start: when it is looked at the
	// connection next. 0: there was no read yet; never: others have theirs.
	until atomic.Int64
	uses  atomic.Int64                // reads and writes
	busy  atomic.Pointer[func() bool] // see Busy; nil: not known

	mu      sync.Mutex // for deadlines
	stopped bool
	foreign bool  // another has set a deadline for reads
	seen    int64 // uses at the last look
	silent  int   // looks in a row that have found no use
}

// The types of the system lie deeper than core, so its methods hide theirs. The rest shows, also
// what package net has for itself: several buffers in one write.
type (
	deepTCP  struct{ *net.TCPConn }
	deepUnix struct{ *net.UnixConn }
	deepConn struct{ net.Conn }

	tcpConn struct {
		*core
		deepTCP
	}
	unixConn struct {
		*core
		deepUnix
	}
	anyConn struct {
		*core
		deepConn
	}
)

func wrap(conn net.Conn, l *listener, peer netip.Addr) net.Conn {
	c := &core{inner: conn, l: l, peer: peer, idle: l.opts.Idle, start: time.Now()}
	if c.idle <= 0 {
		c.stopped = true
		c.until.Store(never)
	}
	switch conn := conn.(type) {
	case *net.TCPConn:
		return &tcpConn{c, deepTCP{conn}}
	case *net.UnixConn:
		return &unixConn{c, deepUnix{conn}}
	}
	return &anyConn{c, deepConn{conn}}
}

// WriteTo goes through Read, which the method of the TCP connection does not.
func (c *tcpConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{c.core})
}

// SyscallConn is Direct.
func (c *tcpConn) SyscallConn() (syscall.RawConn, error) { return c.Direct() }

// SyscallConn is Direct.
func (c *unixConn) SyscallConn() (syscall.RawConn, error) { return c.Direct() }

// Direct is for callers that make the system calls of reads and writes themselves.
func (c *tcpConn) Direct() (syscall.RawConn, error) { return c.direct(c.TCPConn) }

// Direct is for callers that make the system calls of reads and writes themselves.
func (c *unixConn) Direct() (syscall.RawConn, error) { return c.direct(c.UnixConn) }

func (c *core) direct(s syscall.Conn) (syscall.RawConn, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &direct{raw, c}, nil
}

type direct struct {
	syscall.RawConn
	core *core
}

// Read implements syscall.RawConn.
func (d *direct) Read(f func(fd uintptr) bool) error {
	if err := d.core.watch(); err != nil {
		return err
	}
	for {
		err := d.RawConn.Read(f)
		if err == nil {
			d.core.uses.Add(1)
			return nil
		}
		if again, err := d.core.look(err); !again {
			return err
		}
	}
}

// Write implements syscall.RawConn.
func (d *direct) Write(f func(fd uintptr) bool) error {
	d.core.uses.Add(1)
	return d.RawConn.Write(f)
}

// NetConn returns the connection that is bounded.
func (c *core) NetConn() net.Conn { return c.inner }

// Read implements net.Conn.
func (c *core) Read(p []byte) (int, error) {
	if err := c.watch(); err != nil {
		return 0, err
	}
	for {
		n, err := c.inner.Read(p)
		if n > 0 {
			c.uses.Add(1)
		}
		if err == nil || n > 0 {
			return n, err
		}
		if again, err := c.look(err); !again {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (c *core) Write(p []byte) (int, error) {
	c.uses.Add(1)
	return c.inner.Write(p)
}

// Busy tells the connection what to ask before it counts as idle: whether calls or
// subscriptions are open. f is called by the goroutine that reads.
func (c *core) Busy(f func() bool) { c.busy.Store(&f) }

// Close implements net.Conn. Anyone who is first makes room for another connection.
func (c *core) Close() error {
	if !c.left.Swap(true) {
		defer c.l.leave(c.peer)
	}
	return c.inner.Close()
}

// watch sets the first deadline.
func (c *core) watch() error {
	if c.until.Load() != 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || c.foreign {
		return nil
	}
	return c.moveLocked()
}

func (c *core) moveLocked() error {
	until := int64(time.Since(c.start)) + int64(c.idle)/looks
	c.until.Store(until)
	return c.inner.SetReadDeadline(c.start.Add(time.Duration(until)))
}

// look finds out what the failure of a read means. When our deadline has passed the
// connection goes on if it was used since the last look, or was not silent for long
// enough; else it is closed, as a reader that takes a deadline for something that
// passes would try again.
func (c *core) look(err error) (again bool, _ error) {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false, err
	}
	busy := false
	if f := c.busy.Load(); f != nil {
		busy = (*f)() // without the lock: it is not ours
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.foreign:
		return false, err
	case c.stopped:
		return true, nil // a moment ago
	case int64(time.Since(c.start)) < c.until.Load():
		return false, err
	}
	if uses := c.uses.Load(); busy || uses != c.seen {
		c.seen, c.silent = uses, 0
	} else if c.silent++; c.silent >= looks {
		_ = c.Close()
		return false, fmt.Errorf("accept: the connection was closed: it was not used for %v; send a ping now and then: %w", c.idle, err)
	}
	if err := c.moveLocked(); err != nil {
		return false, err
	}
	return true, nil
}

// StopIdle lets the connection be silent for as long as it likes.
func (c *core) StopIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.stopped = true
	c.until.Store(never)
	if !c.foreign {
		_ = c.inner.SetReadDeadline(time.Time{}) // fails when it is closed
	}
}

// SetDeadline implements net.Conn.
func (c *core) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.inner.SetWriteDeadline(t), c.setReadLocked(t))
}

// SetReadDeadline implements net.Conn. A deadline takes the place of ours; taking it away brings
// ours back.
func (c *core) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setReadLocked(t)
}

func (c *core) setReadLocked(t time.Time) error {
	c.foreign = !t.IsZero()
	if c.foreign || c.stopped {
		c.until.Store(never)
		return c.inner.SetReadDeadline(t)
	}
	return c.moveLocked()
}
