// Package port answers one question: what does this connection speak?
//
// A [Server] accepts connections and looks at their first bytes: TLS (and then
// again at what is inside), HTTP/1 and HTTP/2, JSON texts one per line, or JSON
// texts with a Content-Length before each. HTTP goes to an http.Server; streams
// go to a function. Any other text is a line that is no JSON, which is for the
// function to answer. What is no text is answered with what would have been
// understood.
//
// # Waiting
//
// A client may connect and say nothing for as long as it likes: that costs a
// goroutine and a few bytes, and no timer. From its first byte on it has
// [Options.SniffTimeout] to say enough, a TLS handshake included.
package port

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall/internal/http1"
)

// Handler takes the connections. What is nil is refused.
type Handler struct {
	// HTTP serves what speaks HTTP. Where its Protocols are not set, they become
	// HTTP/1 and HTTP/2, with and without TLS. Shutting it down is up to the
	// Server.
	HTTP *http.Server
	// Fast says which paths of HTTP are served without net/http where a request is exactly
	// the common case: see internal/http1. Nil: none.
	Fast func(path string) bool
	// Stream takes over a connection that carries JSON texts: one per line, or
	// each after a header with its length. prefix was read from it already. It
	// returns soon, while the connection lives on: Close waits for it.
	Stream func(conn net.Conn, prefix []byte, header bool)
}

// Options adjust a Server. Nil and the zero value mean the defaults.
type Options struct {
	// TLS lets clients speak TLS. Without NextProtos it offers HTTP/2 and
	// HTTP/1.1; a client that asks for neither may speak anything. Default none.
	TLS *tls.Config
	// Plain returns why a connection without TLS is refused, or "" to accept it.
	// Default: where there is TLS, all but those over a network of Schemes are refused.
	Plain func(conn net.Conn) (reason string)
	// Schemes are the kinds of addresses that other machines cannot reach. Default: [Schemes].
	Schemes Table
	// SniffTimeout is how long a client may take from its first byte until it is
	// clear what it speaks. Default 10 s.
	SniffTimeout time.Duration
	// Logger takes refusals and failures to accept. Default: not logged.
	Logger *slog.Logger
}

// Server is one or more listeners on which each client speaks what it likes.
type Server struct {
	handler Handler
	opts    Options
	pass    passing       // connections on their way to handler.HTTP
	fast    *http1.Server // in front of handler.HTTP; nil: there is none

	done chan struct{} // closed when the server is
	wg   sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	serving   bool // handler.HTTP
	listeners []net.Listener
	greeting  map[net.Conn]struct{} // what they speak is not known yet
}

// New returns a Server that gives its connections to h.
func New(h Handler, o *Options) *Server {
	s := &Server{handler: h, done: make(chan struct{}), greeting: map[net.Conn]struct{}{}}
	s.opts = *cmp.Or(o, &Options{})
	s.opts.SniffTimeout = cmp.Or(max(s.opts.SniffTimeout, 0), 10*time.Second)
	if s.opts.Schemes == nil {
		s.opts.Schemes = Schemes()
	}
	if s.opts.Plain == nil {
		s.opts.Plain = s.notPlain
	}
	s.opts.Logger = cmp.Or(s.opts.Logger, slog.New(slog.DiscardHandler))
	if s.opts.TLS != nil && len(s.opts.TLS.NextProtos) == 0 {
		s.opts.TLS = s.opts.TLS.Clone()
		s.opts.TLS.NextProtos = []string{"h2", "http/1.1"}
	}
	if hs := h.HTTP; hs != nil && hs.Protocols == nil {
		hs.Protocols = new(http.Protocols)
		hs.Protocols.SetHTTP1(true)
		hs.Protocols.SetHTTP2(true)
		hs.Protocols.SetUnencryptedHTTP2(true)
	}
	if h.HTTP != nil && h.Fast != nil {
		s.fast = http1.New(h.HTTP, h.Fast)
	}
	s.pass = passing{conns: make(chan net.Conn), done: s.done}
	return s
}

// Serve accepts connections until the listener fails or the server is closed;
// then it returns nil. It may be called for several listeners, which it owns.
// When the context ends, so do TLS handshakes under way.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if !s.begin(l) {
		l.Close()
		return nil
	}
	defer l.Close()
	var pause time.Duration
	for {
		conn, err := l.Accept()
		if err == nil {
			pause = 0
			s.greet(ctx, conn)
			continue
		}
		if s.isClosed() {
			return nil
		}
		if !temporary(err) {
			return fmt.Errorf("port: accept on %v: %w", l.Addr(), err)
		}
		// The process or the system is short of something. Closing the listener
		// would not bring it back.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.opts.Logger.Warn("cannot accept a connection; trying again", "address", l.Addr().String(),
			"after", pause, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.done:
			timer.Stop()
			return nil
		}
	}
}

// temporary reports whether Accept may succeed later.
func temporary(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ECONNRESET, syscall.ENOBUFS,
		syscall.ENOMEM,
	}, func(e error) bool { return errors.Is(err, e) })
}

// begin notes the listener and makes the HTTP server wait for connections.
func (s *Server) begin(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listeners = append(s.listeners, l)
	if s.handler.HTTP != nil && !s.serving {
		s.serving = true
		s.pass.addr = l.Addr()
		s.wg.Go(func() { _ = s.handler.HTTP.Serve(&s.pass) })
	}
	return true
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// greet starts to find out what a connection speaks.
func (s *Server) greet(ctx context.Context, conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return
	}
	s.greeting[conn] = struct{}{}
	s.wg.Go(func() { s.meet(ctx, conn) })
}

// leave forgets a connection that is handed over. It reports whether the
// connection still lives.
func (s *Server) leave(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.greeting[conn]
	delete(s.greeting, conn)
	return ok
}

// Close closes the listeners, the connections with a protocol that is not
// known yet, and those of the HTTP server. Streams belong to who took them.
func (s *Server) Close() error {
	err := s.stop()
	if s.fast != nil {
		s.fast.Close()
	}
	if s.handler.HTTP != nil {
		err = errors.Join(err, s.handler.HTTP.Close())
	}
	s.wg.Wait()
	return err
}

// Shutdown is Close that lets HTTP requests finish, as long as the context
// lasts.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.stop()
	fast := make(chan error, 1)
	if s.fast != nil {
		go func() { fast <- s.fast.Shutdown(ctx) }()
	} else {
		fast <- nil
	}
	if s.handler.HTTP != nil {
		err = errors.Join(err, s.handler.HTTP.Shutdown(ctx))
	}
	err = errors.Join(err, <-fast)
	if ctx.Err() != nil {
		return errors.Join(err, s.Close())
	}
	s.wg.Wait()
	return err
}

func (s *Server) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	close(s.done)
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for conn := range s.greeting {
		conn.Close()
	}
	clear(s.greeting)
	return errors.Join(errs...)
}

// passing is the listener of the HTTP server.
type passing struct {
	conns chan net.Conn
	done  chan struct{}
	addr  net.Addr
}

// Accept returns the next connection that speaks HTTP.
func (p *passing) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close does nothing: the Server ends it.
func (p *passing) Close() error { return nil }

// Addr returns the address of the first listener.
func (p *passing) Addr() net.Addr { return p.addr }
