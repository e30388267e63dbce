package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/page"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/playground"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/accept"
	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// service is what a port serves, over every transport.
type service interface { //nolint:interfacebloat // the port needs all of it, and there are two
	http.Handler
	// start begins to serve a connection that carries JSON texts, and serve serves
	// one to its end.
	start(t farcall.Transport, c *guard.Conn)
	serve(t farcall.Transport, c *guard.Conn)
	// MaxMessage bounds the messages of a connection whose other end is not known; 0:
	// it is known, or need not be. Budget is the memory for large ones.
	MaxMessage(ctx context.Context, c *guard.Conn) int
	Budget(c *guard.Conn) *farcall.Budget
	// drain takes no new calls and lets those in flight finish, as long as the
	// context lasts. What streams still have is over then.
	drain(ctx context.Context)
}

// server is a service and the addresses and streams where it is served.
type server struct {
	stderr     io.Writer
	tls        *tls.Config
	maxMessage int

	frameTimeout time.Duration
	accept       *accept.Options

	service service
	port    *port.Server
	proxies *forwarded.Proxies
	log     *slog.Logger
	ended   chan error // what was served has come to its end, with the reason
}

// newServer makes a service reachable. Nothing runs yet.
func (f *serveFlags) newServer(s service, log *slog.Logger, stderr io.Writer) *server {
	secure := f.certs.config()
	x := &server{proxies: f.proxies, log: log, stderr: stderr, tls: secure, maxMessage: int(f.maxMessage), frameTimeout: f.limits.frameTimeout, accept: f.acceptOptions(log), service: s, ended: make(chan error, 1)}
	x.port = port.New(port.Handler{
		HTTP: &http.Server{
			Handler:           hurried(f.proxies.Handler(s)),
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    64 << 10,
			ConnContext:       nameHTTPConns(),
			ErrorLog:          slog.NewLogLogger(handlerOf(log), slog.LevelWarn),
		},
		Stream: x.serveStream,
	}, &port.Options{TLS: secure, Plain: f.plain(), Logger: log})
	return x
}

// bodyTime is how long the body of a request may take where no handler says so: the server reads what is left of
// it before it sends an answer.
const bodyTime = 30 * time.Second

func hurried(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // it is supported
		}
		h.ServeHTTP(w, r)
	})
}

// toys is the playground, as a service.
type toys struct {
	*site
	play  *playground.Service
	mcp   *mcp.Server
	peers *peers
	guard *guard.Guard // nil: everybody may do everything
	web   http.Handler // what it guards
	open  http.Handler // what is for everybody
}

// playground puts the parts of the playground together. Nothing runs yet.
func (f *serveFlags) playground(log *slog.Logger, g *guard.Guard) (*toys, error) {
	html, err := page.New()
	if err != nil {
		return nil, err
	}
	mux := farcall.NewMux()
	mux.Info.Title = "farcall playground"
	mux.Info.Version = versionName()
	mux.Info.Description = "Methods to try JSON-RPC 2.0 with: arithmetic, text, streams, a clock that pushes, and failures of every kind."
	rpc := f.rpcOptions(log)
	s := &toys{play: playground.Register(mux, log), guard: g}
	s.mcp = s.play.MCP(mux, rpc, func(o *mcp.ServerOptions) {
		if g != nil {
			o.Owner = func(ctx context.Context) string { return guard.From(ctx).Owner() }
			o.Visible = func(ctx context.Context, kind, name string) bool { return mayUse(ctx, g, kind, name) }
		}
	})
	s.peers = newPeers(mux, s.mcp, rpc)
	s.peers.guard = g
	s.site = newSite(mux, intercepted(g, nil, rpc), html, s.peers, int(f.maxMessage), f.limits.frameTimeout, f.origins)
	s.names.Hosts = f.hosts
	s.web, s.open = guarded(g, s.site), http.Handler(s.site)
	if g != nil {
		s.open = g.Public(s.site)
	}
	return s, nil
}

func (f *serveFlags) rpcOptions(log *slog.Logger) farcall.Options {
	return farcall.Options{Details: f.details, V1: f.v1, Logger: slog.New(handlerOf(log)), OnRecord: recorder(log, f.logPayloads), Budget: f.limits.budget}
}

// ServeHTTP implements http.Handler. The page is for everybody: it has nothing but itself.
func (s *toys) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path := r.URL.Path; isProbe(path) || s.page.Has(path) {
		s.open.ServeHTTP(w, r)
		return
	}
	s.web.ServeHTTP(w, r)
}

func (s *toys) MaxMessage(ctx context.Context, c *guard.Conn) int {
	if s.guard == nil {
		return 0
	}
	return s.guard.MaxMessage(ctx, c)
}

func (s *toys) Budget(c *guard.Conn) *farcall.Budget { return s.peers.budget(c) }

func (s *toys) start(t farcall.Transport, c *guard.Conn) { s.peers.start(t, c) }

func (s *toys) serve(t farcall.Transport, c *guard.Conn) {
	if done := s.peers.open(t, c, speaksMCP); done != nil {
		<-done
	}
}

func (s *toys) drain(ctx context.Context) {
	s.draining.Store(true)
	s.mcp.Close() // subscriptions are told, before their connections go
	var wg sync.WaitGroup
	// The errors are the context's: time was up.
	wg.Go(func() { _ = s.site.mcp.Shutdown(ctx) })
	wg.Go(func() { s.peers.shutdown(ctx) })
	wg.Wait()
}

// newSite makes the handlers of the paths. Records tell HTTP and HTTPS apart,
// so each has a handler of its own; MCP has one for both (see ofRequest).
func newSite(h farcall.Handler, rpc farcall.Options, html *page.Page, conns *peers, maxMessage int, frameTimeout time.Duration, origins []string) *site {
	anyHost := []string{"*"} // the site has looked at the host
	options := func(transport string) *httprpc.Options {
		o := rpc
		o.Transport = transport
		return &httprpc.Options{MaxMessage: maxMessage, RPC: &o, Hosts: anyHost, Origins: origins}
	}
	mcpOptions := rpc
	mcpOptions.V1 = false // no revision has it
	mcpOptions.OnRecord = ofRequest(rpc.OnRecord)
	// A connection outlives the request that made it.
	upgrade := func(t farcall.Transport, r *http.Request) { conns.start(t, guard.ConnOf(r, secured("ws", r))) }       //nolint:contextcheck // as above
	upgradeMCP := func(t farcall.Transport, r *http.Request) { conns.startMCP(t, guard.ConnOf(r, secured("ws", r))) } //nolint:contextcheck // as above
	ws := func(subprotocols ...string) *wsrpc.Options {
		return &wsrpc.Options{MaxMessage: maxMessage, MessageTimeout: frameTimeout, Budget: rpc.Budget, Hosts: anyHost, Origins: origins, Subprotocols: subprotocols}
	}
	return &site{
		rpc: bySecurity(httprpc.NewHandler(h, options("http")), httprpc.NewHandler(h, options("https"))),
		stream: bySecurity(httprpc.NewStreamHandler(h, options("sse")),
			httprpc.NewStreamHandler(h, options("sse+tls"))),
		ws: wsrpc.NewHandler(upgrade, ws()),
		mcp: mcphttp.NewHandler(conns.mcp, &mcphttp.Options{
			MaxMessage: maxMessage, MessagesPath: messagesPath, RPC: &mcpOptions, Owner: sender, Hosts: anyHost, Origins: origins,
		}),
		mcpWS: wsrpc.NewHandler(upgradeMCP, ws("mcp")),
		page:  html,
	}
}

// sender returns the owner of the sessions that a request opens: "" without a guard, and for anonymous callers.
func sender(r *http.Request) string { return guard.From(r.Context()).Owner() }

// mayUse reports whether a caller may use something of the playground.
func mayUse(ctx context.Context, g *guard.Guard, kind, name string) bool {
	method := spec.MethodResourcesRead
	switch kind {
	case "tool":
		method = spec.MethodToolsCall
	case "prompt":
		method = spec.MethodPromptsGet
	}
	return g.Visible(ctx, &guard.Call{Method: method, Name: name, MCP: true})
}

func bySecurity(plain, secure http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			secure.ServeHTTP(w, r)
			return
		}
		plain.ServeHTTP(w, r)
	})
}

func secured(transport string, r *http.Request) string {
	if r.TLS != nil {
		return transport + "s"
	}
	return transport
}

// serveStream serves a connection that carries JSON texts.
func (s *server) serveStream(conn net.Conn, prefix []byte, header bool) {
	c, most := connected(conn), s.maxMessage
	//nolint:forbidigo // it looks at the certificate only
	if n := s.service.MaxMessage(context.Background(), c); n > 0 && (most <= 0 || n < most) {
		most = n
	}
	t := stream.New(conn, framing(header), &stream.Options{
		MaxMessage: most, Prefix: prefix, FrameTimeout: s.frameTimeout, Budget: s.service.Budget(c),
	})
	s.service.start(t, c)
}

func framing(header bool) stream.Framing {
	if header {
		return stream.Header
	}
	return stream.Detect
}

// addresses are where to listen.
func (f *serveFlags) addresses() []string {
	if len(f.listen) == 0 && !f.stdio {
		return []string{defaultAddress}
	}
	return f.listen
}

// start opens every address and returns when all of them accept connections.
func (s *server) start(ctx context.Context, f *serveFlags) error {
	var open []net.Listener
	for _, addr := range f.addresses() {
		l, err := listen(ctx, addr)
		if err != nil {
			for _, l := range open {
				_ = l.Close()
			}
			return err
		}
		open = append(open, l)
	}
	if f.listening != nil {
		f.listening.Store(&open)
	}
	for _, l := range open {
		l = accept.Listen(s.proxies.Listener(l, s.log), s.accept)
		go func() {
			if err := s.port.Serve(ctx, l); err != nil {
				s.end(err)
			}
		}()
	}
	for _, l := range open {
		fmt.Fprintln(s.stderr, readyLine(l, s.tls != nil))
	}
	if f.stdio {
		go func() { //nolint:contextcheck // a connection ends with its input, or when it is drained
			s.serveStdio()
			if len(open) == 0 {
				s.end(nil)
			}
		}()
	}
	return nil
}

// serveStdio serves standard input and output until the input ends. The first
// byte that is no white space tells a header, which begins with the C of
// Content-Length, from JSON texts.
func (s *server) serveStdio() {
	buf := make([]byte, 512)
	first, prefix := byte(0), buf[:0]
	for first == 0 {
		n, err := os.Stdin.Read(buf)
		prefix = buf[:n]
		if first = firstByte(prefix); err != nil {
			break
		}
	}
	c := &guard.Conn{Transport: "stdio", Local: true}
	t := stream.Stdio(framing(first|0x20 == 'c'), &stream.Options{
		MaxMessage: s.maxMessage, Prefix: prefix, FrameTimeout: s.frameTimeout, Budget: s.service.Budget(c),
	})
	s.service.serve(t, c)
}

func firstByte(p []byte) byte {
	for _, c := range p {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (s *server) end(err error) {
	select {
	case s.ended <- err:
	default: // it is ending already
	}
}

// drain accepts nothing more and lets the calls in flight finish, as long as
// the context lasts.
func (s *server) drain(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.port.Shutdown(ctx) }) // its error is the context's: time was up
	wg.Go(func() { s.service.drain(ctx) })
	wg.Wait()
}

// lockedWriter lets the log and the ready lines share standard error.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func handlerOf(log *slog.Logger) slog.Handler {
	if log == nil {
		return slog.DiscardHandler
	}
	return log.Handler()
}
