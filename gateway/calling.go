package gateway

import (
	"context"

	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// calling is a call to be made at a server, and the context of that, which knows
// who calls.
type calling struct {
	context.Context //nolint:containedctx // it is a context itself
	upstream.Call

	client *mcp.ClientInfo
	home   string    // of the task that is resumed: see Upstream.taskHome
	kept   *keptTask // the task that goes on at the server when the gateway ends; nil: none does
}

type callingKey struct{}

// Value implements context.Context.
func (w *calling) Value(key any) any {
	if _, ok := key.(callingKey); ok {
		return w
	}
	return w.Context.Value(key)
}

// AfterFunc lets package context derive from this context without a goroutine.
func (w *calling) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(w.Context, f) }

// newCalling begins a call in the name of who calls.
func (g *Gateway) newCalling(ctx context.Context) *calling {
	w := &calling{Context: ctx, client: mcp.ClientFrom(ctx)}
	w.Caller = g.callerOf(ctx, w.client)
	return w
}

// notice tells the client whose call has that context; one that is gone needs no telling.
func notice(ctx context.Context, method string, params jsonrpc.Raw) {
	_ = relay.Notify(ctx, method, params)
}

func progress(ctx context.Context, params jsonrpc.Raw) {
	_ = relay.Notify(ctx, spec.NotificationProgress, params)
}

// caller says who calls.
func (g *Gateway) caller(ctx context.Context) upstream.Caller {
	if w, ok := ctx.Value(callingKey{}).(*calling); ok {
		return w.Caller
	}
	return g.callerOf(ctx, mcp.ClientFrom(ctx))
}

func (g *Gateway) callerOf(ctx context.Context, c *mcp.ClientInfo) upstream.Caller {
	who := upstream.Caller{Owner: owner.From(ctx)}
	if c != nil {
		who.Session, who.Info, who.Capabilities = c.Session, c.InfoRaw, c.CapabilitiesRaw
	}
	return who
}
