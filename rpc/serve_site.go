package rpc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A site is the Service of a handler, with MCP and a page beside it.
type site struct {
	o      *ServeOptions
	conns  *conns
	rpc    http.Handler                // POST /rpc
	stream http.Handler                // GET /rpc/stream
	ws     http.Handler                // GET /rpc and /rpc/ws, to be a WebSocket
	mcp    http.Handler                // /mcp, /sse and /messages; nil: there is no MCP
	mcpWS  http.Handler                // GET /mcp, to be a WebSocket
	endMCP func(context.Context) error // ends the sessions of mcp
	names  origin.Policy               // of this server; the handlers above take every name
	web    http.Handler                // what is guarded
	open   http.Handler                // what is for everybody

	draining atomic.Bool
}

// newSite makes the handlers of the paths. Records tell HTTP and HTTPS apart, so each has its own
// handler.
func newSite(h farcall.Handler, o *ServeOptions) *site {
	s := &site{o: o, conns: newConns(h, o), names: origin.Policy{Hosts: o.Hosts}}
	requests := o.rpc()
	requests.OnRecord = overHTTP(requests.OnRecord)
	if o.Guard != nil {
		o.Guard.Requests(&requests)
	}
	anyHost := []string{"*"} // the site has looked at the host
	options := func(transport string) *httprpc.Options {
		c := requests
		c.Transport = transport
		return &httprpc.Options{
			MaxMessage: o.MaxMessage, Gzip: o.Gzip, RPC: &c, Hosts: anyHost,
			Origins: o.Origins,
		}
	}
	s.rpc = bySecurity(httprpc.NewHandler(h, options("http")), httprpc.NewHandler(h, options("https")))
	s.stream = bySecurity(httprpc.NewStreamHandler(h, options("sse")),
		httprpc.NewStreamHandler(h, options("sse+tls")))
	ws := func(isMCP func([]byte) bool, subprotocols ...string) http.Handler {
		return wsrpc.NewHandler(func(t farcall.Transport, r *http.Request) {
			s.conns.upgrade(t, r, isMCP)
		}, &wsrpc.Options{
			MaxMessage: o.MaxMessage, MessageTimeout: o.FrameTimeout, Budget: requests.Budget,
			Hosts: anyHost, Origins: o.Origins, Subprotocols: subprotocols,
		})
	}
	s.ws = ws(port.SpeaksMCP)
	if o.MCP != nil {
		s.mcpWS = ws(func([]byte) bool { return true }, "mcp")
		c := requests
		c.V1 = false // no revision has it
		s.mcp, s.endMCP = o.MCP.Routes(&c, o.MaxMessage, o.Origins)
	}
	s.open = http.HandlerFunc(s.route)
	s.web = s.open
	if o.Guard != nil {
		s.web, s.open = o.Guard.HTTP(s.web), o.Guard.Public(s.open)
	}
	return s
}

// Accept implements Service.
func (s *site) Accept(conn net.Conn) Accepted { return s.conns.accept(conn) }

// Policy implements Service.
func (s *site) Policy() Policy {
	if s.o.Guard == nil {
		return nil
	}
	return s.o.Guard
}

// Shutdown implements Service.
func (s *site) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	var errs [2]error
	var wg sync.WaitGroup
	if s.o.MCP != nil {
		s.o.MCP.Close() // subscriptions end before their connections
		wg.Go(func() { errs[0] = s.endMCP(ctx) })
	}
	wg.Go(func() { errs[1] = s.conns.shutdown(ctx) })
	wg.Wait()
	return errors.Join(errs[:]...)
}

// ServeHTTP implements http.Handler. Probes and the page need no credentials.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isProbe(r.URL.Path) || s.hasPage(r.URL.Path) {
		s.open.ServeHTTP(w, r)
		return
	}
	s.web.ServeHTTP(w, r)
}

// hasPage reports whether the page serves a path.
func (s *site) hasPage(path string) bool {
	if s.o.Page == nil || s.taken(path) {
		return false
	}
	page, some := s.o.Page.(interface{ Has(path string) bool })
	return !some || page.Has(path)
}

// taken reports whether a path is one of the protocols.
func (s *site) taken(path string) bool {
	switch path {
	case "/rpc", "/rpc/stream", "/rpc/ws":
		return true
	case "/mcp", "/sse", "/messages":
		return s.mcp != nil
	}
	// The guard has metadata there (RFC 9728).
	return isProbe(path) || s.o.Guard != nil && strings.HasPrefix(path, "/.well-known/oauth-")
}

// Fast reports whether a path takes messages by POST.
func (s *site) Fast(path string) bool {
	return path == "/rpc" || path == "/mcp" && s.mcp != nil
}

// route serves a request that the guard has let pass.
func (s *site) route(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if err := s.names.CheckHost(r); err != nil && !isProbe(path) {
		onhttp.Refuse(w, http.StatusForbidden,
			&jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: "Forbidden: " + err.Error()})
		return
	}
	upgrade := r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
	switch {
	case path == "/rpc" && !upgrade:
		s.rpc.ServeHTTP(w, r)
	case path == "/rpc", path == "/rpc/ws":
		s.ws.ServeHTTP(w, r)
	case path == "/rpc/stream":
		s.stream.ServeHTTP(w, r)
	case path == "/mcp" && upgrade && s.mcp != nil:
		s.mcpWS.ServeHTTP(w, r)
	case path == "/healthz":
		onhttp.Probe(w, http.StatusOK, "ok")
	case path == "/readyz":
		s.serveReady(w)
	case s.taken(path) && s.mcp != nil:
		s.mcp.ServeHTTP(w, r)
	case s.hasPage(path):
		s.o.Page.ServeHTTP(w, r)
	default:
		s.notFound(w)
	}
}

// serveReady answers whether calls are accepted.
func (s *site) serveReady(w http.ResponseWriter) {
	if s.draining.Load() {
		onhttp.Probe(w, http.StatusServiceUnavailable, "draining")
		return
	}
	if g, ok := s.o.Guard.(interface{ Ready() error }); ok {
		if err := g.Ready(); err != nil {
			onhttp.Probe(w, http.StatusServiceUnavailable, err.Error())
			return
		}
	}
	onhttp.Probe(w, http.StatusOK, "ready")
}

// isProbe reports whether a path says no more than whether the process is there: probes may use any
// host.
func isProbe(path string) bool { return path == "/healthz" || path == "/readyz" }

// notFound answers a path that is not served, in the form that a JSON-RPC client can read.
func (s *site) notFound(w http.ResponseWriter) {
	text := "No such path; JSON-RPC is posted to /rpc"
	if s.mcp != nil {
		text += ", MCP to /mcp"
	}
	onhttp.Refuse(w, http.StatusNotFound, &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: text})
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

// nameHTTPConns numbers the connections that speak HTTP, for records.
func nameHTTPConns() func(context.Context, net.Conn) context.Context {
	var last atomic.Int64
	return func(ctx context.Context, c net.Conn) context.Context {
		name := "http-" + strconv.FormatInt(last.Add(1), 10)
		return context.WithValue(ctx, owner.ConnKey{}, &owner.Conn{
			Name: name, Remote: c.RemoteAddr().String(),
			Owner: owner.Connection(name, c.RemoteAddr().String()), At: c.LocalAddr(),
		})
	}
}

// overHTTP names the connection that records are about, as nameHTTPConns has.
func overHTTP(record func(context.Context, farcall.Record)) func(context.Context, farcall.Record) {
	if record == nil {
		return nil
	}
	return func(ctx context.Context, r farcall.Record) {
		if r.Conn == "" {
			r.Conn = owner.ConnFrom(ctx).Name
		}
		record(ctx, r)
	}
}
