package mcp

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// This file is what a server of several protocols on one port asks of a Server: rpc.MCP is the
// interface.

// ServeTransport serves one connection, as the function [Serve] does, with its own options.
func (s *Server) ServeTransport(ctx context.Context, t farcall.Transport, o *farcall.Options) error {
	s.checkMade()
	return Serve(ctx, s, t, o)
}

// Routes returns a handler of /mcp, /sse and /messages, for a server that checks the Host header of
// each request itself. Without an Owner in ServerOptions or its HTTP, a session belongs to the
// caller that a guard has authenticated. end ends the sessions, as Shutdown of [mcphttp.Handler]
// does. o and the bounds take the place of those in ServerOptions.
func (s *Server) Routes(o *farcall.Options, maxMessage int, origins []string) (routes http.Handler, end func(context.Context) error) {
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
