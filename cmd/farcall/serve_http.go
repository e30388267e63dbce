package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/farcall-dev/farcall/cmd/farcall/internal/page"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// messagesPath is where clients of HTTP+SSE post; /sse tells them.
const messagesPath = "/messages"

// site is what the port serves over HTTP.
type site struct {
	rpc    http.Handler     // POST /rpc
	stream http.Handler     // GET /rpc/stream
	ws     http.Handler     // GET /rpc and /rpc/ws, to be a WebSocket
	mcp    *mcphttp.Handler // /mcp, /sse and /messages
	mcpWS  http.Handler     // GET /mcp, to be a WebSocket
	page   *page.Page
	names  origin.Policy // of this server; the handlers above take every name

	draining atomic.Bool
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.names.CheckHost(r); err != nil && !isProbe(r.URL.Path) {
		refuseHTTP(w, http.StatusForbidden, &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: "Forbidden: " + err.Error()})
		return
	}
	switch path := r.URL.Path; path {
	case "/rpc":
		if wantsWebSocket(r) {
			s.ws.ServeHTTP(w, r)
			return
		}
		s.rpc.ServeHTTP(w, r)
	case "/rpc/stream":
		s.stream.ServeHTTP(w, r)
	case "/rpc/ws":
		s.ws.ServeHTTP(w, r)
	case "/mcp":
		if wantsWebSocket(r) {
			s.mcpWS.ServeHTTP(w, r)
			return
		}
		s.mcp.ServeHTTP(w, r)
	case "/sse":
		s.mcp.ServeSSE(w, r)
	case messagesPath:
		s.mcp.ServeMessages(w, r)
	case "/healthz":
		status(w, http.StatusOK, "ok")
	case "/readyz":
		if s.draining.Load() {
			status(w, http.StatusServiceUnavailable, "draining")
			return
		}
		status(w, http.StatusOK, "ready")
	default:
		if s.page.Has(path) {
			s.page.ServeHTTP(w, r)
			return
		}
		notFound(w)
	}
}

func wantsWebSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// isProbe reports whether a path says no more than whether the process is there: probes may use any host.
func isProbe(path string) bool { return path == "/healthz" || path == "/readyz" }

// status answers a probe.
func status(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}

// notFound answers a path that is not served, in the form that a JSON-RPC
// client can read.
func notFound(w http.ResponseWriter) {
	refuseHTTP(w, http.StatusNotFound, &jsonrpc.Error{
		Code:    jsonrpc.MethodNotFound,
		Message: "No such path; JSON-RPC is posted to /rpc, MCP to /mcp",
	})
}

func refuseHTTP(w http.ResponseWriter, status int, e *jsonrpc.Error) {
	body := jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), e)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
	_, _ = io.WriteString(w, "\n")
}

type httpConnKey struct{}

// nameHTTPConns numbers the connections that speak HTTP, for the log.
func nameHTTPConns() func(context.Context, net.Conn) context.Context {
	var last atomic.Int64
	return func(ctx context.Context, c net.Conn) context.Context {
		name := "http-" + strconv.FormatInt(last.Add(1), 10)
		ctx = context.WithValue(ctx, callerKey{}, owner.Connection(name, c.RemoteAddr().String()))
		return context.WithValue(ctx, httpConnKey{}, name)
	}
}

// httpConn is the name of the connection that a request came over, or "".
func httpConn(ctx context.Context) string {
	name, _ := ctx.Value(httpConnKey{}).(string)
	return name
}
