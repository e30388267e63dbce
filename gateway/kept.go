package gateway

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/gateway/internal/supervise"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/keep"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// Calls implements control.Backend: it has the calls of all for a caller with the permission, and
// otherwise those of the same principal that came over HTTP.
func (o operator) Calls(ctx context.Context) *control.Calls {
	all := o.g.shield == nil ||
		o.g.shield.Visible(ctx, &guard.Call{Method: methodAdmin, Name: "calls"})
	return o.g.edge.kept.Newest(all, guard.From(ctx).Owner())
}

// edge counts what the clients of the gateway asked for and got, from a server, the guard, a limit
// or the gateway itself. What the gateway sends to its servers is not counted here, see
// [upstream.Status].
type edge struct {
	calls  atomic.Int64 // requests, without handshakes and pings
	failed atomic.Int64 // of them, those that were refused, or answered by an error or a failed tool
	kept   keep.Keeper
	usage  usage
}

// observer counts for e, and then tells also, which may be nil.
func (e *edge) observer(also *observe.Observer) *observe.Observer {
	return observe.Join(&observe.Observer{
		End:    func(ctx context.Context, c *observe.Call) { e.count(ctx, c, false) },
		Refuse: func(ctx context.Context, c *observe.Call) { e.count(ctx, c, true) },
	}, also)
}

// count counts the end of a call, or one that reached no handler. A call that its client gave up
// has not failed.
func (e *edge) count(ctx context.Context, c *observe.Call, refused bool) {
	if c.Outgoing || c.Notification {
		return
	}
	e.kept.Take(ctx, c, guard.From(ctx).Owner(), refused)
	// the connection
	about := []string{spec.MethodInitialize, spec.MethodServerDiscover, spec.MethodPing}
	if c.MCP && slices.Contains(about, c.Method) {
		return
	}
	e.calls.Add(1)
	e.usage.add(c)
	if c.ToolError || c.Code != 0 && c.Code != jsonrpc.Cancelled {
		e.failed.Add(1)
	}
}

// clientOptions are the options of connections and requests of clients.
func (g *Gateway) clientOptions() *farcall.Options {
	o := g.rpcOptions()
	o.Observer = g.edge.observer(o.Observer)
	return o
}

// Readings yields what the gateway measures when it is asked: the state of its servers, their
// children, queues and calls, which the page for operators shows, too. It is an iter.Seq; see
// Metrics.Read of package observe/metrics.
func (g *Gateway) Readings(yield func(observe.Reading) bool) {
	if !yield(observe.Reading{Name: "farcall_suspended", Value: float64(g.suspended.count())}) {
		return
	}
	if g.shield != nil {
		for r := range g.shield.Readings {
			if !yield(r) {
				return
			}
		}
	}
	for _, s := range g.plan.Load().order {
		for _, r := range s.readings() {
			r.Upstream = s.cfg.Name
			if !yield(r) {
				return
			}
		}
	}
}

// readings are those of a server, without its name.
func (s *server) readings() (all []observe.Reading) {
	add := func(name string, value float64) {
		all = append(all, observe.Reading{Name: name, Value: value})
	}
	states := func(name, now string, all []string) (of []observe.Reading) {
		for _, state := range all {
			r := observe.Reading{Name: name, State: state}
			if state == now {
				r.Value = 1
			}
			of = append(of, r)
		}
		return of
	}
	count := func(inFlight, connections int, calls, errors, dropped uint64) {
		add("farcall_upstream_inflight", float64(inFlight))
		add("farcall_upstream_connections", float64(connections))
		add("farcall_upstream_calls_total", float64(calls))
		add("farcall_upstream_errors_total", float64(errors))
		add("farcall_upstream_dropped_total", float64(dropped))
	}
	if s.mcp != nil {
		st := s.mcp.Status()
		now := st.State
		if s.held != nil {
			now = s.held.state()
		}
		all = append(all, states("farcall_upstream_state", now, []string{
			upstream.StateIdle, upstream.StateStarting, upstream.StateUp, upstream.StateDown,
			upstream.StateOpen, stateDraining, stateDisabled,
		})...)
		add("farcall_breaker_state", float64(st.Breaker))
		add("farcall_queued", float64(st.Queued))
		add("farcall_upstream_retries_total", float64(st.Retries))
		count(st.InFlight, st.Connections, st.Calls, st.Errors, st.Dropped)
	}
	if s.raw != nil { // readings of the same name add up
		st := s.raw.Status()
		count(st.InFlight, st.Connections, st.Calls, st.Errors, st.Dropped)
	}
	if s.children != nil {
		st := s.children.Stats()
		all = append(all,
			observe.Reading{Name: "farcall_children", State: "running", Value: float64(st.Running)},
			observe.Reading{Name: "farcall_children", State: "delayed", Value: float64(st.Delayed)})
		add("farcall_child_starts_total", float64(st.Starts))
		for cause, n := range st.Causes {
			all = append(all, observe.Reading{
				Name: "farcall_child_restarts_total", State: supervise.Cause(cause).String(), Value: float64(n),
			})
		}
		add("farcall_child_garbage_total", float64(st.Garbage))
	}
	return all
}

// observer is that of the calls to the server. Nil: there is none.
func (s *server) observer() *observe.Observer {
	return s.g.rpcOptions().Observer.Tag(func(c *observe.Call) { c.Upstream = s.cfg.Name })
}

// transport is how the server is reached, in records.
func (s *server) transport() string {
	switch {
	case s.children != nil:
		return "stdio"
	case s.target != nil:
		return s.target.Scheme
	}
	return "memory"
}

// queued tells the observer how long a call has waited for a connection to the server. Nil: there
// is no observer.
func (s *server) queued() func(time.Duration) {
	o := s.g.rpcOptions().Observer
	if o == nil || o.Close == nil {
		return nil
	}
	return func(took time.Duration) {
		o.Close(observe.Lifetime{Kind: observe.Queue, Upstream: s.cfg.Name, Took: took})
	}
}

// started tells the observer how long a child process took to start, and for which call. Nil: there
// is no observer, or no child process.
func (s *server) started() func(time.Duration, string) {
	o := s.g.rpcOptions().Observer
	if o == nil || o.Close == nil || s.children == nil {
		return nil
	}
	return func(took time.Duration, parent string) {
		l := observe.Lifetime{Kind: observe.Child, Upstream: s.cfg.Name, Took: took}
		l.Caller.SetParent(parent)
		o.Close(l)
	}
}

// restarted tells the observer that a process of the server was started in place of one that had
// ended.
func (s *server) restarted() {
	if o := s.g.rpcOptions().Observer; o != nil && o.Open != nil {
		o.Open(observe.Lifetime{Kind: observe.Restart, Upstream: s.cfg.Name})
	}
}

// observePiped tells the observer of a call that went by in a pipe, when it has ended. Nothing
// looks its method up, so it is not known.
func observePiped(ctx context.Context, o *observe.Observer, r *farcall.Record) {
	if o == nil {
		return
	}
	c := &observe.Call{
		Transport: r.Transport, Conn: r.Conn, ID: r.ID, Method: r.Method,
		Began:        time.Now().Add(-r.Latency),
		Notification: r.Notification, Batch: r.Batch, Outgoing: r.Outgoing,
	}
	if o.Traces {
		c.Caller.SetParent(farcall.TraceFrom(ctx).Parent)
	}
	if o.Start != nil {
		ctx = o.Start(ctx, c)
	}
	c.Code, c.Err, c.Took, c.BytesIn, c.BytesOut = r.Code, r.Err, r.Latency, r.BytesIn, r.BytesOut
	c.Request, c.Response = r.Request, r.Response
	if o.End != nil {
		o.End(ctx, c)
	}
}

// observeName tells the observer of the tool or prompt that a call is for, which is one that the
// gateway offers.
func (w *calling) observeName(kind, name string) {
	switch {
	case w.seen == nil:
	case kind == "tools":
		w.seen.Tool = name
	default:
		w.seen.Prompt = name
	}
}

// callAt makes a call at a server while its client waits, and tells the observer what it knows of
// that.
func (w *calling) callAt(s *server) (upstream.Result, error) {
	r, err := s.mcp.Call(w, &w.Call)
	if w.seen != nil {
		w.seen.Queued, w.seen.Attempts, w.seen.UpstreamRevision = w.Queued, w.Attempts, w.Spoken
	}
	return r, err
}
