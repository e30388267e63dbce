package mcp

import (
	"context"
	"errors"
	"slices"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// ServeRPC serves a message that belongs to no session: a request of the modern
// era, which says in its _meta all that there is to know.
func (s *Server) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	s.checkMade()
	if s.intercepted == nil {
		return s.serve(ctx, req)
	}
	return s.intercepted.ServeRPC(callctx.WithValue(ctx, entryKey{}, s), req)
}

// ServeRPC serves what the client sends.
func (x *session) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	if x.srv.intercepted == nil {
		return x.serve(ctx, req)
	}
	return x.srv.intercepted.ServeRPC(callctx.WithValue(ctx, entryKey{}, x), req)
}

// intercept wraps what the server serves in the interceptors of its options. They
// are the server's and not the connection's, so that no way to mount it leaves
// them out.
func (s *Server) intercept() {
	if s.opts.RPC == nil || len(s.opts.RPC.Interceptors) == 0 {
		return
	}
	s.intercepted = farcall.HandlerFunc(s.afterInterceptors)
	for _, wrap := range slices.Backward(s.opts.RPC.Interceptors) {
		s.intercepted = wrap(s.intercepted)
	}
}

var errLostEntry = errors.New("mcp: an interceptor passed on a context that does not derive from its own; derive it, so that its values remain")

func (s *Server) afterInterceptors(ctx context.Context, req *farcall.Request) (any, error) {
	switch e := ctx.Value(entryKey{}).(type) {
	case *Server:
		if e == s {
			return s.serve(ctx, req)
		}
	case *session:
		if e.srv == s {
			return e.serve(ctx, req)
		}
	}
	return nil, errLostEntry
}

// An entryKey has, in the context of interceptors, where a message belongs past them: to a
// *session, or it stands alone at a *Server.
type entryKey struct{}

// HTTPOptions returns a copy of ServerOptions.HTTP, with what ServerOptions.RPC
// and Logger say about its connections. mcphttp.NewHandler uses it: see
// [mcphttp.Configured].
func (s *Server) HTTPOptions() *mcphttp.Options {
	s.checkMade()
	var o mcphttp.Options
	if s.opts.HTTP != nil {
		o = *s.opts.HTTP
	}
	if s.trace != nil {
		o.Trace = s.trace
	}
	if len(o.Keys) == 0 {
		o.Keys = s.opts.Keys
	}
	switch {
	case o.RPC == nil:
		o.RPC = s.rpcOptions()
	case o.RPC.Logger == nil:
		rpc := *o.RPC
		rpc.Logger = s.rpcOptions().Logger
		o.RPC = &rpc
	}
	return &o
}

// Owner returns ServerOptions.Owner.
func (s *Server) Owner() func(context.Context) string { return s.opts.Owner }

// rpcOptions are the options of connections. The interceptors are not among
// them: the server runs them itself.
func (s *Server) rpcOptions() *farcall.Options {
	o := farcall.Options{}
	if s.opts.RPC != nil {
		o = *s.opts.RPC
	}
	o.Interceptors = nil
	if o.Logger == nil {
		o.Logger = s.opts.Logger
	}
	return &o
}
