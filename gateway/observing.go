package gateway

import (
	"context"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/supervise"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/observe"
)

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
	add := func(name string, value float64) { all = append(all, observe.Reading{Name: name, Value: value}) }
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

// queued tells the observer how long a call has waited for a connection to the server. Nil: there is
// no observer.
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
		Transport: r.Transport, Conn: r.Conn, ID: r.ID, Method: r.Method, Began: time.Now().Add(-r.Latency),
		Notification: r.Notification, Batch: r.Batch, Outgoing: r.Outgoing,
	}
	if o.Traces {
		c.Caller.SetParent(farcall.TraceFrom(ctx).Parent)
	}
	if o.Start != nil {
		ctx = o.Start(ctx, c)
	}
	c.Outcome = observe.Outcome{
		Code: r.Code, Err: r.Err, Took: r.Latency, BytesIn: r.BytesIn, BytesOut: r.BytesOut, Request: r.Request, Response: r.Response,
	}
	if o.End != nil {
		o.End(ctx, c)
	}
}

// observeTool tells the observer of the tool that a call is for, and of its server.
func observeTool(ctx context.Context, name, server string) {
	if seen := observe.From(ctx); seen != nil {
		seen.Tool, seen.Upstream = name, server
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
