package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
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
	h := &connection{backend: b, observer: observer, transport: opts.Transport, ctx: context.WithValue(context.WithoutCancel(ctx), owner.ContextKey{}, key), owner: key}
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
		s.listeners.endOf(peer)
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
		return nil, &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: "Invalid Request: the id must not be null"}
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
