package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// mountSeparator stands between the prefix of a mounted server and the names of its tools and
// prompts, as the gateway writes them.
const mountSeparator = "__"

// Mount shows what another server offers, now and later, as part of this one: its tools and prompts
// as PREFIX__NAME, or by their own names if the prefix is "", and its resources and templates by
// their URIs. Completion, subscriptions, changes of lists and tasks work as for what is the
// server's own. The other server may still be served alone, and have servers mounted in it, before
// and after.
//
// # Policy
//
// For clients there is this server only. Its interceptors, its middleware, Owner, Visible, Keys,
// PageSize and its options of tasks hold for all calls. Of the other server the middleware
// surrounds the calls of what it offers, after that of this one, and Complete, CompletePrompt,
// CompleteTemplate, Visible, SkipOutputValidation and TaskLater apply to that. Arguments are taken
// as the stricter of the two says, and results may be kept only for as long, and shared only as
// widely, as both say. Its instructions, the methods of its extensions, and the middleware around
// its lists are its own.
//
// # Conflicts
//
// Mount panics when two things of one kind get the same name or URI, and changes nothing then; so
// does what adds one later, on either server: AddTool, AddResource and their like. The text names
// both servers. A server can be mounted once, and not in itself. One with a Relay has nothing to
// mount, and nothing can be mounted in it. One with interceptors (ServerOptions.RPC) cannot be
// mounted: they see the messages of connections, and would be passed by.
func (s *Server) Mount(prefix string, other *Server) {
	s.checkMade()
	if other == nil {
		misuse("Mount: the server is nil")
	}
	other.checkMade()
	m := &mounted{server: s, inner: other, prefix: prefix}
	switch {
	case prefix != "" && (!validToolName(prefix) || strings.Contains(prefix, mountSeparator)):
		misuse("Mount: the prefix %q must consist of A-Z a-z 0-9 _ - and . and not have %s", prefix, mountSeparator)
	case s.relays():
		misuse("Mount: %s has a Relay, and serves nothing itself", s.label())
	case other.relays():
		misuse("Mount: %s has a Relay, and serves nothing itself that could be mounted", other.label())
	case other.intercepted != nil:
		misuse("Mount: %s has interceptors, which calls would pass by; set them in ServerOptions.RPC of %s, or use middleware",
			other.label(), s.label())
	}
	m.mount()
	s.tell(&events{lists: listTools | listPrompts | listResources})
}

// label names the server in messages for its author.
func (s *Server) label() string { return fmt.Sprintf("the server %q", s.info.Name) }

// mounted is a server that is mounted in another.
type mounted struct {
	server, inner *Server
	prefix        string
}

func (m *mounted) named(name string) string {
	if m.prefix == "" {
		return name
	}
	return m.prefix + mountSeparator + name
}

// mount adds all that the inner server offers, or panics and leaves everything as it was.
func (m *mounted) mount() {
	m.inner.offering.Lock()
	defer m.inner.offering.Unlock()
	if at := m.inner.outer.Load(); at != nil {
		misuse("Mount: %s is mounted in %s already", m.inner.label(), at.server.label())
	}
	m.inner.outer.Store(m)
	done := false
	defer func() {
		if !done {
			m.inner.outer.Store(nil)
		}
	}()
	for at := m.server; at != nil; at = at.outerServer() {
		if at == m.inner {
			misuse("Mount: %s would be mounted in itself", m.inner.label())
		}
	}
	m.server.offering.Lock()
	defer m.server.offering.Unlock()
	undo := &added{}
	defer func() {
		if !done {
			undo.all()
		}
	}()
	mountAll(m, &m.inner.tools, undo)
	mountAll(m, &m.inner.prompts, undo)
	mountAll(m, &m.inner.resources, undo)
	mountAll(m, &m.inner.templates, undo)
	var all []*mounted
	if old := m.server.inner.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = append(all, m)
	m.server.inner.Store(&all)
	for at := m.server; at != nil; at = at.outerServer() {
		at.setCacheHints()
	}
	done = true
}

// added is how to remove again what was added.
type added []func()

func (a *added) all() {
	for _, f := range slices.Backward(*a) {
		f()
	}
}

func mountAll[T offer[T]](m *mounted, r *registry[T], undo *added) {
	for value := range r.values() {
		key := value.under(m).key()
		r.liftLocked(m, nil, &value)
		*undo = append(*undo, func() { r.in(m.server).setLocked(m.server, key, m, nil) })
	}
}

// offer changes what the server offers and tells the listeners.
func (s *Server) offer(list listKind, change func()) {
	func() {
		s.offering.Lock()
		defer s.offering.Unlock()
		change()
	}()
	s.listChanged(list)
}

func (s *Server) outerServer() *Server {
	if m := s.outer.Load(); m != nil {
		return m.server
	}
	return nil
}

func (s *Server) anyMounted(has func(*Server) bool) bool {
	all := s.inner.Load()
	return all != nil && slices.ContainsFunc(*all, func(m *mounted) bool { return has(m.inner) })
}

// ownerName says, for a message, where something comes from that s shows.
func ownerName(s *Server, m *mounted) string {
	if m == nil {
		return s.label()
	}
	return fmt.Sprintf("%s, mounted in %s as %q,", m.inner.label(), s.label(), m.prefix)
}

// cachePolicy returns how long results of the server may be kept, and whether several users may
// share them: what it and all that is mounted in it allow.
func (s *Server) cachePolicy() (ttl time.Duration, scope string) {
	ttl, scope = max(0, s.opts.CacheTTL), s.opts.CacheScope
	if all := s.inner.Load(); all != nil {
		for _, m := range *all {
			t, sc := m.inner.cachePolicy()
			if ttl = min(ttl, t); sc != spec.CachePublic {
				scope = sc
			}
		}
	}
	return ttl, scope
}

func (s *Server) setCacheHints() {
	ttl, scope := s.cachePolicy()
	hints := fmt.Appendf(nil, `,"ttlMs":%d,"cacheScope":%q`, ttl.Milliseconds(), scope)
	s.cacheHints.Store(&hints)
}

// part is what an offer has of the mounted server that it comes from. The zero value: it is the
// server's own.
type part[T any] struct {
	of   *mounted
	base T // what it is there
}

func (p part[T]) mount() *mounted { return p.of }

// visible reports whether the caller may see an offer of s, and what it is in the mounted server.
func visible[T offer[T]](ctx context.Context, s *Server, value T, p part[T]) bool {
	return s.visible(ctx, value.kind(), value.key()) && (p.of == nil || p.base.visible(ctx, p.of.inner))
}

// serve has the mounted server answer a call, by one of its methods, within its middleware. name is
// what it calls the tool or the prompt; "": the call has a URI, which is the same there.
func (m *mounted) serve(c *call, name string, f func(*Server, *call) (answer, error)) (answer, error) {
	d := c.below(m, c)
	if name != "" {
		if err := d.rename(name); err != nil {
			return answer{}, err
		}
	}
	defer d.end()
	if m.inner.middleware.none() {
		return f(m.inner, d)
	}
	return m.inner.surrounded(d, &method{serve: f}, &farcall.Request{Method: d.method, ID: d.id, Params: d.params})
}

// below returns the call as the handlers of a mounted server have it, over ctx: see apart.
func (c *call) below(m *mounted, ctx context.Context) *call { //nolint:revive // see apart
	d := c.apart(ctx)
	d.mounted, d.request = m, nil
	if d.sent == nil { // what its rounds are bound to
		d.sent = &c.params
	}
	return d
}

// rename gives the tool or prompt of a call another name.
func (c *call) rename(name string) error {
	quoted := scan.AppendQuoted(nil, name)
	if c.method != spec.MethodCompletionComplete {
		return c.setParams("name", quoted)
	}
	ref := object.New(scan.Member(c.params, "ref"), "name")
	ref.Add("name", quoted)
	return c.setParams("ref", ref.End())
}

// setParams replaces a member of the params.
func (c *call) setParams(member string, value jsonrpc.Raw) error {
	o := object.New(c.params, member)
	o.Add(member, value)
	c.params, c.in = o.End(), inputs{}
	return c.in.read(c.params)
}

// strict reports whether arguments must fit the input schema as they are.
func (c *call) strict() bool {
	if c.nested { // a guard has seen what came
		return true
	}
	for s := c.server(); s != c.srv; s = s.outerServer() {
		if s.opts.Arguments == Strict {
			return true
		}
	}
	return c.srv.opts.Arguments == Strict
}

// shownName returns the name of a tool as the client sees it.
func (c *call) shownName(t *tool) string {
	if c.shown != "" {
		return c.shown
	}
	name := t.spec.Name
	for m := c.mounted; m != nil; m = m.server.outer.Load() {
		if name = m.named(name); m.server == c.srv {
			break
		}
	}
	return name
}
