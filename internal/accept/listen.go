// Package accept answers one question: may this connection come in, and stay?
package accept

import (
	"cmp"
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

// The defaults of Options.
const (
	DefaultPerAddress = 4096
	DefaultTotal      = 16384
	DefaultRate       = 1000
	DefaultIdle       = time.Hour
)

// Options bound connections. Of each number the zero value is the default, and less
// than 0 means no bound.
type Options struct {
	// PerAddress bounds the connections of an IPv4 address or IPv6 /64; those of a
	// unix socket have none, nor those with a method Shared() bool that reports true: those
	// carry the clients of a proxy. Default 4,096, but not for the loopback address: all
	// clients of a proxy on this machine come from there.
	PerAddress int
	// Total bounds those of the listener. Default 16,384.
	Total int
	// Rate bounds how many are accepted in a second. Further ones wait with the system.
	// Default 1,000.
	Rate int
	// Idle closes a connection that is not used for so long, or up to a quarter
	// longer. Bytes in either direction are use, and so is what Busy tells. It pauses
	// while another has set a deadline for reads, and ends for good with the
	// method StopIdle of the connection: for HTTP, where a client may wait for an
	// answer in silence. Default 1 h: the system finds out whether the other end is
	// still there (TCP keep-alive), so this is for clients that live and forget, and
	// clients of MCP keep silent connections for long.
	Idle time.Duration
	// OnRefuse is called for a connection that is refused, at most once a second. It must
	// not block.
	OnRefuse func(addr string)
	// Refused counts all that are refused. Nil: they are not counted.
	Refused *atomic.Int64
}

// Listen bounds the connections of l: one too many is closed at once. Connections have
// the methods of what they were, and
//
//	StopIdle()                          // see Options.Idle
//	Busy(f func() bool)                 // f reports whether the connection is in use
//	Direct() (syscall.RawConn, error)   // to read and write past Read and Write; it minds Idle
func Listen(l net.Listener, o *Options) net.Listener {
	b := &listener{Listener: l, from: map[netip.Addr]int{}, done: make(chan struct{})}
	b.opts = *cmp.Or(o, &Options{})
	b.proxied = b.opts.PerAddress == 0
	b.opts.PerAddress = cmp.Or(b.opts.PerAddress, DefaultPerAddress)
	b.opts.Total = cmp.Or(b.opts.Total, DefaultTotal)
	b.opts.Rate = cmp.Or(b.opts.Rate, DefaultRate)
	b.opts.Idle = cmp.Or(b.opts.Idle, DefaultIdle)
	return b
}

type listener struct {
	net.Listener
	opts    Options
	proxied bool // the loopback address has no separate bound
	closing sync.Once
	done    chan struct{} // closed when the listener is

	// Of the goroutine that accepts.
	next time.Time // when there is room for one more in this second, and all before it

	mu   sync.Mutex
	all  int
	from map[netip.Addr]int // those with a connection

	told time.Time // OnRefuse
}

// Accept returns the next connection for which there is room. It is for one
// goroutine at a time.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.wait()
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := peerOf(conn)
		if l.enter(peer) {
			return wrap(conn, l, peer), nil
		}
		l.refuse(conn)
	}
}

// wait waits until another connection may be accepted in this second.
func (l *listener) wait() {
	if l.opts.Rate < 0 {
		return
	}
	now := time.Now()
	if earliest := now.Add(-time.Second); l.next.Before(earliest) {
		l.next = earliest // a second's worth may come at once
	}
	l.next = l.next.Add(time.Second / time.Duration(l.opts.Rate))
	if l.next.Before(now) {
		return
	}
	timer := time.NewTimer(l.next.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.done:
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.closing.Do(func() { close(l.done) })
	return l.Listener.Close()
}

func (l *listener) refuse(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// a reset: who floods must not fill the system's table with connections in TIME_WAIT
		_ = tcp.SetLinger(0)
	}
	conn.Close()
	if l.opts.Refused != nil {
		l.opts.Refused.Add(1)
	}
	if l.opts.OnRefuse == nil {
		return
	}
	now := time.Now()
	l.mu.Lock()
	tell := l.told.IsZero() || now.Sub(l.told) >= time.Second
	if tell {
		l.told = now
	}
	l.mu.Unlock()
	if tell {
		addr := ""
		if a := conn.RemoteAddr(); a != nil {
			addr = a.String()
		}
		l.opts.OnRefuse(addr)
	}
}

// peerOf is the address that counts, or none: that of a proxy stands for many clients.
func peerOf(conn net.Conn) netip.Addr {
	if c, ok := conn.(interface{ Shared() bool }); ok && c.Shared() {
		return netip.Addr{}
	}
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return network(a.AddrPort().Addr())
	}
	return netip.Addr{}
}

// network is what counts as one address: all of an IPv6 /64.
func network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

func (l *listener) enter(peer netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opts.Total > 0 && l.all >= l.opts.Total {
		return false
	}
	if peer.IsValid() && l.opts.PerAddress > 0 && (!l.proxied || !isLoopback(peer)) {
		if l.from[peer] >= l.opts.PerAddress {
			return false
		}
		l.from[peer]++
	}
	l.all++
	return true
}

// isLoopback reports whether a network is that of this machine alone.
func isLoopback(network netip.Addr) bool {
	return network.IsLoopback() || network == netip.IPv6Unspecified()
}

func (l *listener) leave(peer netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if n := l.from[peer]; n > 1 {
		l.from[peer] = n - 1
	} else {
		delete(l.from, peer) // or it was not counted
	}
}

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
		return false,
			fmt.Errorf(
				"accept: the connection was closed: it was not used for %v; send a ping now and then: %w",
				c.idle, err)
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
