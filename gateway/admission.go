package gateway

import (
	"context"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/raw"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// admission asks about what comes over a connection that is carried to a server as it is: who sends
// it is known by the connection, or by the signature of the message.
func (s *shield) admission(ctx context.Context, upstream string) raw.Admission {
	conn, _ := ctx.Value(connKey{}).(*guard.Conn) // nil: unauthenticated
	ask := s.Identify(conn)(farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		return s.admit(ctx, upstream, req.Method, req.Params)
	}))
	return func(method string, params jsonrpc.Raw) (func(jsonrpc.Raw, error), error) {
		got, err := ask.ServeRPC(ctx, &farcall.Request{Method: method, Params: params})
		done, _ := got.(func(jsonrpc.Raw, error))
		return done, err
	}
}
