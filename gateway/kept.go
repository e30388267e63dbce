package gateway

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/guard"
	probes "github.com/farcall-dev/farcall/internal/health"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

const (
	maxKept     = 100             // calls of each outcome
	longestKept = 300             // bytes of a text of such a call
	slowCall    = 5 * time.Second // is how long a call may take where the configuration does not say
)

// A keeper keeps the last calls of clients that have failed, were refused or took long, for
// operators without a collector of traces. Each outcome has its own room, so that a flood of
// refusals does not displace what has failed. The zero value is ready, and keeps no slow calls.
type keeper struct {
	slow atomic.Int64 // a time.Duration

	mu  sync.Mutex
	all map[string][]keptCall // by outcome, the newest last
}

// A keptCall is a call with the owner of its principal; "": it is not known.
type keptCall struct {
	control.Call

	owner string
}

// setSlow takes from a configuration from when on a call is slow.
func (k *keeper) setSlow(c *Config) { k.slow.Store(int64(cmp.Or(c.Trace.Slow, slowCall))) }

// outcomeKept is the outcome by which a call is kept; "": it is not.
func (k *keeper) outcomeKept(c *observe.Call, refused bool) string {
	slow := time.Duration(k.slow.Load())
	switch {
	case c.Code == jsonrpc.Cancelled:
		return ""
	case refused || c.Decision == "denied" || c.Decision == "limited":
		return "refused"
	case c.Code != 0:
		return "error"
	case c.ToolError:
		return "tool_error"
	case slow > 0 && c.Took > slow && c.Method != spec.MethodSubscriptionsListen && c.Method != probes.Watch:
		return "slow"
	}
	return ""
}

// take keeps a call that has ended, or that reached no handler, when it is one to be kept.
func (k *keeper) take(ctx context.Context, c *observe.Call, refused bool) {
	outcome := k.outcomeKept(c, refused)
	if outcome == "" {
		return
	}
	kept := keptCall{owner: guard.From(ctx).Owner(), Call: control.Call{
		At: c.Began, Outcome: outcome, Method: shortened(c.Method), Name: cmp.Or(c.Tool, c.Prompt, subjectOf(c)), Upstream: c.Upstream, Code: int(c.Code),
		Took: milliseconds(c.Took), Queued: milliseconds(c.Queued), Attempts: c.Attempts, Principal: c.Principal, Decision: c.Decision,
		Client:  shortened(strings.TrimSpace(c.ClientName + " " + c.ClientVersion)),
		Session: c.Session, Address: owner.ConnFrom(ctx).Remote, Transport: c.Transport, Revision: c.Revision, UpstreamRevision: c.UpstreamRevision,
	}}
	if r := mcphttp.RequestFrom(ctx); r != nil {
		kept.Address = r.RemoteAddr
	}
	if c.Err != nil {
		kept.Error = shortened(c.Err.Error())
	}
	if span := cmp.Or(c.Span, c.Caller); span != (observe.Span{}) {
		kept.Trace = hex.EncodeToString(span.Trace[:])
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[string][]keptCall{}
	}
	now := append(k.all[outcome], kept)
	k.all[outcome] = now[max(0, len(now)-maxKept):]
}

// subjectOf is the tool, prompt or resource that a call of MCP is about, as its client wrote it.
func subjectOf(c *observe.Call) string {
	params := scan.Member(c.Request, "params")
	name, _ := text(params, "name")
	uri, _ := text(params, "uri")
	return shortened(cmp.Or(name, uri))
}

// newest returns what was kept of the owners that sees reports true for, the newest first.
func (k *keeper) newest(sees func(owner string) bool) []control.Call {
	all := []control.Call{}
	k.mu.Lock()
	for _, calls := range k.all {
		for i := range calls {
			if sees(calls[i].owner) {
				all = append(all, calls[i].Call)
			}
		}
	}
	k.mu.Unlock()
	slices.SortStableFunc(all, func(a, b control.Call) int { return b.At.Compare(a.At) })
	return all
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// shortened bounds a text, and copies it: what a call lends is not kept.
func shortened(text string) string {
	if len(text) > longestKept {
		text = text[:longestKept] + "…"
	}
	return strings.ToValidUTF8(strings.Clone(text), "\uFFFD")
}

// Calls implements control.Backend: it has the calls of all for a caller with the permission, and
// otherwise those of the same principal that came over HTTP.
func (o operator) Calls(ctx context.Context) *control.Calls {
	mine, k := guard.From(ctx).Owner(), &o.g.edge.kept
	found := &control.Calls{
		All:  o.g.shield == nil || o.g.shield.Visible(ctx, &guard.Call{Method: methodAdmin, Name: "calls"}),
		Slow: milliseconds(time.Duration(k.slow.Load())),
	}
	found.Calls = k.newest(func(owner string) bool { return found.All || mine != "" && owner == mine })
	return found
}

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
