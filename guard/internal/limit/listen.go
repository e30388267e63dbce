package limit

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// ListenOptions bound connections. The zero value of each means no bound.
type ListenOptions struct {
	// PerAddress bounds the connections of an IPv4 address or IPv6 /64; those of a
	// unix socket have none, nor those whose method Shared() bool reports true. Total bounds those of the listener.
	PerAddress, Total int
	// Idle closes a connection from which nothing comes for so long, or up to a quarter
	// longer, while somebody reads. It pauses while somebody else has set a deadline for reads, and
	// ends for good with the method StopIdle of the connection: for HTTP, where
	// a client may wait for an answer in silence.
	Idle time.Duration
	// OnRefuse is told of a connection that is refused, at most once a second. It must
	// not block.
	OnRefuse func(addr string)
	// Refused counts all that are refused. Nil: nobody wants to know.
	Refused *atomic.Int64
}

// Listen bounds the connections of l: one too many is closed at once. Connections have
// the methods of what they were, and
//
//	StopIdle()                          // see ListenOptions.Idle
//	Direct() (syscall.RawConn, error)   // to read and write past Read and Write; it minds Idle
func Listen(l net.Listener, o *ListenOptions) net.Listener {
	b := &listener{Listener: l, from: map[netip.Addr]int{}}
	if o != nil {
		b.opts = *o
	}
	return b
}

type listener struct {
	net.Listener
	opts ListenOptions

	mu   sync.Mutex
	all  int
	from map[netip.Addr]int // those with a connection

	told time.Time // OnRefuse
}

// Accept returns the next connection for which there is room.
func (l *listener) Accept() (net.Conn, error) {
	for {
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

func (l *listener) enter(peer netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opts.Total > 0 && l.all >= l.opts.Total {
		return false
	}
	if peer.IsValid() && l.opts.PerAddress > 0 {
		if l.from[peer] >= l.opts.PerAddress {
			return false
		}
		l.from[peer]++
	}
	l.all++
	return true
}

func (l *listener) leave(peer netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if n := l.from[peer]; n > 1 {
		l.from[peer] = n - 1
	} else {
		delete(l.from, peer)
	}
}
