package mcp

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// headerTime bounds how long a client may take for the headers of a request.
const headerTime = 10 * time.Second

// ListenAndServe serves every revision over HTTP until the context ends: /mcp
// (Streamable HTTP), and for clients of 2024-11-05 /sse and /messages. Then calls
// in flight are finished, for as long as ServerOptions.RPC.CloseTimeout (default
// 5 s), and it returns nil.
//
// Web pages of other hosts are refused: see [mcphttp.Options].Origins.
func (s *Server) ListenAndServe(ctx context.Context, addr string) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return s.serveHTTP(ctx, l)
}

func (s *Server) serveHTTP(ctx context.Context, l net.Listener) error {
	o := mcphttp.Options{}
	if s.opts.HTTP != nil {
		o = *s.opts.HTTP
	}
	if o.RPC == nil {
		o.RPC = s.rpcOptions()
	}
	h := mcphttp.NewHandler(s, &o)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.HandleFunc("/sse", h.ServeSSE)
	mux.HandleFunc(cmp.Or(o.MessagesPath, "/messages"), h.ServeMessages)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "No such path: MCP is at /mcp", http.StatusNotFound)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTime}
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
	if server.Shutdown(limit) != nil {
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
