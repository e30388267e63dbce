package gateway

import (
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/admin"
	"github.com/farcall-dev/farcall/gateway/internal/pin"
	"github.com/farcall-dev/farcall/gateway/internal/route"
)

// status is what the page shows.
func (g *Gateway) status() admin.Status {
	p := g.plan.Load()
	st := admin.Status{
		Name: p.config.name(), Version: g.opts.Version, Since: g.begun, Listen: p.config.Listen,
		Draining: g.draining.Load(), Suspended: g.suspended.count(),
		Calls: g.edge.calls.Load(), Errors: g.edge.failed.Load(),
	}
	g.mu.Lock()
	for _, e := range g.endpoints {
		st.Sessions += e.http.Sessions()
	}
	g.mu.Unlock()
	for _, s := range p.order {
		u := s.status(p)
		st.InFlight += u.InFlight
		st.Upstreams = append(st.Upstreams, u)
	}
	return st
}

func (s *server) status(p *plan) admin.UpstreamStatus {
	c := s.cfg.filled("")
	u := admin.UpstreamStatus{Name: c.Name, Target: c.Target(), Profile: c.Profile, Lifetime: c.Lifetime, State: "idle"}
	if s.mcp != nil {
		st := s.mcp.Status()
		u.State, u.Since, u.Revision, u.Server = st.State, st.Since, st.Revision, strings.TrimSpace(st.Name+" "+st.Version)
		u.Connections, u.InFlight, u.Queued = st.Connections, st.InFlight, st.Queued
		u.Retries, u.Dropped = int64(st.Retries), int64(st.Dropped)
		u.Calls, u.Errors, u.P50, u.P99, u.LastError = int64(st.Calls), int64(st.Errors), st.LatencyP50, st.LatencyP99, st.LastError
		u.Tools = s.tools(p)
	}
	if s.raw != nil {
		st := s.raw.Status()
		u.InFlight, u.Calls, u.Errors = u.InFlight+st.InFlight, u.Calls+int64(st.Calls), u.Errors+int64(st.Errors)
		u.Connections, u.Dropped, u.Garbage = u.Connections+st.Connections, u.Dropped+int64(st.Dropped), u.Garbage+int64(st.Garbage)
		if u.State == "idle" { // as MCP, or it is not an MCP server
			u.State, u.Since, u.P50, u.P99, u.LastError = st.State, st.Since, st.LatencyP50, st.LatencyP99, st.LastError
		}
	}
	if s.held != nil {
		u.State, u.Since, u.LastError = s.held.state(), s.held.since, ""
		if u.State == stateDraining {
			before := s.held.before.status(p)
			u.InFlight, u.Queued, u.Children, u.Stderr = before.InFlight, before.Queued, before.Children, before.Stderr
			return u
		}
	}
	if s.children != nil {
		st := s.children.Stats()
		u.Garbage += int64(st.Garbage)
		u.Children, u.Restarts, u.Stderr = st.Running, int(st.Restarts), st.LastStderr
	}
	return u
}

// tools are those that are known, without asking the server, and whatever is
// blocked.
func (s *server) tools(p *plan) []admin.ToolStatus {
	var all []admin.ToolStatus
	for _, e := range p.all.Entries(route.Tools) {
		if e.Source == s.cfg.Name {
			t := admin.ToolStatus{Name: e.Name, Shown: e.Shown}
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
		all = append(all, admin.ToolStatus{Name: name, Blocked: "it was " + c.Kind + " since it was pinned", Diff: c.Diff})
	}
	slices.SortFunc(all, func(a, b admin.ToolStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}
