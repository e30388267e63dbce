package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/gateway/internal/pin"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/internal/origin"
)

// serveStatus answers with the status as JSON.
func (g *Gateway) serveStatus(w http.ResponseWriter, r *http.Request) {
	control.ServeStatus(w, r, origin.Policy{Origins: g.opts.Origins, Hosts: anyHost()}, g.status)
}

// status is what /api/status says.
func (g *Gateway) status() *control.Status {
	p := g.plan.Load()
	st := &control.Status{Overview: control.Overview{
		Name: p.config.name(), Version: g.opts.Version, Since: g.begun, Listen: p.config.Listen,
		Draining: g.draining.Load(), Suspended: g.suspended.count(),
		Calls: g.edge.calls.Load(), Errors: g.edge.failed.Load(),
	}}
	g.mu.Lock()
	for _, e := range g.endpoints {
		st.Sessions += e.http.Sessions()
	}
	g.mu.Unlock()
	for _, s := range p.order {
		u := s.status(p)
		st.InFlight += u.InFlight
		st.Upstreams = append(st.Upstreams, *u)
	}
	return st
}

// bare is what the configuration says of an upstream.
func (u *Upstream) bare(state, reason string) control.Upstream {
	c := u.filled("")
	return control.Upstream{
		Name: c.Name, Target: c.Target(), Profile: c.Profile, Lifetime: c.Lifetime,
		State: state, Reason: reason,
	}
}

func (s *server) status(p *plan) *control.UpstreamStatus {
	u := &control.UpstreamStatus{Upstream: s.cfg.bare("idle", "")}
	if s.mcp != nil {
		st := s.mcp.Status()
		u.State, u.Since, u.Revision, u.Server = st.State, st.Since, st.Revision,
			strings.TrimSpace(st.Name+" "+st.Version)
		u.Connections, u.InFlight, u.Queued = st.Connections, st.InFlight, st.Queued
		u.Retries, u.Dropped = int64(st.Retries), int64(st.Dropped)
		u.Calls, u.Errors, u.LastError = int64(st.Calls), int64(st.Errors), st.LastError
		u.P50, u.P99 = st.LatencyP50.Seconds()*1000, st.LatencyP99.Seconds()*1000
		u.Tools = s.tools(p)
	}
	for _, t := range u.Tools {
		if t.Blocked != "" {
			u.Blocked++
		} else {
			u.Upstream.Tools++
		}
	}
	if s.raw != nil {
		st := s.raw.Status()
		u.InFlight, u.Calls, u.Errors = u.InFlight+st.InFlight, u.Calls+int64(st.Calls),
			u.Errors+int64(st.Errors)
		u.Connections, u.Dropped, u.Garbage = u.Connections+st.Connections, u.Dropped+int64(st.Dropped),
			u.Garbage+int64(st.Garbage)
		if u.State == "idle" { // as MCP, or it is not an MCP server
			u.State, u.Since, u.LastError = st.State, st.Since, st.LastError
			u.P50, u.P99 = st.LatencyP50.Seconds()*1000, st.LatencyP99.Seconds()*1000
		}
	}
	if s.held != nil {
		u.State, u.Since, u.LastError = s.held.state(), s.held.since, ""
		u.Reason = "an operator has disabled it"
		if u.State == stateDraining {
			before := s.held.before.status(p)
			u.InFlight, u.Queued, u.Stderr = before.InFlight, before.Queued, before.Stderr
			u.Processes, u.Children = before.Processes, before.Children
			return u
		}
	}
	if s.children != nil {
		st := s.children.Stats()
		u.Garbage += int64(st.Garbage)
		u.Processes, u.Children = st.Running, st.Running
		u.Restarts, u.Stderr = int(st.Restarts), st.LastStderr
	}
	return u
}

// tools are those that are known, without asking the server, and whatever is
// blocked.
func (s *server) tools(p *plan) []control.Tool {
	var all []control.Tool
	for _, e := range p.all.Entries(route.Tools) {
		if e.Source == s.cfg.Name {
			t := control.Tool{Name: e.Name, Shown: e.Shown}
			t.Description, _ = text(e.Item, "description")
			all = append(all, t)
		}
	}
	s.blocking.Lock()
	defer s.blocking.Unlock()
	for _, c := range s.blocked {
		name := c.Name
		if c.List != pin.Tools {
			name = c.What() + " " + name
		}
		all = append(all,
			control.Tool{Name: name, Blocked: "it was " + c.Kind + " since it was pinned", Diff: c.Diff})
	}
	slices.SortFunc(all, func(a, b control.Tool) int { return strings.Compare(a.Name, b.Name) })
	return all
}
