package gateway

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// begun is what is known of how a session began.
type begun struct {
	since              time.Time
	principal, address string
	owner              string // of the principal; "": it is not authenticated
}

// beginnings has how the sessions of an endpoint began, until they end.
type beginnings struct {
	mu sync.Mutex
	of map[string]begun // by session
}

func (b *beginnings) add(ctx context.Context, s *mcp.Session) {
	who := guard.From(ctx)
	how := begun{since: time.Now(), principal: who.Name(), owner: who.Owner(), address: owner.ConnFrom(ctx).Remote}
	if r := mcphttp.RequestFrom(ctx); r != nil {
		how.address = r.RemoteAddr
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[string]begun{}
	}
	b.of[s.ID()] = how
}

func (b *beginnings) remove(s *mcp.Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, s.ID())
}

func (b *beginnings) get(s *mcp.Session) begun {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[s.ID()]
}

// all returns the addresses that clients have used.
func (o operator) all() []*endpoint {
	o.g.mu.Lock()
	defer o.g.mu.Unlock()
	return slices.Collect(maps.Values(o.g.endpoints))
}

func (operator) shown(e *endpoint, s *mcp.Session) control.Session {
	how, c := e.began.get(s), s.Client()
	return control.Session{
		ID: s.ID(), Path: strings.TrimSuffix("/mcp/"+e.name, "/"), Principal: how.principal, Client: strings.TrimSpace(c.Name + " " + c.Version),
		Revision: c.Revision, Address: how.address, Since: how.since,
	}
}

// Sessions implements control.Backend: it has all sessions for a caller with the permission, and
// otherwise those of the same principal.
func (o operator) Sessions(ctx context.Context) *control.Sessions {
	mine := guard.From(ctx).Owner()
	found := &control.Sessions{
		Sessions: []control.Session{}, All: o.g.shield == nil || o.g.shield.Visible(ctx, &guard.Call{Method: methodAdmin, Name: "sessions"}),
	}
	for _, e := range o.all() {
		for s := range e.server.Sessions() {
			if found.All || mine != "" && e.began.get(s).owner == mine {
				found.Sessions = append(found.Sessions, o.shown(e, s))
			}
		}
	}
	slices.SortFunc(found.Sessions, func(a, b control.Session) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) })
	return found
}

// EndSession implements control.Backend. Who may end one may end all, and so sees all.
func (o operator) EndSession(ctx context.Context, id string) (*control.Session, error) {
	var found *mcp.Session
	var shown control.Session
	for _, e := range o.all() {
		for s := range e.server.Sessions() {
			if s.ID() == id {
				found, shown = s, o.shown(e, s)
			}
		}
	}
	if found == nil {
		return nil, control.NewProblem(http.StatusNotFound, "there is no such session: it may have ended; /api/v1/sessions lists those that there are")
	}
	found.End(ctx)
	return &shown, nil
}
