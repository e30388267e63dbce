package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/route"
)

// A held server takes no calls, because an operator has drained or disabled it. It has no
// connections and no processes: the server that it replaces finishes its calls, or has them cut
// off.
//
//	       drain, disable
//	serving ──────────► held: draining ──► disabled
//	   ▲                   │ the last call of the replaced server has ended, or it was cut off
//	   └─────── enable ────┴─────────────────┘
type held struct {
	since  time.Time
	before *server            // that it replaces
	cut    context.CancelFunc // ends the calls of before
	done   chan struct{}      // closed when before has ended
}

// heldText is why a held server refuses calls, for callers.
const heldText = "is disabled by an operator of the gateway and takes no calls until it is " +
	"enabled again"

// draining reports whether calls of the replaced server go on.
func (h *held) draining() bool {
	select {
	case <-h.done:
		return false
	default:
		return true
	}
}

// state is that of the held server.
func (h *held) state() string {
	if h.draining() {
		return stateDraining
	}
	return stateDisabled
}

// text is why the server takes no calls. "": it takes them.
func (h *held) text() string {
	if h == nil {
		return ""
	}
	return heldText
}

// heldOf returns why the server of a name takes no calls. Nil: it takes them, or there is none.
func (p *plan) heldOf(name string) *held {
	if p == nil || p.byName[name] == nil {
		return nil
	}
	return p.byName[name].held
}

// A renewal puts a new server into the place of one of a plan.
type renewal struct {
	name string
	held *held // of the new server
}

// serverFor returns the server of an old plan that is as a configuration wants it and not to be
// renewed, or a new one.
func (g *Gateway) serverFor(
	u *Upstream, private []string, size int, old *plan, renew *renewal,
) (*server, error) {
	if renew != nil && renew.name == u.Name {
		return g.newServer(u, private, size, renew.held)
	}
	if s := old.unchanged(u, private); s != nil {
		return s, nil
	}
	return g.newServer(u, private, size, old.heldOf(u.Name))
}

// An order is what an operator wants of an upstream.
type order uint8

const (
	restart        order = iota // calls are cut off
	restartOrderly              // calls have the time of a drain
	drain                       // calls go on until they end
	disable                     // calls are cut off
	enable
)

// errHeld refuses to restart what takes no calls, and errConfigured what is not there.
var (
	errHeld       = errors.New("it is disabled or being drained: enable it instead")
	errConfigured = errors.New(reasonConfigured + ": remove that, and reload the configuration")
)

// unbounded is the time of calls that go on until they end. Their servers bound them: see
// Upstream.Timeout.
const unbounded = 365 * 24 * time.Hour

// obey carries out an order by putting a new server of the same configuration into the place of an
// upstream's. It returns the server that is there then, and a channel that is closed when the one
// before has ended.
func (g *Gateway) obey(name string, what order) (now *server, done <-chan struct{}, err error) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	old := g.plan.Load()
	was := old.byName[name]
	ended := make(chan struct{})
	switch {
	case g.draining.Load():
		return nil, nil, errDraining()
	case was == nil:
		return nil, nil, errConfigured
	case was.held == nil && what == enable:
		close(ended)
		return was, ended, nil
	case was.held != nil && (what == restart || what == restartOrderly):
		return nil, nil, errHeld
	case was.held != nil && what != enable:
		if what == disable {
			was.held.cut()
		}
		return was, was.held.done, nil
	}
	limit := unbounded
	switch what {
	case restart, disable:
		limit = 0
	case restartOrderly:
		limit = old.config.drain()
	}
	ctx, cut := context.WithTimeout(g.ends, limit)
	next := renewal{name: name}
	if what == drain || what == disable {
		next.held = &held{since: time.Now(), before: was, cut: cut, done: ended}
	}
	p, err := g.newPlan(old.config, old, &next)
	if err != nil {
		cut()
		return nil, nil, err
	}
	g.swap(old, p, name, func(s *server) {
		defer close(ended)
		defer cut()
		s.close(ctx)
	})
	return p.byName[name], ended, nil
}

// swap serves a plan in the place of another one. what is the upstream that has changed, "" for
// any. end ends each server that is not in use any more, in its own goroutine.
func (g *Gateway) swap(old, p *plan, what string, end func(s *server)) {
	g.plan.Store(p)
	for _, s := range p.order {
		if s.raw != nil && p.hooks[s.cfg.Name] != nil {
			s.raw.EndCarried()
		}
		if s.held == nil {
			s.keepUp(g.serving)
		}
	}
	if len(old.all.Entries(route.Tools)) > 0 { // the page for operators goes on to show them
		g.ending.Go(func() { _, _ = p.all.Page(g.serving, route.Tools, "") })
	}
	g.ending.Go(old.closeViews)
	g.ending.Go(g.moveWatches)
	for _, s := range old.order {
		if p.byName[s.cfg.Name] == s {
			if s.alone != nil {
				s.alone.SetPageSize(p.config.PageSize)
				for _, list := range pinnedLists { // they may be pinned otherwise now
					s.alone.Invalidate(s.cfg.Name, list)
				}
			}
			continue
		}
		g.ending.Go(func() { end(s) })
	}
	for _, kind := range []string{"tools", "resources", "prompts"} {
		g.tellListChanged(what, kind)
	}
}

// heldError is the answer for a name that is qualified for an upstream which takes no calls. Nil:
// there is none.
func (p *plan) heldError(e *endpoint, kind, name string, missing []route.Missing) error {
	for _, m := range missing {
		s := p.byName[m.Source]
		if s == nil || s.held == nil || s.mcp == nil {
			continue
		}
		_, qualified := strings.CutPrefix(name, m.Source+"__")
		if source, _, ok := p.all.Qualified(name); kind == route.Resources && ok && source == m.Source {
			qualified = true
		}
		if qualified || e.name == m.Source {
			return s.mcp.Refused()
		}
	}
	return nil
}
