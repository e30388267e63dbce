package gateway

import (
	"context"
	"net"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/rpc"
)

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
