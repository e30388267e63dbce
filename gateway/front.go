package gateway

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/gateway/internal/raw"
	"github.com/farcall-dev/farcall/gateway/internal/signin"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/rpc"
	"github.com/farcall-dev/farcall/wsrpc"
)

// messagesPath is where clients of HTTP+SSE post; /sse tells them.
const messagesPath = "/messages"

// ServeHTTP serves all addresses; see the package.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		onhttp.Probe(w, http.StatusOK, "ok")
	case "/readyz":
		if g.draining.Load() {
			onhttp.Probe(w, http.StatusServiceUnavailable, "draining")
			return
		}
		if missing := g.unready(); missing != "" {
			onhttp.Probe(w, http.StatusServiceUnavailable, missing)
			return
		}
		onhttp.Probe(w, http.StatusOK, strings.TrimSuffix("ready\n"+g.nodesText(), "\n"))
	default:
		if g.signIns != nil && signin.Serves(r.URL.Path) {
			g.serveSignIn(w, r)
			return
		}
		g.web.ServeHTTP(w, r)
	}
}

// serveSignIn serves the pages of sign-ins to browsers, which need no credentials. Those that a
// browser shows have to be right, and of the principal who signs in.
func (g *Gateway) serveSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") == "" && (r.TLS == nil || len(r.TLS.PeerCertificates) == 0) ||
		r.URL.Path == signin.ClientPath {
		g.signIns.ServeHTTP(w, r, "")
		return
	}
	g.shield.web(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.signIns.ServeHTTP(w, r, guard.From(r.Context()).Owner())
	})).ServeHTTP(w, r)
}

// Fast reports whether a path takes messages by POST: rpc.Service says what for.
func (*Gateway) Fast(path string) bool {
	return path == "/mcp" || path == "/rpc" || strings.HasPrefix(path, "/mcp/") ||
		strings.HasPrefix(path, "/rpc/")
}

// anyHost are the Hosts of the handlers behind serveHTTP, which has looked at the host of each
// request.
func anyHost() []string { return []string{"*"} }

// serveHTTP serves requests that the guard has let pass.
func (g *Gateway) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if g.control.Has(r.URL.Path) { // it looks at the host itself, and writes down what it refuses
		g.control.ServeHTTP(w, r)
		return
	}
	if err := g.plan.Load().hosts.CheckHost(r); err != nil {
		onhttp.Refuse(w, http.StatusForbidden,
			&jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: "Forbidden: " + err.Error()})
		return
	}
	switch path := r.URL.Path; path {
	case "/mcp":
		g.serveMCP("", w, r)
	case "/sse":
		if g.speaksMCP(w) {
			g.endpoint("").http.ServeSSE(w, r)
		}
	case messagesPath:
		g.endpoint("").http.ServeMessages(w, r)
	case control.StatusPath:
		g.operator(w, r, http.HandlerFunc(g.serveStatus))
	case "/", "/api", "/save", "/open":
		g.operator(w, r, g.page)
	default:
		g.serveNamed(path, w, r)
	}
}

// serveNamed serves the addresses of one server, the parts of the page, and the metrics.
func (g *Gateway) serveNamed(path string, w http.ResponseWriter, r *http.Request) {
	if name, ok := strings.CutPrefix(path, "/mcp/"); ok {
		g.serveMCP(name, w, r)
	} else if name, ok := strings.CutPrefix(path, "/sse/"); ok {
		if g.hasMCP(name, w, r) {
			g.endpoint(name).http.ServeSSE(w, r)
		}
	} else if name, ok := strings.CutPrefix(path, messagesPath+"/"); ok {
		if g.hasMCP(name, w, r) {
			g.endpoint(name).http.ServeMessages(w, r)
		}
	} else if rest, ok := strings.CutPrefix(path+"/", "/rpc/"); ok {
		g.serveRPC(strings.TrimSuffix(rest, "/"), w, r)
	} else if g.page.Has(path) { // the same for everybody
		g.page.ServeHTTP(w, r)
	} else if path == "/metrics" && g.opts.Metrics != nil {
		g.operator(w, r, g.opts.Metrics)
	} else {
		noPath(w,
			"MCP is served at /mcp and /mcp/NAME (HTTP+SSE at /sse and /sse/NAME), JSON-RPC at /rpc/NAME")
	}
}

// preflight answers a browser that asks, without credentials, whether it may ask. What there is at
// an address is not for callers that the guard refuses.
func (g *Gateway) preflight(w http.ResponseWriter, r *http.Request) bool {
	if g.shield == nil || r.Method != http.MethodOptions || guard.From(r.Context()) != nil {
		return false
	}
	g.endpoint("").http.ServeHTTP(w, r)
	return true
}

// serveMCP serves the address of a server, or of all.
func (g *Gateway) serveMCP(name string, w http.ResponseWriter, r *http.Request) {
	if g.preflight(w, r) {
		return
	}
	if name == "" && !g.speaksMCP(w) {
		return
	}
	if name != "" && !g.hasMCP(name, w, r) {
		return
	}
	e := g.endpoint(name)
	if !wantsWebSocket(r) {
		e.http.ServeHTTP(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(g.serving, cancel)() // of what another node answers
	to := func() string { return g.keeper(r, name) }
	if !e.keepsPrincipals() || !e.http.Elsewhere(w, r.WithContext(ctx), nil, to) {
		e.ws.ServeHTTP(w, r)
	}
}

// hasMCP reports whether there is a server of MCP of that name, for this caller. Otherwise it
// answers.
func (g *Gateway) hasMCP(name string, w http.ResponseWriter, r *http.Request) bool {
	p := g.plan.Load()
	if v := p.virtual[name]; v != nil && v.admits(r.Context()) {
		return true
	}
	if s := p.byName[name]; s != nil && s.mcp != nil {
		return true
	}
	noPath(w, "there is no MCP server of this name; / lists them")
	return false
}

// speaksMCP reports whether a server does. Otherwise it answers.
func (g *Gateway) speaksMCP(w http.ResponseWriter) bool {
	if p := g.plan.Load(); len(p.mcp) > 0 || len(p.order) == 0 {
		return true
	}
	noPath(w, "no server behind it speaks MCP, the profile of all is raw; JSON-RPC is at /rpc/NAME")
	return false
}

// serveRPC serves JSON-RPC: rest is what follows /rpc/ in the path. Without a
// name it is the only server's.
func (g *Gateway) serveRPC(rest string, w http.ResponseWriter, r *http.Request) {
	if g.preflight(w, r) {
		return
	}
	name, way, _ := strings.Cut(rest, "/")
	p := g.plan.Load()
	if name == "" || name == "ws" || name == "stream" {
		way = name
		if len(p.order) != 1 {
			noPath(w, "there are several servers: JSON-RPC is at /rpc/NAME")
			return
		}
		name = p.order[0].cfg.Name
	}
	if key := r.Header.Get(idempotencyHeader); key != "" {
		r = r.WithContext(context.WithValue(r.Context(), headerKey{}, key))
	}
	s := p.byName[name]
	if s == nil || !s.passesAll(p) {
		noPath(w,
			"there is no JSON-RPC server of this name; its profile may be mcp, or not all of it may be used")
		return
	}
	switch {
	case wantsWebSocket(r) && (way == "" || way == "ws"):
		s.ws.ServeHTTP(w, r)
	case way == "":
		s.post.ServeHTTP(w, r)
	case way == "stream":
		s.stream.ServeHTTP(w, r)
	case way == "ws":
		noPath(w, "this address is for WebSocket")
	default:
		noPath(w, "JSON-RPC is at /rpc/NAME, /rpc/NAME/ws and /rpc/NAME/stream")
	}
}

// newFront makes the handlers of an address for MCP.
func (e *endpoint) newFront() {
	g := e.g
	rpc := g.clientOptions()
	rpc.V1 = false // no revision has it
	rpc.Interceptors = g.shield.interceptors(nil, rpc.Interceptors)
	e.http = mcphttp.NewHandler(e.server, e.linked(&mcphttp.Options{
		MaxMessage: g.opts.MaxMessage, RPC: rpc, Owner: g.sender(), KeepConnections: true,
		Origins: g.opts.Origins, Hosts: anyHost(),
		MessagesPath: strings.TrimSuffix(messagesPath+"/"+e.name, "/"),
		Heartbeat:    g.opts.Heartbeat,
	}))
	e.ws = wsrpc.NewHandler(e.serveLink, g.wsOptions("mcp"))
}

// serveLink serves a connection of MCP that a request has begun, for the caller who sent that.
func (e *endpoint) serveLink(t farcall.Transport, r *http.Request) {
	g := e.g
	o := g.named(webSocketOf(r), r.RemoteAddr, owner.ConnFrom(r.Context()).At)
	o.V1 = false
	g.identify(o, r)
	conn := g.joined(t, guard.ConnOf(r, o.Transport))
	o.Budget = g.Budget(conn)
	o.Interceptors = g.shield.interceptors(conn, o.Interceptors)
	g.run(t, func(ctx context.Context) { e.serve(ctx, t, o, r.RemoteAddr) })
}

// newFront makes the handlers of an address for JSON-RPC.
func (s *server) newFront() {
	g, h := s.g, s.checks.Before(s.g.refusing(s.hooked(farcall.HandlerFunc(s.rpcOnce))))
	s.calls = h
	rpc := g.clientOptions()
	rpc.V1 = true // as over the other transports, where bytes pass
	rpc.Interceptors = s.guarded(nil, rpc.Interceptors)
	o := &httprpc.Options{
		MaxMessage: g.opts.MaxMessage, Gzip: g.opts.Gzip, RPC: rpc,
		Origins: g.opts.Origins, Hosts: anyHost(),
	}
	s.post, s.stream = s.placed(httprpc.NewHandler(h, o)), s.placed(httprpc.NewStreamHandler(h, o))
	s.ws = wsrpc.NewHandler(s.serveLink, g.wsOptions())
}

// serveLink serves a connection of JSON-RPC that a request has begun, for the caller who sent that.
func (s *server) serveLink(t farcall.Transport, r *http.Request) {
	o := s.g.named(webSocketOf(r), r.RemoteAddr, owner.ConnFrom(r.Context()).At)
	conn := s.g.joined(t, guard.ConnOf(r, o.Transport))
	s.g.run(t, func(ctx context.Context) { s.pipe(ctx, t, o, conn) })
}

// named are the options of a connection from an address to at, which has a name in records.
func (g *Gateway) named(transport, remote string, at net.Addr) *farcall.Options {
	o := g.clientOptions()
	o.Transport = transport
	o.Conn = transport + "-" + strconv.FormatInt(g.connected.Add(1), 10)
	who := &owner.Conn{Name: o.Conn, Remote: remote, Owner: owner.Connection(o.Conn, remote), At: at}
	o.ConnContext = func(ctx context.Context) context.Context {
		return context.WithValue(ctx, owner.ConnKey{}, who)
	}
	return o
}

// sender returns what is unique for the authenticated caller that sends a request, for sessions.
func (g *Gateway) sender() func(*http.Request) string {
	if g.shield == nil {
		return g.opts.Owner
	}
	return func(r *http.Request) string { return guard.From(r.Context()).Owner() }
}

// requestKey finds the request that began a connection in the contexts of its
// calls.
type requestKey struct{}

// identify lets the calls of a connection be those of the principal who began it.
func (g *Gateway) identify(o *farcall.Options, r *http.Request) {
	if g.opts.Owner == nil || g.shield != nil {
		return
	}
	whose := func(h farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			return h.ServeRPC(context.WithValue(ctx, requestKey{}, r), req)
		})
	}
	o.Interceptors = append([]farcall.Interceptor{whose}, o.Interceptors...)
}

func webSocketOf(r *http.Request) string {
	if r.TLS != nil {
		return "wss"
	}
	return "ws"
}

// joined lets the guard end a connection, unless c says how that is done.
func (g *Gateway) joined(t farcall.Transport, c *guard.Conn) *guard.Conn {
	if g.shield == nil || c.Close != nil {
		return c
	}
	own := *c
	own.Close = t.Close
	return &own
}

// pipe carries a connection of JSON-RPC.
func (s *server) pipe(
	ctx context.Context, t farcall.Transport, o *farcall.Options, conn *guard.Conn,
) {
	if s.g.shield != nil {
		ctx = context.WithValue(ctx, connKey{}, conn)
	}
	ctx = context.WithValue(ctx, owner.ContextKey{}, owner.Connection(o.Conn, conn.Remote))
	// its error is the connection's: it broke
	_ = s.raw.Pipe(context.WithValue(o.ConnContext(ctx), pipeKey{}, o), t)
}

// connKey finds what is known of a connection in its context.
type connKey struct{}

// pipeKey finds the options of a connection in its context.
type pipeKey struct{}

// recordPiped tells of a call that went by in a pipe.
func recordPiped(ctx context.Context, r farcall.Record) {
	o, ok := ctx.Value(pipeKey{}).(*farcall.Options)
	if !ok {
		return
	}
	r.Transport, r.Conn = o.Transport, o.Conn
	if o.OnRecord != nil {
		o.OnRecord(ctx, r)
	}
	observePiped(ctx, o.Observer, &r)
}

// refusing refuses calls once the gateway is being shut down.
func (g *Gateway) refusing(h farcall.Handler) farcall.Handler {
	return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		if g.draining.Load() {
			return nil, errDraining()
		}
		return h.ServeRPC(ctx, req)
	})
}

func wantsWebSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

func (g *Gateway) wsOptions(subprotocols ...string) *wsrpc.Options {
	return &wsrpc.Options{
		MaxMessage: g.opts.MaxMessage, MessageTimeout: g.opts.FrameTimeout,
		Budget: g.budget(), Subprotocols: subprotocols, Origins: g.opts.Origins, Hosts: anyHost(),
	}
}

// ServeStream serves a connection that is no HTTP until it ends, or the gateway
// does. Its first message says whether it is one of MCP; anything else is
// JSON-RPC for the only server that there is. Records name the connection after
// c.Transport: "tcp", "unix", "stdio". The rest of c is for the guard.
func (g *Gateway) ServeStream(t farcall.Transport, c *guard.Conn) {
	done := make(chan struct{})
	o := g.named(c.Transport, c.Remote, c.At)
	o.Budget = g.Budget(c)
	c = g.joined(t, c)
	o.Interceptors = g.shield.interceptors(c, o.Interceptors)
	g.run(t, func(ctx context.Context) {
		defer close(done)
		g.serveStream(ctx, t, o, c)
	})
	<-done
}

func (g *Gateway) serveStream(
	ctx context.Context, t farcall.Transport, o *farcall.Options, c *guard.Conn,
) {
	p := g.plan.Load()
	if len(p.order) == 1 && p.order[0].mcp == nil {
		p.order[0].pipe(ctx, t, o, c)
		return
	}
	isMCP := true
	if len(p.order) != 1 || p.order[0].passesAll(p) {
		stop := context.AfterFunc(ctx, func() { _ = t.Close() })
		again, frame, err := port.First(t)
		if !stop() || err != nil && frame == nil {
			_ = t.Close() // nothing was asked, nothing is answered
			return
		}
		t, isMCP = again, err == nil && port.SpeaksMCP(frame)
	}
	if !isMCP && len(p.order) == 1 && p.order[0].passesAll(p) {
		p.order[0].pipe(ctx, t, o, c)
		return
	}
	o.V1 = false                              // no revision has it
	g.endpoint("").serve(ctx, t, o, c.Remote) // it says what is wrong with what is no MCP
}

// serve serves a connection of MCP from an address.
func (e *endpoint) serve(
	ctx context.Context, t farcall.Transport, o *farcall.Options, remote string,
) {
	ctx = context.WithValue(ctx, owner.ContextKey{}, owner.Connection(o.Conn, remote))
	_ = mcp.Serve(ctx, e.server, t, o) // its error is the connection's: it broke
}

// run serves a connection in a goroutine that Shutdown waits for.
func (g *Gateway) run(t farcall.Transport, serve func(ctx context.Context)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		go func() { _ = t.Close(); serve(g.serving) }()
		return
	}
	g.conns.Go(func() { serve(g.serving) })
}

// noPath answers a path that is not served, in the form that a JSON-RPC client
// can read.
func noPath(w http.ResponseWriter, hint string) {
	onhttp.Refuse(w, http.StatusNotFound,
		&jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "No such path: " + hint})
}

// admission asks about what comes over a connection that is carried to a server as it is: who sends
// it is known by the connection, or by the signature of the message.
func (s *shield) admission(ctx context.Context, upstream string) raw.Admission {
	conn, _ := ctx.Value(connKey{}).(*guard.Conn) // nil: unauthenticated
	ask := s.Identify(
		conn)(farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		return s.admit(ctx, upstream, req.Method, req.Params)
	}))
	return func(method string, params jsonrpc.Raw) (func(jsonrpc.Raw, error), error) {
		got, err := ask.ServeRPC(ctx, &farcall.Request{Method: method, Params: params})
		done, _ := got.(func(jsonrpc.Raw, error))
		return done, err
	}
}

// A Gateway is what an rpc.Server serves: see rpc.ServeOptions.
var _ rpc.Service = (*Gateway)(nil)

// Accept implements [rpc.Service].
func (g *Gateway) Accept(conn net.Conn) rpc.Accepted {
	c := guard.ConnOver(conn)
	return rpc.Accepted{
		MaxMessage: g.MaxMessage(context.Background(), c), //nolint:forbidigo // it looks at the certificate only
		Budget:     g.Budget(c),
		Serve: func(t farcall.Transport) <-chan struct{} {
			g.ServeStream(t, c)
			return nil
		},
	}
}

// Policy implements [rpc.Service]: it is that of the guard of the configuration as it is now.
func (g *Gateway) Policy() rpc.Policy {
	if c := g.plan.Load().config.Guard; c != nil {
		return c
	}
	return nil
}
