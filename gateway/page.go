package gateway

import (
	"context"
	"net/http"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/inspect"
)

// What a page offers, and what it keeps of the traffic of its user.
const (
	maxPageServers = 200
	pageFrames     = 50_000
	pageBytes      = 16 << 20
)

// newPage makes the page for operators. Each that is open calls the gateway as its user, and sees
// no traffic but its own.
func (g *Gateway) newPage() (*inspect.Inspector, error) {
	return inspect.New(g.serving, &inspect.Options{
		Open: true, Operate: true, Each: g.pageServers, May: g.pageMay, Hosts: anyHost(),
		Conform: g.opts.Conform, MaxFrames: pageFrames, MaxBytes: pageBytes, Version: g.opts.Version,
		Logger: g.log,
	})
}

// pageServers are what a page can call: all servers as one, and each.
func (g *Gateway) pageServers(r *http.Request) (all []inspect.Server) {
	add := func(name, path, protocol string, serve func(t farcall.Transport)) {
		all = append(all, inspect.Server{
			Name: name, Path: path, Protocol: protocol,
			Dial: func(context.Context) (farcall.Transport, error) {
				near, far := farcall.Pipe()
				serve(far)
				return near, nil
			},
		})
	}
	endpoint := func(name, of string) {
		add(name, strings.TrimSuffix("/mcp/"+of, "/"), "mcp", func(t farcall.Transport) {
			g.endpoint(of).serveLink(t, r)
		})
	}
	p := g.plan.Load()
	if len(p.mcp) > 0 {
		endpoint(p.config.name(), "")
	}
	for _, c := range p.config.Endpoints {
		if p.virtual[c.Name].admits(r.Context()) {
			endpoint(c.Name, c.Name)
		}
	}
	for _, s := range p.order {
		name := s.cfg.Name
		if s.mcp != nil {
			endpoint(name, name)
		} else if s.passesAll(p) {
			add(name, "/rpc/"+name, "jsonrpc", func(t farcall.Transport) {
				if s := g.plan.Load().byName[name]; s != nil {
					s.serveLink(t, r)
					return
				}
				_ = t.Close() // the configuration does not have it any more
			})
		}
	}
	return all[:min(len(all), maxPageServers)]
}

// pageMay reports whether the user of a page may do an action there: it needs the permission to
// change the gateway so, or without a guard a page on this machine.
func (g *Gateway) pageMay(r *http.Request, action string) bool {
	if g.shield == nil {
		return operator{g}.outside(r) == nil
	}
	return g.shield.Visible(r.Context(), &guard.Call{Method: methodAdmin, Name: action})
}
