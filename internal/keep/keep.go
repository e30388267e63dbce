// Package keep keeps the last calls of clients that have failed, were refused or took long, for
// operators without a collector of traces.
package keep

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/health"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// A Call is one of a client that has failed, was refused or took long.
type Call struct {
	At               time.Time `json:"at" doc:"when it began"`
	Outcome          string    `json:"outcome" enum:"error,tool_error,refused,slow"`
	Method           string    `json:"method" doc:"as the client wrote it: any text"`
	Name             string    `json:"name,omitempty" doc:"tool, prompt or URI, as the client wrote it"`
	Upstream         string    `json:"upstream,omitempty"`
	Code             int       `json:"code,omitzero" doc:"of the error that was answered"`
	Error            string    `json:"error,omitempty" doc:"what was answered, with its private cause"`
	Took             float64   `json:"tookMs"`
	Queued           float64   `json:"queuedMs,omitzero" doc:"how much of it was spent waiting for a connection to the upstream"`
	Attempts         int       `json:"attempts,omitzero" doc:"how often it was made at the upstream"`
	Principal        string    `json:"principal,omitempty"`
	Decision         string    `json:"decision,omitempty" doc:"of the guard"`
	Client           string    `json:"client,omitempty" doc:"the name and version that the client says it has: any text"`
	Session          string    `json:"session,omitempty" doc:"as listSessions has it"`
	Address          string    `json:"address,omitempty"`
	Transport        string    `json:"transport"`
	Revision         string    `json:"revision,omitempty" doc:"of MCP, which the client speaks"`
	UpstreamRevision string    `json:"upstreamRevision,omitempty"`
	Trace            string    `json:"trace,omitempty" doc:"the id of its trace"`
}

// Calls are the calls that were kept.
type Calls struct {
	Calls []Call  `json:"calls" doc:"the newest first"`
	All   bool    `json:"all" doc:"whether these are the calls of all callers"`
	Slow  float64 `json:"slowMs" doc:"a call is slow when it takes longer: trace.slow of the configuration, or 5 seconds"`
}

const (
	most    = 100             // calls of each outcome
	longest = 300             // bytes of a text of such a call
	slow    = 5 * time.Second // is how long a call may take by default
)

// A Keeper keeps the last calls of each outcome, which has its own room, so that a flood of
// refusals does not displace what has failed. The zero value is ready, and keeps no slow calls.
type Keeper struct {
	slow atomic.Int64 // a time.Duration

	mu  sync.Mutex
	all map[string][]owned // by outcome, the newest last
}

// An owned call has the owner of its principal; "": it is not known.
type owned struct {
	Call

	owner string
}

// SetSlow says from when on a call is slow. 0: from 5 seconds on.
func (k *Keeper) SetSlow(d time.Duration) { k.slow.Store(int64(cmp.Or(d, slow))) }

// outcome is that by which a call is kept; "": it is not.
func (k *Keeper) outcome(c *observe.Call, refused bool) string {
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
	case c.Method == spec.MethodSubscriptionsListen || c.Method == health.Watch:
		return ""
	case slow > 0 && c.Took > slow:
		return "slow"
	}
	return ""
}

// Take keeps a call of an owner that has ended, or that reached no handler, when it is one to be
// kept: one that a client has made.
func (k *Keeper) Take(ctx context.Context, c *observe.Call, who string, refused bool) {
	outcome := k.outcome(c, refused)
	if outcome == "" || c.Outgoing || c.Notification {
		return
	}
	kept := owned{owner: who, Call: Call{
		At: c.Began, Outcome: outcome, Method: shortened(c.Method),
		Name: cmp.Or(c.Tool, c.Prompt, subjectOf(c)), Upstream: c.Upstream, Code: int(c.Code),
		Took: milliseconds(c.Took), Queued: milliseconds(c.Queued), Attempts: c.Attempts,
		Principal: c.Principal, Decision: c.Decision,
		Client:  shortened(strings.TrimSpace(c.ClientName + " " + c.ClientVersion)),
		Session: c.Session, Address: owner.ConnFrom(ctx).Remote, Transport: c.Transport,
		Revision: c.Revision, UpstreamRevision: c.UpstreamRevision,
	}}
	if r := mcphttp.RequestFrom(ctx); r != nil {
		kept.Address = r.RemoteAddr
	}
	if c.Err != nil {
		kept.Error = shortened(c.Err.Error())
	}
	if span := cmp.Or(c.Span, c.Caller); span.IsSet() {
		kept.Trace = hex.EncodeToString(span.Trace[:])
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[string][]owned{}
	}
	now := append(k.all[outcome], kept)
	k.all[outcome] = now[max(0, len(now)-most):]
}

// Observer returns an observer that keeps calls; ownerOf finds the owner of one, "" if it is not
// known. That of a nil Keeper is nil.
func (k *Keeper) Observer(ownerOf func(context.Context) string) *observe.Observer {
	if k == nil {
		return nil
	}
	return &observe.Observer{
		End:    func(ctx context.Context, c *observe.Call) { k.Take(ctx, c, ownerOf(ctx), false) },
		Refuse: func(ctx context.Context, c *observe.Call) { k.Take(ctx, c, ownerOf(ctx), true) },
	}
}

// subjectOf is the tool, prompt or resource that a call of MCP is about, as its client wrote it.
func subjectOf(c *observe.Call) string {
	params := scan.Member(c.Request, "params")
	return shortened(cmp.Or(scan.StringMember(params, "name"), scan.StringMember(params, "uri")))
}

// Newest returns what was kept, the newest first: of all owners, or of one that is known.
func (k *Keeper) Newest(all bool, who string) *Calls {
	slow := milliseconds(time.Duration(k.slow.Load()))
	found := &Calls{Calls: []Call{}, All: all, Slow: slow}
	k.mu.Lock()
	for _, calls := range k.all {
		for i := range calls {
			if all || who != "" && calls[i].owner == who {
				found.Calls = append(found.Calls, calls[i].Call)
			}
		}
	}
	k.mu.Unlock()
	slices.SortStableFunc(found.Calls, func(a, b Call) int { return b.At.Compare(a.At) })
	return found
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// shortened bounds a text, and copies it: what a call lends is not kept.
func shortened(text string) string {
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strings.ToValidUTF8(strings.Clone(text), "\uFFFD")
}
