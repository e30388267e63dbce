package mcp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall/internal/accept"
	"github.com/farcall-dev/farcall/internal/http1"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

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
	s.logger().WarnContext(ctx, "mcp: other machines can call every tool: the address is not loopback, and ListenAndServe has "+
		"neither TLS nor authentication; listen on 127.0.0.1, or serve mcphttp.NewHandler behind a guard and TLS", "address", addr.String())
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
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(o.RPC.CloseTimeout, drainTime))
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
