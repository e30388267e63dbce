package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
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
		misuse("Mount: the prefix %q must consist of A-Z a-z 0-9 _ - and . and not have %s", prefix,
			mountSeparator)
	case s.relays():
		misuse("Mount: %s has a Relay, and serves nothing itself", s.label())
	case other.relays():
		misuse("Mount: %s has a Relay, and serves nothing itself that could be mounted", other.label())
	case other.intercepted != nil:
		misuse("Mount: %s has interceptors, which calls would pass by; set them in ServerOptions.RPC "+
			"of %s, or use middleware",
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
	return s.visible(ctx, value.kind(), value.key()) &&
		(p.of == nil || p.base.visible(ctx, p.of.inner))
}

// serve has the mounted server answer a call, by one of its methods, within its middleware. name is
// what it calls the tool or the prompt; "": the call has a URI, which is the same there.
func (m *mounted) serve(
	c *call, name string, f func(*Server, *call) (answer, error),
) (answer, error) {
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
	return m.inner.surrounded(d, &method{serve: f},
		&farcall.Request{Method: d.method, ID: d.id, Params: d.params})
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

// A Transform says in which form a tool is shown. The zero value of a field leaves what it is about
// as it is.
type Transform struct {
	// Name, Title and Description are shown in place of those of the tool.
	Name, Title, Description string
	// Arguments says what becomes of arguments, by the names that the tool has for them. Each must be
	// among the properties of the tool's input schema. With keywords beside the properties that may
	// name arguments, such as anyOf and if, none can be renamed or hidden.
	Arguments map[string]Argument
	// Wrap returns what is called in place of the tool: next is the tool. Both take the arguments as
	// the tool has them. It is called once. The context of next must derive from that of its caller;
	// the error of next is the tool's own, and [Elicit] and its like work on both sides of it. What is
	// returned must fit the output schema of the tool.
	Wrap func(next ToolHandler) ToolHandler
}

// An Argument says what becomes of an argument of a tool. The zero value leaves it as it is.
type Argument struct {
	// Name and Description are shown in place of those of the tool.
	Name, Description string
	// Default is what the tool gets when the caller leaves the argument out, which is optional then.
	// It marshals to JSON that fits the schema of the argument. Nil: there is none.
	Default any
	// Fixed is what the tool gets in any case; the argument is hidden then. As Default.
	Fixed any
	// Hidden does not show the argument: a caller that gives it is refused. The tool gets the Default,
	// or none, if it does not require the argument.
	Hidden bool
}

// Transform shows a tool in another form, now and whenever AddTool or a mounted server adds it
// again: all go on to speak of it by its own name, and RemoveTool does, too. What is published, and
// what validates arguments first, is the new form; the tool then gets arguments as it knows them.
// What was reported about the tool before is replaced; Transform{} leaves nothing of it. To have
// both forms, mount a server that has one of them.
//
// It panics when the server has no such tool, when t does not fit it, and when the new name is
// taken. It panics, too, in AddTool and its like when a tool is added again that t does not fit.
func (s *Server) Transform(name string, t Transform) {
	s.checkMade()
	s.offer(listTools, func() {
		shown, ok := s.tools.addedLocked(s, name)
		if !ok {
			misuse("Transform: %s has no tool %q; add it, or mount its server, before", s.label(), name)
		}
		old, had := s.transforms[name]
		done := false
		defer func() {
			if !done {
				delete(s.transforms, name)
				if had {
					s.transforms[name] = old
				}
			}
		}()
		setEntry(&s.transforms, name, &t)
		value := shown.original()
		s.tools.setLocked(s, name, value.of, &value)
		done = true
	})
}

// original returns the tool as it was added.
func (t *tool) original() *tool {
	if t.from != nil {
		return t.from
	}
	return t
}

func (t *tool) origin() string { return t.original().spec.Name }

// arranged returns the tool in the form in which the server shows it.
func (t *tool) arranged(s *Server) *tool {
	tr := s.transforms[t.spec.Name]
	if tr == nil {
		return t
	}
	shown, form, err := tr.compile(t.spec)
	if err != nil {
		misuse("Transform: the tool %q of %s: %v", t.spec.Name, s.label(), err)
	}
	own := &tool{spec: shown, part: t.part, from: t, form: form, typed: t.typed, run: runForm}
	if !validToolName(shown.Name) {
		misuse("Transform: the tool name %q must be 1 to 128 characters of A-Z a-z 0-9 _ - and .",
			shown.Name)
	}
	if own.input, err = validate.Compile(shown.InputSchema,
		validate.Limits{OptionalNulls: t.typed}); err == nil {
		own.headers, err = schema.Headers(shown.InputSchema)
	}
	if err == nil && tr.Wrap != nil && shown.OutputSchema != nil && !s.opts.SkipOutputValidation {
		own.output, err = validate.Compile(shown.OutputSchema, validate.Limits{})
	}
	if err != nil { // never: they are schemas of tools
		misuse("Transform: the tool %q of %s: %v", t.spec.Name, s.label(), err)
	}
	if tr.Wrap != nil {
		if own.wrapped = tr.Wrap(own.next); own.wrapped == nil {
			misuse("Transform: Wrap returned no handler for the tool %q", shown.Name)
		}
	}
	return own
}

// compile returns the tool in its new form, and what makes its arguments out of those of the form.
func (t *Transform) compile(of Tool) (Tool, *arguments.Form, error) {
	changes := make(map[string]arguments.Change, len(t.Arguments))
	for name, a := range t.Arguments {
		changes[name] = arguments.Change(a)
	}
	var form *arguments.Form
	var err error
	of.Name = cmp.Or(t.Name, of.Name)
	of.Title, of.Description = cmp.Or(t.Title, of.Title), cmp.Or(t.Description, of.Description)
	of.InputSchema, form, err = arguments.NewForm(of.InputSchema, changes)
	return of, form, err
}

// Apply returns the form of a tool that t describes, and a function that makes arguments of the
// tool out of those of that form, which are an object. The function refuses, and describes,
// arguments that the form hides; it does not validate them by the schema. Wrap is not a part of it.
func (t *Transform) Apply(of Tool) (Tool, func(arguments jsonrpc.Raw) (jsonrpc.Raw, error), error) {
	shown, form, err := t.compile(of)
	if err != nil {
		return Tool{}, nil, err
	}
	return shown, func(arguments jsonrpc.Raw) (jsonrpc.Raw, error) {
		if err := form.Check(arguments); err != nil {
			return nil, err
		}
		return form.Arguments(arguments), nil
	}, nil
}

// runForm runs a tool that is shown in another form.
func runForm(c *call, t *tool, given jsonrpc.Raw) (answer, error) {
	own := t.form.Arguments(given)
	if t.wrapped == nil {
		return t.runOriginal(c, c.Parent(), own)
	}
	result, err := t.wrapped(c, own)
	if err != nil {
		return answer{}, err
	}
	return t.result(result)
}

// next is what Wrap gets: the tool as it was added.
func (t *tool) next(ctx context.Context, arguments jsonrpc.Raw) (*ToolResult, error) {
	c := callFrom(ctx)
	if c == nil || c.isOver() {
		return nil, errNoCall
	}
	a, err := t.runOriginal(c, ctx, object.OrEmpty(arguments))
	if err == nil {
		err = a.failure
	}
	if err != nil {
		return nil, err
	}
	r := new(ToolResult)
	return r, jsonv2.Unmarshal(a.raw, r)
}

var errNoCall = errors.New(
	"mcp: Transform: next was called outside of its call; give it a context that derives from that " +
		"of the handler")

// runOriginal runs the tool as it was added. What it asks is a part of the call.
func (t *tool) runOriginal(c *call, ctx context.Context, arguments jsonrpc.Raw) (answer, error) { //nolint:revive // ctx may derive from c
	if c.mayAsk {
		if _, err := c.rounds(); err != nil { // one for both
			return answer{}, err
		}
	}
	d := c.below(c.mounted, ctx)
	defer d.end()
	d.nested, d.mayAsk, d.asks, d.task, d.shown = true, c.mayAsk, c.asks, c.task, c.shownName(t)
	if err := d.setParams("arguments", arguments); err != nil {
		return answer{}, err
	}
	if t.of != nil {
		return t.of.serve(d, t.base.key(), (*Server).callTool)
	}
	return t.from.call(d)
}

// startsLater reports whether a tool becomes a task by StartTask only.
func (t *tool) startsLater(s *Server) bool {
	if _, later := s.tasks.later.Load(t.origin()); later {
		return true
	}
	return t.of != nil && t.base.startsLater(t.of.inner)
}
