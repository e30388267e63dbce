package gateway

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/farcall-dev/farcall/gateway/internal/refs"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// calling is a call to be made at a server, and the context of that, which knows
// who calls.
type calling struct {
	callctx.Context
	upstream.Call

	client mcp.ClientInfo
	at     *server      // where it is made
	refs   *refs.Server // qualifies what the server there says; nil: it is shown as it is
	home   string       // of the task that is resumed: see Upstream.taskHome
	// the tool of tool search by which the tool is called; "": it is called directly
	via string
	// the caller does not see the tool that is called via another: the guard does not allow it
	// without arguments
	hidden bool
	// the arguments do not fit the form that is shown: the guard decides, and the tool is not called
	unfit bool
	// the task that goes on at the server when the gateway ends; nil: none does, so far
	kept  *keptTask
	asked *atomic.Bool  // its client was asked something; nil: that does not matter
	seen  *observe.Call // for the goroutine of the handler; nil: there is no observer
	tool  string        // that is called, by the name that the server has given
	signs bool          // the tool is the gateway's, and lets the caller sign in
	// schemas are those that call_tool has compiled; nil: each is compiled again.
	schemas *compiled
	// The caller has signed in on the way, and the call has begun again.
	signedIn bool
	output   *outputForm    // nil: its result is shown as it is
	hooks    *hooks         // that are about its tool; nil: none are
	asks     *[]guard.Asked // what they have said; for the audit
}

type callingKey struct{}

// ContextValue implements callctx.Values.
func (w *calling) ContextValue(key any) (any, bool) {
	_, ok := key.(callingKey)
	return w, ok
}

// derive makes a context the parent of the call's.
func (w *calling) derive(parent context.Context) *calling {
	w.Context = callctx.Over(parent, w)
	return w
}

// newCalling begins a call in the name of who calls.
func (g *Gateway) newCalling(ctx context.Context) *calling {
	w := (&calling{seen: observe.From(ctx), schemas: &g.schemas}).derive(ctx)
	if c := mcp.ClientFrom(ctx); c != nil {
		w.client = *c
	}
	w.Caller = callerOf(ctx, &w.client)
	return w
}

// notice tells the client with a call that has that context; one that is gone needs no telling.
func notice(ctx context.Context, method string, params jsonrpc.Raw) {
	if w, ok := ctx.Value(callingKey{}).(*calling); ok {
		params = w.refs.Down(refs.Params, method, params)
	}
	_ = relay.Notify(ctx, method, params)
}

func progress(ctx context.Context, params jsonrpc.Raw) {
	_ = relay.Notify(ctx, spec.NotificationProgress, params)
}

// caller says who calls.
func (*Gateway) caller(ctx context.Context) upstream.Caller {
	if w, ok := ctx.Value(callingKey{}).(*calling); ok {
		return w.Caller
	}
	var client mcp.ClientInfo
	if c := mcp.ClientFrom(ctx); c != nil {
		client = *c
	}
	return callerOf(ctx, &client)
}

func callerOf(ctx context.Context, c *mcp.ClientInfo) upstream.Caller {
	return upstream.Caller{
		Owner: owner.From(ctx), Session: c.Session, Info: c.InfoRaw,
		Capabilities: c.CapabilitiesRaw,
	}
}

// ownerOf returns what gives the text of the authenticated caller of a call, "" for any other. Nil:
// no caller is authenticated.
func (g *Gateway) ownerOf() func(ctx context.Context) string {
	switch {
	case g.shield != nil:
		return func(ctx context.Context) string { return guard.From(ctx).Owner() }
	case g.opts.Owner == nil:
		return nil
	}
	return func(ctx context.Context) string {
		r := mcphttp.RequestFrom(ctx)
		if r == nil {
			r, _ = ctx.Value(requestKey{}).(*http.Request) // of a WebSocket
		}
		if r == nil {
			return ""
		}
		return g.opts.Owner(r)
	}
}
