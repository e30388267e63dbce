package gateway

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A listing is one kind of list.
type listing struct {
	method, member string
	has            func(*spec.ServerCapabilities) bool
	tells          func(*spec.ServerCapabilities) bool // when it changes
}

// listings has them by the names that route and the views use.
var listings = map[string]listing{
	route.Tools: {
		spec.MethodToolsList, "tools",
		func(c *spec.ServerCapabilities) bool { return c.Tools != nil },
		func(c *spec.ServerCapabilities) bool { return c.Tools.ListChanged },
	},
	route.Resources: {
		spec.MethodResourcesList, "resources",
		func(c *spec.ServerCapabilities) bool { return c.Resources != nil },
		func(c *spec.ServerCapabilities) bool { return c.Resources.ListChanged },
	},
	route.Templates: {
		spec.MethodResourcesTemplatesList, "resourceTemplates",
		func(c *spec.ServerCapabilities) bool { return c.Resources != nil },
		func(c *spec.ServerCapabilities) bool { return c.Resources.ListChanged },
	},
	route.Prompts: {
		spec.MethodPromptsList, "prompts",
		func(c *spec.ServerCapabilities) bool { return c.Prompts != nil },
		func(c *spec.ServerCapabilities) bool { return c.Prompts.ListChanged },
	},
}

// untilTold keeps a list of a server of the legacy era that tells when it
// changes.
const untilTold = -1

// list returns all of a list of the server that is not blocked. It is a view's
// source.
func (s *server) list(ctx context.Context, kind string) (route.List, error) {
	if wants, err := s.wantsSignIn(ctx); err != nil {
		return route.List{}, err
	} else if wants {
		return s.signInList(kind), nil
	}
	all, err := s.whole(ctx, s.g.caller(ctx), kind)
	switch lock := s.g.plan.Load().lock; {
	case err != nil:
	case lock != nil:
		all.Items = s.pinned(lock, kind, all.Items)
	default:
		s.block(kind, nil)
	}
	return all, err
}

// whole returns all of a list of the server, as it has it.
func (s *server) whole(ctx context.Context, who upstream.Caller, kind string) (route.List, error) {
	info, err := s.mcp.Describe(ctx, who)
	if err != nil {
		return route.List{}, err
	}
	of := listings[kind]
	if !of.has(info.Capabilities) {
		return route.List{Items: []jsonrpc.Raw{}, TTL: untilTold, Public: s.signIn == nil}, nil
	}
	all, err := route.Collect(kind, func(cursor string) (jsonrpc.Raw, error) {
		var params jsonrpc.Raw
		if cursor != "" {
			params = append(jsonrpc.AppendString([]byte(`{"cursor":`), cursor), '}')
		}
		call := &upstream.Call{
			Method: of.method, Params: params, Revision: era.Latest(), Caller: who,
			Idempotent: true,
		}
		if who.Session != "" {
			// the connection may be the session's own, and the server may want the roots first
			call.Ask = asking(ctx)
		}
		r, err := s.mcp.Call(ctx, call)
		if err != nil {
			return nil, err
		}
		return era.Translate(era.Result, of.method, r.Raw, r.Revision, era.Latest())
	})
	if err != nil {
		return route.List{}, err
	}
	if rev := era.Lookup(info.Revision); rev != nil && !rev.CacheHints && of.tells(info.Capabilities) {
		all.TTL = untilTold
	}
	// what the server calls public is so for those who have signed in
	all.Public = all.Public && s.signIn == nil
	return all, nil
}

// listChanged is called by the upstream: "tools", "resources" or "prompts".
func (s *server) listChanged(kind string) {
	p := s.g.plan.Load()
	if p.byName[s.cfg.Name] != s {
		return // it is not in the plan any more, or not yet
	}
	s.alone.Invalidate(s.cfg.Name, kind)
	p.all.Invalidate(s.cfg.Name, kind)
	for _, v := range p.virtual {
		v.view.Invalidate(s.cfg.Name, kind)
	}
	s.telling.note(kind)
}

var errCursor = &jsonrpc.Error{
	Code:    jsonrpc.InvalidParams,
	Message: "Invalid params: invalid cursor: use nextCursor from the previous page, or omit it",
}

// metaMissing is where the result of a list says which servers it lacks.
const metaMissing = "farcall.dev/missing"

// list serves a page of a list, in canonical form.
func (e *endpoint) list(
	ctx context.Context, kind string, rev *era.Revision, params jsonrpc.Raw,
) (raw jsonrpc.Raw, err error) {
	done, err := e.g.shield.begin(ctx, rev, &guard.Call{Method: listings[kind].method, Params: params})
	if err != nil {
		return nil, err
	}
	err = errPanicked // until it returns
	defer func() { done(raw, err) }()
	cursor := ""
	if raw := scan.Member(params, "cursor"); len(raw) > 0 && string(raw) != "null" {
		var ok bool
		if cursor, ok = text(params, "cursor"); !ok {
			return nil, errCursor
		}
	}
	if kind == route.Tools {
		if raw, searched, err := e.searchList(ctx, cursor); searched {
			return raw, err
		}
	}
	page, view, servers, err := e.page(ctx, kind, cursor)
	if errors.Is(err, route.ErrCursor) {
		return nil, errCursor
	} else if err != nil {
		return nil, err
	}
	size := 256 // for all but the items
	for _, item := range page.Items {
		size += len(item) + 1
	}
	out := append(make(jsonrpc.Raw, 0, size), `{"resultType":"complete"`...)
	out = append(jsonrpc.AppendString(append(out, ','), listings[kind].member), `:[`...)
	out = append(e.appendItems(ctx, out, view, kind, page.Items), ']')
	if page.Next != "" {
		out = jsonrpc.AppendString(append(out, `,"nextCursor":`...), page.Next)
	}
	ttl := page.TTL
	for _, s := range servers {
		if ttl > 0 && !s.hints() {
			ttl = 0
		}
	}
	out = strconv.AppendInt(append(out, `,"ttlMs":`...), ttl.Milliseconds(), 10)
	scope := spec.CachePrivate
	if page.Public && e.g.shield == nil { // not everybody gets the same
		scope = spec.CachePublic
	}
	out = jsonrpc.AppendString(append(out, `,"cacheScope":`...), scope)
	if len(page.Missing) > 0 {
		out = appendMissing(out, page.Missing, e.g.plain())
	}
	return append(out, '}'), nil
}

// undeclared reports whether no server of the address declares a list. What is not declared is not
// served: see "Capabilities" of each kind of list.
func (e *endpoint) undeclared(ctx context.Context, kind string) bool {
	some, unsure := e.having(ctx, listings[kind].has)
	return len(some) == 0 && !unsure
}

// page returns a page of a list, and the view and the servers that have it. It fails with "Method
// not found" for a list that no server declares.
func (e *endpoint) page(
	ctx context.Context, kind, cursor string,
) (page route.Page, view *route.View, servers []*server, err error) {
	view, servers = e.servers()
	page, err = view.Page(ctx, kind, cursor)
	for {
		newer, now := e.servers()
		if newer == view || ctx.Err() != nil {
			break
		}
		view, servers = newer, now // the other one was closed on the way
		page, err = view.Page(ctx, kind, cursor)
	}
	if err == nil && len(page.Items)+len(page.Missing) == 0 && len(servers) > 0 &&
		e.undeclared(ctx, kind) {
		err = jsonrpc.Errorf(jsonrpc.MethodNotFound, "Method not found: no server of this address has %s",
			listings[kind].member)
	}
	return page, view, servers, err
}

// appendItems appends the items of a page that the caller may use.
func (e *endpoint) appendItems(
	ctx context.Context, out jsonrpc.Raw, view *route.View, kind string, items []jsonrpc.Raw,
) jsonrpc.Raw {
	n := 0
	for _, item := range items {
		if e.g.shield != nil && !e.allowed(ctx, view, kind, item) {
			continue
		}
		if n++; n > 1 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return out
}

// allowed reports whether the caller may use an item of a list, by the name that is shown.
func (e *endpoint) allowed(
	ctx context.Context, view *route.View, kind string, item jsonrpc.Raw,
) bool {
	name, ok := text(item, listKeys[kind])
	if !ok {
		return false
	}
	target, ok, err := view.Find(ctx, kind, name)
	if several, is := errors.AsType[*route.AmbiguousError](err); is { // of the web, listed once
		return slices.ContainsFunc(several.Candidates, func(c route.Entry) bool {
			return e.shown(ctx, kind, &c.Target)
		})
	}
	return ok && err == nil && e.shown(ctx, kind, &target)
}

// hints reports whether the server says how long its lists may be kept.
func (s *server) hints() bool {
	rev := era.Lookup(s.mcp.Status().Revision)
	return rev != nil && rev.CacheHints
}

// appendMissing appends _meta with the servers that a list lacks, and why unless
// that is to be left out.
func appendMissing(out jsonrpc.Raw, missing []route.Missing, plain bool) jsonrpc.Raw {
	out = append(jsonrpc.AppendString(append(out, `,"_meta":{`...), metaMissing), `:[`...)
	for i, m := range missing {
		if i > 0 {
			out = append(out, ',')
		}
		out = jsonrpc.AppendString(append(out, `{"upstream":`...), m.Source)
		out = jsonrpc.AppendString(append(out, `,"state":`...), m.State)
		if !plain {
			out = jsonrpc.AppendString(append(out, `,"reason":`...), m.Reason)
		}
		out = append(out, '}')
	}
	return append(out, `]}`...)
}
