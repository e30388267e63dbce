package gateway

import (
	"context"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// edge counts what the clients of the gateway asked for and got, from a server, the guard, a limit
// or the gateway itself. What the gateway sends to its servers is not counted here, see
// [upstream.Status].
type edge struct {
	calls  atomic.Int64 // requests, without handshakes and pings
	failed atomic.Int64 // of them, those that were refused, or answered by an error or a failed tool
	kept   keeper
}

// observer counts for e, and then tells also, which may be nil.
func (e *edge) observer(also *observe.Observer) *observe.Observer {
	return observe.Join(&observe.Observer{
		End:    func(ctx context.Context, c *observe.Call) { e.count(ctx, c, false) },
		Refuse: func(ctx context.Context, c *observe.Call) { e.count(ctx, c, true) },
	}, also)
}

// count counts the end of a call, or one that reached no handler. A call that its client gave up has
// not failed.
func (e *edge) count(ctx context.Context, c *observe.Call, refused bool) {
	if c.Outgoing || c.Notification {
		return
	}
	e.kept.take(ctx, c, refused)
	if c.MCP && !counted(c.Method) {
		return
	}
	e.calls.Add(1)
	if c.ToolError || c.Code != 0 && c.Code != jsonrpc.Cancelled {
		e.failed.Add(1)
	}
}

// counted reports whether a method of MCP is a call of a client, and not about its connection.
func counted(method string) bool {
	switch method {
	case spec.MethodInitialize, spec.MethodServerDiscover, spec.MethodPing:
		return false
	}
	return true
}

// clientOptions are the options of connections and requests of clients.
func (g *Gateway) clientOptions() *farcall.Options {
	o := g.rpcOptions()
	o.Observer = g.edge.observer(o.Observer)
	return o
}
