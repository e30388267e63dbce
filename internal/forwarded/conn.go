package forwarded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// headerTime is how long a listed proxy may take for the header of the PROXY protocol, which it
// sends at once where it speaks it.
const headerTime = 5 * time.Second

// maxPending bounds the connections with a header that is being read, or that wait for Accept.
const maxPending = 1024

// Listener reads the header of the PROXY protocol from connections of listed proxies, where there
// is one: their RemoteAddr is then that of the client. A header that is not valid or not whole
// within 5 s ends the connection. A proxy that speaks HTTP and sends none is taken as it is.
// Headers of others are left where they are.
func (p *Proxies) Listener(l net.Listener, log *slog.Logger) net.Listener {
	if p == nil {
		return l
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	x := &listener{
		Listener: l, proxies: p, log: log, accepted: make(chan result),
		done: make(chan struct{}), pending: map[net.Conn]struct{}{},
	}
	x.wg.Go(x.run)
	return x
}

type result struct {
	conn net.Conn
	err  error
}

type listener struct {
	net.Listener
	proxies  *Proxies
	log      *slog.Logger
	accepted chan result
	done     chan struct{}
	wg       sync.WaitGroup // run, and the reading of headers

	mu      sync.Mutex
	closed  bool
	pending map[net.Conn]struct{}
}

// Accept returns the next connection with a client that is known.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case r := <-l.accepted:
		return r.conn, r.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener and the connections that Accept has not returned.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.done)
	err := l.Listener.Close()
	for conn := range l.pending {
		conn.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
	return err
}

// run accepts connections. One with a header that is late does not hold up the others.
func (l *listener) run() {
	for {
		conn, err := l.Listener.Accept()
		switch {
		case err != nil:
			if !l.give(nil, err) || errors.Is(err, net.ErrClosed) {
				return
			}
		case !l.proxies.trustsPeer(conn):
			l.give(conn, nil)
		case !l.begin(conn):
			conn.Close()
		default:
			l.wg.Go(func() { l.introduce(conn) })
		}
	}
}

// give hands the outcome to Accept, unless the listener is closed.
func (l *listener) give(conn net.Conn, err error) bool {
	select {
	case l.accepted <- result{conn, err}:
		return true
	case <-l.done:
		if conn != nil {
			conn.Close()
		}
		return false
	}
}

func (l *listener) begin(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.pending) >= maxPending {
		return false
	}
	l.pending[conn] = struct{}{}
	return true
}

func (l *listener) end(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, conn)
}

// introduce reads the header of a connection, if there is one.
func (l *listener) introduce(conn net.Conn) {
	defer l.end(conn) // not before Accept has it: what waits for that is bounded, too
	known, err := readHeader(conn)
	if err != nil {
		l.log.Warn("refused a connection of a proxy", "proxy", conn.RemoteAddr().String(), "error", err)
		conn.Close()
		return
	}
	l.give(known, nil)
}

// readHeader returns the connection as the proxy introduces it.
func readHeader(conn net.Conn) (*proxied, error) {
	c := &proxied{Conn: conn}
	if err := conn.SetReadDeadline(time.Now().Add(headerTime)); err != nil {
		return nil, err
	}
	in := &counted{Reader: conn}
	r := bufio.NewReaderSize(in, 256)
	header, err := proxyproto.Read(r)
	early, _ := r.Peek(r.Buffered()) // what is buffered can be peeked
	switch {
	case err == nil:
		c.remote = source(header, conn.RemoteAddr())
	case errors.Is(err, proxyproto.ErrNoProxyProtocol):
	case errors.Is(err, os.ErrDeadlineExceeded) && in.n == len(early) && !begins(early):
	// no header is late
	default:
		return nil, fmt.Errorf("the header of the PROXY protocol: %w", err)
	}
	c.early = bytes.Clone(early)
	return c, conn.SetReadDeadline(time.Time{})
}

// counted counts what is read.
type counted struct {
	io.Reader
	n int
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// begins reports whether something that came is the begin of a header.
func begins(early []byte) bool {
	return len(early) > 0 &&
		(bytes.HasPrefix(proxyproto.SIGV1, early) || bytes.HasPrefix(proxyproto.SIGV2, early))
}

// source is the client of a header, or nil where that is the proxy itself: its own health checks,
// and clients that the header does not name by an address of TCP. A loopback address is one of the
// proxy's machine, which must not be taken for this one.
func source(h *proxyproto.Header, proxy net.Addr) net.Addr {
	from, ok := h.SourceAddr.(*net.TCPAddr)
	if h.Command.IsLocal() || !ok || from.IP.IsUnspecified() {
		return nil
	}
	if near, ok := proxy.(*net.TCPAddr); from.IP.IsLoopback() && (!ok || !near.IP.IsLoopback()) {
		return nil
	}
	return from
}

// proxied is a connection of a listed proxy.
type proxied struct {
	net.Conn
	early  []byte   // what was read with the header
	remote net.Addr // the client; nil: the proxy has named none
}

// Read implements net.Conn.
func (c *proxied) Read(p []byte) (int, error) {
	if len(c.early) > 0 && len(p) > 0 {
		n := copy(p, c.early)
		if c.early = c.early[n:]; len(c.early) == 0 {
			c.early = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// RemoteAddr is the address of the client, as far as it is known.
func (c *proxied) RemoteAddr() net.Addr {
	if c.remote != nil {
		return c.remote
	}
	return c.Conn.RemoteAddr()
}

// Shared reports whether the connection may carry requests of many clients.
func (c *proxied) Shared() bool { return c.remote == nil }

// NetConn returns the connection to the proxy.
func (c *proxied) NetConn() net.Conn { return c.Conn }

// CloseWrite ends what is sent.
func (c *proxied) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

// Via reports whether a connection, or one that it is made of, comes from a listed proxy.
func Via(conn net.Conn) bool {
	for conn != nil {
		if _, ok := conn.(*proxied); ok {
			return true
		}
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return false
		}
		conn = inner.NetConn()
	}
	return false
}
