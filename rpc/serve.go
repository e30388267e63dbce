package rpc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/accept"
	"github.com/farcall-dev/farcall/internal/certificate"
	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/http1"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/internal/watch"
	"github.com/farcall-dev/farcall/observe/levels"
	"github.com/farcall-dev/farcall/stream"
)

const (
	// drainTime is the default of ServeOptions.DrainTimeout.
	drainTime = 10 * time.Second
	// bodyTime is how long the body of a request may take where no handler says so: the server reads
	// what is left of it before it sends an answer.
	bodyTime   = 30 * time.Second
	headerTime = 10 * time.Second
	keepTime   = 2 * time.Minute // for a connection of HTTP without requests
	maxHeader  = 64 << 10
)

// ListenAndServe serves a handler at an address until the context ends, and then lets the calls in
// flight finish. The address is host:port, where :port is every interface, unix:PATH, or npipe:NAME
// on Windows. See [Server] for what is served. o may be nil.
func ListenAndServe(ctx context.Context, addr string, h farcall.Handler, o *ServeOptions) error {
	s, err := NewServer(h, o)
	if err != nil {
		return err
	}
	return s.listenAndServe(ctx, addr)
}

func (s *Server) listenAndServe(ctx context.Context, addr string) error {
	l, err := s.Listen(ctx, addr)
	if err == nil && len(l) == 0 {
		err = &ServeError{Address: addr, Reason: "a subject has no listener", Hint: "use natsrpc.Listen"}
	}
	if err != nil {
		_ = s.drain(ctx) // nothing was served
		return err
	}
	if err = s.Serve(ctx, l[0]); err != nil && ctx.Err() == nil {
		err = errors.Join(err, s.drain(ctx)) // the listener has failed, and its connections are open
	}
	return err
}

// A Server serves a handler over every protocol on one port, and finds out which from the first
// bytes of a connection: HTTP/1.1 and HTTP/2, WebSocket, JSON texts one per line or one after
// another, JSON texts each after a Content-Length, and any of them in TLS.
//
//	POST /rpc          one message or a batch
//	GET  /rpc/stream   ?method=NAME&params=JSON, as an event stream
//	GET  /rpc/ws       WebSocket, both directions; also at /rpc
//	GET  /healthz      200 while the process lives
//	GET  /readyz       200 while it accepts calls
//
// It serves an address that other machines can reach only with a guard, and with one that has
// bearer secrets only with TLS, unless ServeOptions.Insecure is set. Web pages of other hosts, and
// requests for a DNS name that is not listed, are refused.
//
// Its parts can be used alone: a Server is an [http.Handler] with these paths for an http.Server of
// the program, Serve takes any [net.Listener], and Listen returns one.
//
//	net.Listener ─ limits ─ first bytes ─┬─ HTTP ─── guard ─┬─ /rpc ──────────── handler
//	                                     │                  └─ /rpc/ws ─┐
//	                                     └─ JSON texts ─────────────────┴─ peer ─ handler
//
// Its methods may be called by any number of goroutines at once.
type Server struct {
	o       ServeOptions
	service Service
	web     http.Handler // the service, behind the proxies
	certs   *certificate.Source
	proxies *forwarded.Proxies
	schemes port.Table
	port    *port.Server
	watch   *watch.Files // of certs; nil: there is none

	mu     sync.Mutex
	cancel context.CancelFunc // ends watch; nil: it does not run
	work   sync.WaitGroup
	ended  chan struct{} // closed when Shutdown has ended; nil: it was not called
	err    error         // of Shutdown, once ended is closed
}

// NewServer returns a Server of a handler. It reads the certificate, and nothing runs yet. Its
// errors are of type *[ServeError].
func NewServer(h farcall.Handler, o *ServeOptions) (*Server, error) {
	return newServer(h, o, port.Schemes())
}

func newServer(h farcall.Handler, o *ServeOptions, schemes port.Table) (*Server, error) {
	s := &Server{schemes: schemes}
	s.o = *cmp.Or(o, &ServeOptions{})
	s.o.Logger = cmp.Or(s.o.Logger, slog.Default())
	s.o.Logger = s.o.Logger.With(levels.Key, "rpc")
	if bad := s.o.check(); bad != nil {
		return nil, bad
	}
	var err error
	if s.proxies, err = forwarded.Parse(s.o.TrustedProxies); err != nil {
		return nil, &ServeError{
			Reason: "ServeOptions.TrustedProxies: " + err.Error(),
			Hint:   "write 10.0.0.0/8, an address, or unix", Err: err,
		}
	}
	if s.service = s.o.Service; s.service == nil {
		s.service = newSite(h, &s.o)
	}
	s.o.bounds(s.service.Policy())
	s.web = withBodyTime(s.proxies.Handler(s.service))
	if err := s.loadCertificate(); err != nil {
		return nil, err
	}
	s.port = port.New(port.Handler{
		HTTP: &http.Server{
			Handler: s.web, ReadHeaderTimeout: headerTime, IdleTimeout: keepTime,
			MaxHeaderBytes: maxHeader, ConnContext: nameHTTPConns(),
			ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelWarn),
		},
		Fast:   s.fast(),
		Stream: s.serveStream,
	}, &port.Options{TLS: s.certs.Config(), Plain: s.plain(), Schemes: s.schemes, Logger: s.o.Logger})
	return s, nil
}

// fast says which paths are served without net/http; nil: none. The environment is for operators of
// programs without a flag for it.
func (s *Server) fast() func(path string) bool {
	f, ok := s.service.(interface{ Fast(path string) bool })
	if !ok || s.o.StdHTTP || http1.Std() {
		return nil
	}
	return f.Fast
}

func withBodyTime(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// there may be no connection
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
		}
		h.ServeHTTP(w, r)
	})
}

// loadCertificate reads the files of the certificate, if there are any.
func (s *Server) loadCertificate() error {
	if s.o.CertFile == "" {
		return nil
	}
	var err error
	files := certificate.Files{Cert: s.o.CertFile, Key: s.o.KeyFile, ClientCA: s.o.ClientCAFile}
	if s.certs, err = certificate.Load(files, authorities(s.service.Policy()),
		s.o.Logger); err != nil {
		return &ServeError{
			Reason: "cannot use the certificate: " + err.Error(),
			Hint:   "the files must be PEM, and the key must belong to the certificate", Err: err,
		}
	}
	s.watch = watch.New(s.certs.Paths(), func([]string) []string {
		s.certs.Reload()
		return s.certs.Paths()
	})
	return nil
}

func authorities(p Policy) [][]byte {
	if p == nil {
		return nil
	}
	return p.Authorities()
}

// Reload reads the files of the certificate again, which the server otherwise does when they
// change.
func (s *Server) Reload() {
	if s.watch != nil {
		s.watch.Reload()
	}
}

// Trust takes the authorities of client certificates of another policy: that of a guard with
// a changed configuration. p may be nil.
func (s *Server) Trust(p Policy) {
	if s.certs != nil && s.certs.Trust(authorities(p)) {
		s.Reload()
	}
}

// UseCertificate reads other files from now on, as those of ServeOptions. It reports false, and
// does nothing, when that would add or remove TLS, which needs another Server.
func (s *Server) UseCertificate(certFile, keyFile, clientCAFile string) bool {
	if (s.certs == nil) != (certFile == "") {
		return false
	}
	if s.certs != nil &&
		s.certs.Use(certificate.Files{Cert: certFile, Key: keyFile, ClientCA: clientCAFile},
			authorities(s.service.Policy())) {
		s.Reload()
	}
	return true
}

// ServeHTTP implements [http.Handler]: it serves the paths of the server for another http.Server,
// which answers for TLS, limits and the addresses that it can be reached at.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.web.ServeHTTP(w, r) }

// Listen opens addresses, all or none, for [Server.Serve]. It fails with a *[ServeError] where they
// cannot be read or opened, or are not safe to serve. Connections are bounded as ServeOptions say.
// Subjects of NATS have no listeners: they are checked alone, and natsrpc.Listen serves them.
func (s *Server) Listen(ctx context.Context, addrs ...string) ([]net.Listener, error) {
	p := s.service.Policy()
	if err := s.Check(p, addrs...); err != nil {
		return nil, err
	}
	var open []net.Listener
	for _, addr := range addrs {
		if port.IsQueue(addr) {
			continue
		}
		l, err := s.schemes.Listen(ctx, addr)
		if err != nil {
			for _, l := range open {
				_ = l.Close()
			}
			return nil, cannotListen(addr, err)
		}
		open = append(open, s.bounded(l))
	}
	s.tellInsecure(p, addrs...)
	return open, nil
}

// cannotListen says what to do about an address that cannot be opened.
func cannotListen(addr string, err error) *ServeError {
	e := &ServeError{Address: addr, Err: err}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.Hint = "another program may be running there: stop it, or take another port: 127.0.0.1:0 is " +
			"any that is free"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		e.Hint = "this machine does not have that address: 127.0.0.1:PORT is this machine only, :PORT " +
			"is every interface"
	case errors.Is(err, os.ErrNotExist):
		e.Hint = "a socket needs a directory that is there"
	case errors.Is(err, os.ErrPermission):
		e.Hint = "ports below 1024 need privileges, and a socket needs a directory that you can write to"
	}
	why := err // without what it says of the address
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		why = op.Err
	} else if inner := errors.Unwrap(err); inner != nil {
		why = inner
	}
	e.Reason = fmt.Sprintf("cannot listen on %s: %v", addr, why)
	return e
}

// A boundedListener is checked, and bounds its connections as the ServeOptions of a Server say.
type boundedListener struct {
	net.Listener
	by *Server
}

func (s *Server) bounded(l net.Listener) net.Listener {
	return boundedListener{
		by: s,
		Listener: accept.Listen(s.proxies.Listener(l, s.o.Logger), &accept.Options{
			PerAddress: s.o.MaxConnectionsPerClient, Total: s.o.MaxConnections, Rate: s.o.AcceptRate,
			Idle: s.o.IdleTimeout,
			OnRefuse: func(address string) {
				s.o.Logger.Warn("a connection was refused: there are too many", "address", address)
			},
		}),
	}
}

// Serve serves the connections of a listener, which it closes. When the context ends it shuts the
// server down, all of it, with ServeOptions.DrainTimeout, and returns nil if the calls in flight
// could finish. It also returns nil after [Server.Shutdown]. A listener that is not from its
// [Server.Listen] is checked and bounded as if it were.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if b, ok := l.(boundedListener); !ok || b.by != s {
		p, addr := s.service.Policy(), s.schemes.Text(l.Addr())
		if bad := s.unsafe(p, addr); bad != nil && !s.o.Insecure {
			_ = l.Close()
			return bad
		}
		s.tellInsecure(p, addr)
		l = s.bounded(l)
	}
	s.begin()
	served := make(chan error, 1)
	go func() { served <- s.port.Serve(context.WithoutCancel(ctx), l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		err := s.drain(ctx)
		return errors.Join(err, <-served)
	}
}

// begin starts to watch the files of the certificate.
func (s *Server) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watch == nil || s.cancel != nil || s.ended != nil {
		return
	}
	//nolint:forbidigo // it ends with the server, not with the listener that is served first
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.work.Go(func() { s.watch.Run(ctx) })
}

// serveStream serves a connection that carries JSON texts. header: each after a Content-Length.
func (s *Server) serveStream(conn net.Conn, prefix []byte, header bool) {
	a := s.service.Accept(conn)
	t := stream.New(conn, framing(header), s.streamOptions(&a, prefix))
	go a.Serve(t)
}

func framing(header bool) stream.Framing {
	if header {
		return stream.Header
	}
	return stream.Detect
}

func (s *Server) streamOptions(a *Accepted, prefix []byte) *stream.Options {
	most := s.o.MaxMessage
	if a.MaxMessage > 0 && (most <= 0 || a.MaxMessage < most) {
		most = a.MaxMessage
	}
	return &stream.Options{
		MaxMessage: most, Prefix: prefix, FrameTimeout: s.o.FrameTimeout,
		Budget: a.Budget,
	}
}

// ServeStdio serves standard input and output until the input ends and its calls are answered. When
// the context ends it shuts the server down, as [Server.Serve] does.
func (s *Server) ServeStdio(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { //nolint:contextcheck // a connection ends with its input, or when it is drained
		defer close(ended)
		s.serveStdio()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return s.drain(ctx) // a read of standard input that nothing can unblock is left behind
	}
}

// serveStdio reads up to the first byte that is no white space, which tells a header, which begins
// with the C of Content-Length, from JSON texts.
func (s *Server) serveStdio() {
	buf := make([]byte, 512)
	prefix := buf[:0]
	var text []byte
	for len(text) == 0 {
		n, err := os.Stdin.Read(buf)
		prefix = buf[:n]
		if text = bytes.TrimLeft(prefix, " \t\r\n"); err != nil {
			break
		}
	}
	a := s.service.Accept(nil)
	header := len(text) > 0 && text[0]|0x20 == 'c'
	if ended := a.Serve(stream.Stdio(framing(header), s.streamOptions(&a, prefix))); ended != nil {
		<-ended
	}
}

// drain is Shutdown with the time of ServeOptions.DrainTimeout.
func (s *Server) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(s.o.DrainTimeout, drainTime))
	defer cancel()
	return s.Shutdown(ctx)
}

// Shutdown accepts nothing more and lets the calls in flight finish, as long as the context lasts;
// then it returns the error of the context. A further call waits for the first. The guard and the
// handler belong to the caller.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	ended := s.ended
	if ended == nil {
		s.ended = make(chan struct{})
	}
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
			return s.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var errs [2]error
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = s.port.Shutdown(ctx) })
	wg.Go(func() { errs[1] = s.service.Shutdown(ctx) })
	wg.Wait()
	s.work.Wait()
	s.err = errors.Join(errs[:]...)
	close(s.ended)
	return s.err
}
