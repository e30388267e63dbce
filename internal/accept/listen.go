// Package accept answers one question: may this connection come in, and stay?
package accept

import (
	"cmp"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
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
	if o != nil {
		b.opts = *o
	}
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
		_ = tcp.SetLinger(0) // a reset: who floods must not fill the system's table with connections in TIME_WAIT
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
