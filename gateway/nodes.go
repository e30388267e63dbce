package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// linkNodes lets the nodes of a cluster forward requests to each other. A request goes as its client
// has sent it, and the guard of the node that answers authenticates it again. Only nonces are not
// claimed a second time: the node where it arrived has claimed them.
func (g *Gateway) linkNodes(c *Config) error {
	at := c.Cluster.CallsAt()
	if g.node == nil || at == "" {
		return nil
	}
	key, err := c.Cluster.Secret()
	if err != nil {
		return fmt.Errorf("gateway: cluster: key: %w", err)
	}
	return g.node.Listen(at, key, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
}

// replica names this node in what it gives to clients. "": nothing is forwarded to it.
func (g *Gateway) replica() string {
	if g.node == nil || !g.node.Links() {
		return ""
	}
	return g.node.ID()
}

// linked adds to the options of the endpoint's handler where its sessions are, and which other nodes
// answer requests.
func (e *endpoint) linked(o *mcphttp.Options) *mcphttp.Options {
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
	for _, s := range servers {
		if len(s.cfg.Command) > 0 && (s.cfg.Lifetime == "principal" || s.cfg.Lifetime == "session") {
			return true
		}
	}
	return false
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
