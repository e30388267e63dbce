package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/accept"
	"github.com/farcall-dev/farcall/internal/beneath"
	"github.com/farcall-dev/farcall/internal/http1"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/observed"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/stream"
)

// drainTime bounds how long calls in flight may take when a server stops, unless
// farcall.Options.CloseTimeout does.
const drainTime = 5 * time.Second

// Serve serves one connection until it ends, or the context does; then calls in flight are
// finished, for as long as the options' CloseTimeout (default 5 s). It returns nil in both cases,
// and an error when the connection broke. A client may use both eras on it: an initialize opens the
// session of the connection, and requests of the modern era stand alone.
//
// b is a [Server], or anything else that answers MCP messages. The options'
// Dialect is ignored. Those of a Server are the default, also of its Logger alone,
// and its interceptors run in any case: see ServerOptions.RPC.
func Serve(ctx context.Context, b mcphttp.Backend, t farcall.Transport, o *farcall.Options) error {
	opts := optionsOf(b, o)
	opts.Dialect = mcphttp.Dialect()
	observer := observed.Calls(opts.Observer)
	opts.Observer = observer
	key := owner.Or(owner.From(ctx), owner.Connection(rand.Text(), ""))
	h := &connection{
		backend: b, observer: observer, transport: opts.Transport,
		ctx: context.WithValue(context.WithoutCancel(ctx), owner.ContextKey{}, key), owner: key,
	}
	if s, ok := b.(*Server); ok {
		t = s.trace.Transport(t)
		defer s.trace.Flush(flushTime)
	}
	t, reading := watch(t)
	peer := farcall.NewPeer(t, h, &opts)
	if b, ok := t.(interface{ Busy(f func() bool) }); ok {
		// A session is notified of changes, and its client waits for them in silence.
		b.Busy(func() bool { st := peer.Stats(); return h.begun() || st.InFlight+st.Calls > 0 })
	}
	select {
	case <-ctx.Done():
	case <-reading.ended:
	case <-peer.Done():
	}
	// A subscription does not end unasked; anything else is waited for.
	if s, ok := b.(*Server); ok {
		s.listeners.endIf(func(one *listener) bool { return one.c.client == peer })
	}
	select {
	case <-ctx.Done():
		limit, cancel := context.WithTimeout(h.ctx, cmp.Or(opts.CloseTimeout, drainTime))
		defer cancel()
		_ = peer.Shutdown(limit) // what is not finished by then is given up
	case <-peer.Done():
		_ = peer.Close() // waits for the handlers
	}
	h.close()
	if s, ok := b.(*Server); ok {
		s.tasks.endOwner(key)
		if h.alone.Load() && s.relays() && !key.Authenticated() {
			s.opts.Relay.Closed(key.Text())
		}
	}
	if err := peer.Err(); !reading.closedInOrder() && !errors.Is(err, farcall.ErrClosed) {
		return err
	}
	return nil
}

// optionsOf returns the options of a connection: o, and what a Server has for what
// o leaves open.
func optionsOf(b mcphttp.Backend, o *farcall.Options) (opts farcall.Options) {
	if s, ok := b.(*Server); ok {
		opts = *s.rpcOptions()
	}
	if o == nil {
		return opts
	}
	log := opts.Logger
	if opts = *o; opts.Logger == nil {
		opts.Logger = log
	}
	return opts
}

// begun reports whether there is a session.
func (x *connection) begun() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.session != nil && x.session.Revision() != nil
}

// connection serves what arrives on one connection, in both eras.
type connection struct {
	backend mcphttp.Backend
	owner   any             // an owner.Key: of calls that are neither authenticated nor in a session
	alone   atomic.Bool     // there were requests of no session
	ctx     context.Context //nolint:containedctx // the session's, which lasts as long as the connection

	observer  *observe.Observer
	transport string

	mu      sync.Mutex
	session mcphttp.Session   // nil before initialize
	opening chan struct{}     // closed when initialize has been answered; nil: it is not being served
	seen    *observed.Session // nil: there is no session, or no observer
	closed  bool
}

func (x *connection) current() (s mcphttp.Session, opening <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.session, x.opening
}

func (x *connection) close() {
	if s, _ := x.current(); s != nil {
		s.Close()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	x.seen.End()
}

// ServeRPC implements farcall.Handler. A request says by its _meta that it
// belongs to the modern era; initialize, and a ping before it, to the other one.
func (x *connection) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	if req.ID.IsNull() { // basic, "Requests": the id must not be null
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "Invalid Request: the id must not be null",
		}
	}
	session, opening := x.current()
	opens := req.Method == spec.MethodInitialize || req.Method == spec.MethodPing
	switch {
	case session == nil && !opens, isModern(req.Params):
		if !owner.From(ctx).Authenticated() {
			ctx = context.WithValue(ctx, owner.ContextKey{}, x.owner)
		}
		if !req.IsNotification() && !x.alone.Load() {
			x.alone.Store(true)
		}
		return x.backend.ServeRPC(ctx, req)
	case session == nil:
		session = x.open(farcall.CallerFrom(ctx))
	}
	if req.Method == spec.MethodInitialize && !req.IsNotification() {
		return x.initialize(ctx, session, req)
	}
	if opening != nil && !opens {
		// The client has not waited for the answer, as it should: what it sends belongs to the session.
		select {
		case <-opening:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return session.ServeRPC(ctx, req)
}

// initialize serves initialize. Of several at a time, requests wait for the last.
func (x *connection) initialize(
	ctx context.Context, session mcphttp.Session, req *farcall.Request,
) (any, error) {
	done := make(chan struct{})
	x.mu.Lock()
	x.opening = done
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if close(done); x.opening == done {
			x.opening = nil
		}
	}()
	result, err := session.ServeRPC(ctx, req)
	if err == nil {
		x.observe(session.Revision())
	}
	return result, err
}

// observe tells the observer of the session that has begun. A handler may outlast the connection.
func (x *connection) observe(rev *era.Revision) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed {
		x.seen = observed.Begin(x.observer, x.transport, rev.Name, false)
	}
}

func (x *connection) open(client farcall.Caller) mcphttp.Session {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.session == nil {
		x.session = x.backend.Accept(x.ctx, client)
	}
	return x.session
}

// Serve serves one connection, as the function [Serve] does.
func (s *Server) Serve(ctx context.Context, t farcall.Transport) error {
	return s.ServeTransport(ctx, t, nil)
}

// ServeStdio serves the process that started this one, on standard input and
// output. It takes possession of it: nothing else may write there.
func (s *Server) ServeStdio(ctx context.Context) error {
	return s.Serve(ctx, stream.Stdio(stream.NDJSON, nil))
}

// This file is what a server of several protocols on one port asks of a Server: rpc.MCP is the
// interface.

// ServeTransport serves one connection, as the function [Serve] does, with its own options.
func (s *Server) ServeTransport(
	ctx context.Context, t farcall.Transport, o *farcall.Options,
) error {
	s.checkMade()
	return Serve(ctx, s, t, o)
}

// Routes returns a handler of /mcp, /sse and /messages, for a server that checks the Host header of
// each request itself. Without an Owner in ServerOptions or its HTTP, a session belongs to the
// caller that a guard has authenticated. end ends the sessions, as Shutdown of [mcphttp.Handler]
// does. o and the bounds take the place of those in ServerOptions.
func (s *Server) Routes(
	o *farcall.Options, maxMessage int, origins []string,
) (routes http.Handler, end func(context.Context) error) {
	opts := mcphttp.Options{}
	if s.opts.HTTP != nil {
		opts = *s.opts.HTTP
	}
	opts.RPC, opts.MaxMessage = o, cmp.Or(maxMessage, opts.MaxMessage)
	opts.Hosts, opts.Origins = []string{"*"}, slices.Concat(origins, opts.Origins)
	opts.MessagesPath = "/messages"
	if opts.Owner == nil && s.opts.Owner == nil {
		opts.Owner = authenticated
	}
	h := mcphttp.NewHandler(s, &opts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/sse":
			h.ServeSSE(w, r)
		case opts.MessagesPath:
			h.ServeMessages(w, r)
		default:
			h.ServeHTTP(w, r)
		}
	}), h.Shutdown
}

// authenticated returns the owner of the sessions that a request opens: "" without a guard, and for
// anonymous callers.
func authenticated(r *http.Request) string {
	if o := owner.From(r.Context()); o.Authenticated() {
		return o.Text()
	}
	return ""
}

const (
	headerTime = 10 * time.Second // for the headers of a request
	keepTime   = 2 * time.Minute  // for a connection without requests
	maxHeader  = 64 << 10
)

// ListenAndServe serves every revision over HTTP until the context ends: /mcp
// (Streamable HTTP), and for clients of 2024-11-05 /sse and /messages. Then calls
// in flight are finished, for as long as ServerOptions.RPC.CloseTimeout (default
// 5 s), and it returns nil.
//
// addr is host:port, where 0.0.0.0 is IPv4 only and an empty host every interface, or
// unix:PATH. There is neither TLS nor authentication: for an address that other machines can
// reach, which is any but loopback and unix sockets, it logs a warning and serves. Put
// the handler of package mcphttp behind a guard and an http.Server with TLS instead.
//
// A POST to /mcp over HTTP/1.1 that is exactly the common case is read by a second, stricter
// reader, and net/http has the others; the environment variable FARCALL_HTTP=std turns it off.
//
// Web pages of other hosts are refused, and so are requests for a DNS name that is not
// listed: see Origins and Hosts of [mcphttp.Options]. At most 16,384 connections are open, 4,096 of
// them from one IP address that is not loopback, and 1,000 are accepted in a second.
func (s *Server) ListenAndServe(ctx context.Context, addr string) error {
	s.checkMade()
	l, err := port.Listen(ctx, addr)
	if err != nil {
		return err
	}
	return s.ServeListener(ctx, l)
}

// ServeListener serves as ListenAndServe does, on a listener that exists already:
// one of a free port, of systemd or with TLS, for example. It closes the listener.
func (s *Server) ServeListener(ctx context.Context, l net.Listener) error {
	s.warnOfReach(ctx, l.Addr())
	return s.serveHTTP(ctx, l)
}

// logger takes what is not for clients.
func (s *Server) logger() *slog.Logger {
	if log := s.rpcOptions().Logger; log != nil {
		return log
	}
	return slog.Default()
}

// warnOfReach logs that other machines can reach an address.
func (s *Server) warnOfReach(ctx context.Context, addr net.Addr) {
	if addr.Network() == "unix" || !port.Reachable(addr.String()) {
		return
	}
	s.logger().WarnContext(ctx,
		"mcp: other machines can call every tool: the address is not loopback, and ListenAndServe has "+
			"neither TLS nor authentication; listen on 127.0.0.1, or serve mcphttp.NewHandler behind a "+
			"guard and TLS", "address", addr.String())
}

func (s *Server) serveHTTP(ctx context.Context, l net.Listener) error {
	defer s.trace.Flush(flushTime)
	o := s.HTTPOptions()
	h := mcphttp.NewHandler(s, o)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.HandleFunc("/sse", h.ServeSSE)
	mux.HandleFunc(cmp.Or(o.MessagesPath, "/messages"), h.ServeMessages)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "No such path: MCP is at /mcp", http.StatusNotFound)
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTime, IdleTimeout: keepTime, MaxHeaderBytes: maxHeader,
	}
	// IdleTimeout above is that of HTTP
	l = accept.Listen(l, &accept.Options{Idle: -1})
	fast := http1.New(server, func(path string) bool { return path == "/mcp" })
	if !http1.Std() {
		l = http1.NewFront(l, fast)
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.listeners.endAll()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		cmp.Or(o.RPC.CloseTimeout, drainTime))
	defer cancel()
	// What is not finished by then is given up.
	_ = h.Shutdown(limit)
	if errors.Join(server.Shutdown(limit), fast.Shutdown(limit)) != nil {
		_ = server.Close()
	}
	if err == nil {
		err = <-failed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// overHTTP reports whether a call came over HTTP.
func overHTTP(c *call) bool { return mcphttp.RequestFrom(c) != nil }

// watch returns the transport, and with it what becomes of reading from it. The
// connection lives on when the other end sends no more, for calls in flight are
// answered.
func watch(t farcall.Transport) (farcall.Transport, *reading) {
	w := &watched{Transport: beneath.Of(t), reading: reading{ended: make(chan struct{})}}
	if try, ok := t.(farcall.TryWriter); ok {
		return &watchedTry{w, try}, &w.reading
	}
	return w, &w.reading
}

// reading is what became of reading from a transport.
type reading struct {
	ended chan struct{} // closed when nothing more can come
	once  sync.Once
	err   error // why; set before
}

func (r *reading) failed(err error) {
	if wire := new(jsonrpc.Error); errors.As(err, &wire) && !errors.Is(err, io.EOF) {
		return // one frame is refused
	}
	r.once.Do(func() {
		r.err = err
		close(r.ended)
	})
}

// closedInOrder reports whether the other end said that it sends no more.
func (r *reading) closedInOrder() bool {
	select {
	case <-r.ended:
		return errors.Is(r.err, io.EOF)
	default:
		return false
	}
}

// watched is a transport with an end that is known.
type watched struct {
	beneath.Transport

	reading reading
}

// Read implements farcall.Transport.
func (w *watched) Read() ([]byte, error) {
	frame, err := w.Transport.Read()
	if err != nil {
		w.reading.failed(err)
	}
	return frame, err
}

// watchedTry is watched where there is a TryWriter.
type watchedTry struct {
	*watched
	farcall.TryWriter
}
