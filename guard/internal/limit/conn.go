package limit

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

// A core is what a connection of a Listener has besides those of the system.
type core struct {
	inner net.Conn
	l     *listener
	peer  netip.Addr
	idle  time.Duration
	start time.Time
	left  atomic.Bool // it was closed

	// until is our deadline for reads, in ns since start; never while others
	// have theirs.
	until atomic.Int64

	mu      sync.Mutex // for deadlines
	stopped bool
	foreign bool // somebody else has set a deadline for reads
}

// The types of the system lie deeper than core, whose methods hide theirs. The rest shows, also
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

// Direct is for those who read and write by system calls of their own.
func (c *tcpConn) Direct() (syscall.RawConn, error) { return c.direct(c.TCPConn) }

// Direct is for those who read and write by system calls of their own.
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
	if err := d.RawConn.Read(f); err != nil {
		return d.core.explain(err)
	}
	return nil
}

// NetConn returns the connection that is bounded.
func (c *core) NetConn() net.Conn { return c.inner }

// Read implements net.Conn.
func (c *core) Read(p []byte) (int, error) {
	if err := c.watch(); err != nil {
		return 0, err
	}
	n, err := c.inner.Read(p)
	if err != nil {
		err = c.explain(err)
	}
	return n, err
}

// Close implements net.Conn. Whoever is first makes room for another connection.
func (c *core) Close() error {
	if !c.left.Swap(true) {
		defer c.l.leave(c.peer)
	}
	return c.inner.Close()
}

// watch moves the deadline before a read, when a quarter of Idle has passed: what came while nobody read is
// no silence of the client.
func (c *core) watch() error {
	now := int64(time.Since(c.start))
	if c.until.Load()-now >= int64(c.idle) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || c.foreign {
		return nil
	}
	return c.moveLocked(now)
}

func (c *core) moveLocked(now int64) error {
	until := now + int64(c.idle) + int64(c.idle)/4
	c.until.Store(until)
	return c.inner.SetReadDeadline(c.start.Add(time.Duration(until)))
}

// explain closes the connection when it was our deadline that has passed: a reader that takes a deadline
// for something that passes would try again.
func (c *core) explain(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) || int64(time.Since(c.start)) < c.until.Load() {
		return err
	}
	_ = c.Close()
	return fmt.Errorf("limit: the connection was closed: nothing came for %v; send a ping now and then: %w", c.idle, err)
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

// SetReadDeadline implements net.Conn. A deadline takes the place of ours; taking it away brings ours back.
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
	return c.moveLocked(int64(time.Since(c.start)))
}
