package gateway

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// linkNodes lets the nodes of a cluster forward requests to each other. A request goes as its
// client has sent it, and the guard of the node that answers authenticates it again. Only nonces
// are not claimed a second time: the node where it arrived has claimed them.
func (g *Gateway) linkNodes(c *Config) error {
	at := c.Cluster.CallsAt()
	if g.node == nil || at == "" {
		return nil
	}
	key, err := c.Cluster.Secret()
	if err != nil {
		return fmt.Errorf("gateway: cluster: key: %w", err)
	}
	err = g.node.Listen(at, key, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.draining.Load() {
			cluster.Moved(w)
			return
		}
		name := "node-" + strconv.FormatInt(g.connected.Add(1), 10)
		ctx := context.WithValue(forwarded.Vouch(r.Context()), owner.ConnKey{}, &owner.Conn{
			Name: name, Remote: r.RemoteAddr, Owner: owner.Connection(name, r.RemoteAddr),
		})
		g.web.ServeHTTP(w, r.WithContext(ctx))
	}))
	if err == nil {
		g.node.Meet(c.Cluster.Nodes())
	}
	return err
}

// replica names this node in what it gives to clients. "": nothing is forwarded to it.
func (g *Gateway) replica() string {
	if g.node == nil || !g.node.Links() {
		return ""
	}
	return g.node.ID()
}

// linked adds to the options of the endpoint's handler where its sessions are, and which other
// nodes answer requests.
func (e *endpoint) linked(o *mcphttp.Options) *mcphttp.Options {
	if e.g.tails != nil {
		o.SharedEvents = e.g.tails
	}
	if o.Replica = e.g.replica(); o.Replica != "" {
		o.Route, o.Forward = e.route, e.g.node.Forward
	}
	return e.g.sessions.options(o, e.keys)
}

// route says which node answers: mcphttp.Options.Route. What has come from another node is answered
// here.
func (e *endpoint) route(ctx context.Context, home, key string) string {
	switch {
	case cluster.Forwarded(ctx):
		return ""
	case home != "":
		return e.g.node.Place(home, key)
	case key != "" && e.keepsPrincipals():
		return e.g.node.Owner(e.name + " " + key)
	}
	return ""
}

// keepsPrincipals reports whether a command behind the endpoint has a process for each principal:
// all requests of one go to one node then, so that there is one process.
func (e *endpoint) keepsPrincipals() bool {
	_, servers := e.servers()
	return slices.ContainsFunc(servers, (*server).keepsPrincipals)
}

// keepsPrincipals reports whether a server is a command with a process for each principal or
// session. That of a raw one is also for all calls over HTTP, which come one by one.
func (s *server) keepsPrincipals() bool {
	kept := s.cfg.Lifetime == "principal" || s.cfg.Lifetime == "session"
	return len(s.cfg.Command) > 0 && (kept || s.cfg.Profile == profileRaw && s.cfg.Lifetime == "")
}

// maxBody bounds the body of a request, as in httprpc.
const maxBody = 50 << 20

// keeper returns the other node at which the principal of a request has its processes of an
// address. "": it is this one, or there is no principal.
func (g *Gateway) keeper(r *http.Request, name string) string {
	of := g.sender()
	if of == nil || g.replica() == "" || cluster.Forwarded(r.Context()) {
		return ""
	}
	who := owner.Named(of(r))
	if to := g.node.Owner(name + " " + who.Text()); who.Authenticated() && to != g.node.ID() {
		return to
	}
	return ""
}

// placed has another node answer what belongs there, before h does. A body that cannot be read is
// h's to refuse.
func (s *server) placed(h http.Handler) http.Handler {
	g, name := s.g, s.cfg.Name
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.keepsPrincipals() || g.keeper(r, name) == "" {
			h.ServeHTTP(w, r)
			return
		}
		b := g.bodies.Get(g.budget())
		defer g.bodies.Put(b)
		var err error
		limit := slow.FrameLimit(g.opts.FrameTimeout)
		limit.Begin(w, r)
		b.In, err = b.Loan.ReadAll(b.In, limit.Body(w, r), r.ContentLength,
			cmp.Or(g.opts.MaxMessage, maxBody), budget.Body(w, r))
		limit.End(w, r)
		to := func() string { return g.keeper(r, name) }
		if err == nil && g.endpoint("").http.Elsewhere(w, r, b.In, to) {
			return
		}
		r = r.WithContext(r.Context())
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(b.In), r.Body))
		h.ServeHTTP(w, r)
	})
}

// nodeLoad is what this node has, for the others to show.
func (g *Gateway) nodeLoad() (l cluster.Load) {
	p := g.plan.Load()
	if p == nil {
		return l // it is being made
	}
	l.Suspended = g.suspended.count()
	g.mu.Lock()
	for _, e := range g.endpoints {
		l.Sessions += e.http.Sessions()
	}
	g.mu.Unlock()
	for _, s := range p.order {
		if s.children != nil {
			l.Children += s.children.Stats().Running
		}
	}
	return l
}
