package mcp

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/wirelog"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/store"
)

// Server offers tools, resources and prompts to clients of every revision. What
// it offers may change while it serves: clients are notified. It may serve any
// number of connections at once; its methods may be called by any goroutine.
type Server struct {
	opts           ServerOptions
	info           spec.Implementation
	modern, legacy []*era.Revision // that are served, newest first

	// held while one of the registries changes, and before that of outer
	offering   sync.Mutex
	outer      atomic.Pointer[mounted]    // where the server is mounted; nil: nowhere
	inner      atomic.Pointer[[]*mounted] // what is mounted in it, in order; nil: nothing
	transforms map[string]*Transform      // by the name that the tool was added by; offering is held
	tools      registry[*tool]
	resources  registry[*resource]
	templates  registry[*template]
	prompts    registry[*prompt]

	taskTools   atomic.Bool // some tool can run, or could once, as a task
	tasks       taskTable
	memory      *store.Local // of tasks that end with the process
	shared      *sharing     // of ServerOptions.Shared; nil: none
	listeners   listeners
	subscribers subscribers
	extensions  extensions
	completers  completers
	// typedPrompts says that a prompt has, or had once, arguments that its type completes.
	typedPrompts atomic.Bool
	clients      clientCache
	sealed       sealing

	trace       *wirelog.Log // nil: none
	middleware  middleware
	intercepted farcall.Handler // serve, within the interceptors; nil: there are none

	resultStart []byte                 // the whole beginning of every modern result
	cacheHints  atomic.Pointer[[]byte] // of those that may be kept
}

var _ mcphttp.Configured = (*Server)(nil)

// NewServer returns a server that offers nothing yet. It panics when the options
// are not valid.
func NewServer(name, version string, o *ServerOptions) *Server {
	s := &Server{}
	if o != nil {
		s.opts = *o
	}
	s.opts.setDefaults()
	if s.opts.Capabilities == nil {
		s.opts.Capabilities = &spec.ServerCapabilities{}
	}
	var err error
	if s.modern, s.legacy, err = era.Select(s.opts.Eras); err != nil {
		misuse("ServerOptions.Eras: %v", err)
	}
	if c := s.opts.CacheScope; c != spec.CachePrivate && c != spec.CachePublic {
		misuse("ServerOptions.CacheScope is %q; it must be %q or %q", c, spec.CachePrivate,
			spec.CachePublic)
	}
	s.info = spec.Implementation{
		Name: name, Version: version, Title: s.opts.Title,
		Description: s.opts.Description, WebsiteURL: s.opts.WebsiteURL, Icons: s.opts.Icons,
	}
	// What every result carries is short; server/discover says the rest.
	info, err := jsonv2.Append(nil,
		spec.Implementation{Name: name, Version: version, Title: s.opts.Title})
	if err != nil {
		misuse("the server's description cannot be marshalled: %v", err)
	}
	s.resultStart = fmt.Appendf(nil, `{"resultType":%q,"_meta":{%q:%s}`, spec.ResultComplete,
		spec.MetaServerInfo, info)
	s.setCacheHints()
	s.tools.init(listTools, "tools", func(o *Server) *registry[*tool] { return &o.tools })
	s.resources.init(listResources, "resources", func(o *Server) *registry[*resource] {
		return &o.resources
	})
	s.templates.init(listResources, "resourceTemplates", func(o *Server) *registry[*template] {
		return &o.templates
	})
	s.prompts.init(listPrompts, "prompts", func(o *Server) *registry[*prompt] { return &o.prompts })
	s.sealed.init(s)
	s.memory = store.New(&store.Options{Logger: s.opts.Logger})
	s.trace = wirelog.New(s.opts.Trace, func(err error) { s.logger().Error("mcp: " + err.Error()) })
	s.intercept()
	s.shared = newSharing(s)
	s.adopt()
	return s
}

// checkMade panics for a Server that NewServer has not made.
func (s *Server) checkMade() {
	if s.resultStart == nil {
		misuse("the Server is a zero value; make it with NewServer")
	}
}

// misuse ends a program that was put together wrongly.
func misuse(format string, args ...any) {
	panic("mcp: " + fmt.Sprintf(format, args...)) //nolint:forbidigo // the mistake is in the calling code, as with http.ServeMux
}

// Close ends what runs in the background: tasks, and subscriptions, in order.
// Connections belong to the one that made them.
func (s *Server) Close() {
	s.listeners.close()
	s.tasks.close()
	s.shared.close()
}

// Shutdown ends subscriptions, in order, waits until the tasks have ended, or the
// context has, and closes the server. It returns the error of the context then.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.Close()
	s.listeners.close()
	return s.tasks.wait(ctx)
}

// visible reports whether the caller may see something.
func (s *Server) visible(ctx context.Context, kind, name string) bool {
	return s.opts.Visible == nil || s.opts.Visible(ctx, kind, name)
}

// A method is how the server serves a method of the protocol.
type method struct {
	// serve returns the result in canonical form, without what every result has.
	serve func(*Server, *call) (answer, error)
	// in reports whether a revision has the method.
	in func(*era.Revision) bool
	// has reports whether the server has what the method is about; nil: always.
	has       func(*Server) bool
	cacheable bool // 2026-07-28, server/utilities/caching
	relayed   bool // a Relay serves it, if there is one
}

// An answer is a result in canonical form: an object.
type answer struct {
	raw   jsonrpc.Raw
	plain bool // it has neither a resultType nor its own _meta
	whole bool // newResult has begun it

	failure error // of the tool's handler, with its text
}

func every(*era.Revision) bool          { return true }
func noHandshake(r *era.Revision) bool  { return !r.Handshake }
func hasListen(r *era.Revision) bool    { return r.ListenStream }
func hasSubscribe(r *era.Revision) bool { return r.Subscribe }
func hasSetLevel(r *era.Revision) bool  { return r.SetLevel }
func hasPing(r *era.Revision) bool      { return r.PingAllowed }

func hasTools(s *Server) bool {
	return s.relays() || s.tools.used() || s.hints().Tools != nil || s.anyMounted(hasTools)
}

func hasResources(s *Server) bool {
	return s.relays() || s.resources.used() || s.templates.used() || s.hints().Resources != nil ||
		s.anyMounted(hasResources)
}

func hasPrompts(s *Server) bool {
	return s.relays() || s.prompts.used() || s.hints().Prompts != nil || s.anyMounted(hasPrompts)
}

func completes(s *Server) bool {
	return s.relays() || s.opts.Complete != nil || s.completers.any() || s.typedPrompts.Load() ||
		s.anyMounted(completes)
}

func (s *Server) hints() *spec.ServerCapabilities { return s.opts.Capabilities }

// methods is the table of the methods, but for those of tasks.
var methods = map[string]*method{
	spec.MethodToolsCall: {
		serve: (*Server).callTool, in: every, has: hasTools,
		relayed: true,
	},
	spec.MethodToolsList: {
		serve: (*Server).listTools, in: every, has: hasTools,
		cacheable: true, relayed: true,
	},
	spec.MethodResourcesList: {
		serve: (*Server).listResources, in: every, has: hasResources,
		cacheable: true, relayed: true,
	},
	spec.MethodResourcesTemplatesList: {
		serve: (*Server).listTemplates, in: every, has: hasResources,
		cacheable: true, relayed: true,
	},
	spec.MethodResourcesRead: {
		serve: (*Server).readResource, in: every, has: hasResources,
		cacheable: true, relayed: true,
	},
	spec.MethodPromptsList: {
		serve: (*Server).listPrompts, in: every, has: hasPrompts,
		cacheable: true, relayed: true,
	},
	spec.MethodPromptsGet: {
		serve: (*Server).getPrompt, in: every, has: hasPrompts,
		relayed: true,
	},
	spec.MethodCompletionComplete: {
		serve: (*Server).complete, in: every, has: completes,
		relayed: true,
	},
	spec.MethodServerDiscover:      {serve: (*Server).discover, in: noHandshake, cacheable: true},
	spec.MethodSubscriptionsListen: {serve: (*Server).listen, in: hasListen},
	spec.MethodResourcesSubscribe: {
		serve: (*Server).subscribe, in: hasSubscribe,
		has: hasResources,
	},
	spec.MethodResourcesUnsubscribe: {
		serve: (*Server).unsubscribe, in: hasSubscribe,
		has: hasResources,
	},
	spec.MethodLoggingSetLevel: {serve: (*Server).setLevel, in: hasSetLevel},
	spec.MethodPing:            {serve: (*Server).ping, in: hasPing},
}

// dispatch serves a request, from its canonical params to its result, which is
// in the revision in. For modern clients that is theirs, or will do for it.
func (s *Server) dispatch(
	c *call, req *farcall.Request,
) (result jsonrpc.Raw, in *era.Revision, err error) {
	seen := req.Observed()
	if seen == nil {
		return s.route(c, req)
	}
	c.observe(seen)
	result, in, err = s.route(c, req)
	seen.ToolError = c.method == spec.MethodToolsCall && err == nil && isToolError(result)
	return result, in, err
}

// observe notes what the server knows of a call.
func (c *call) observe(seen *observe.Call) {
	seen.Revision = c.rev.Name
	seen.ClientName, seen.ClientVersion = c.who.info.Name, c.who.info.Version
	if c.session != nil {
		seen.Session = c.session.name
	}
	switch c.method {
	case spec.MethodToolsCall:
		seen.Tool = c.knownName()
	case spec.MethodPromptsGet:
		seen.Prompt = c.knownName()
	default:
		seen.Known = seen.Known || c.srv.extensions.find(c.method) != nil
	}
}

// isToolError reports whether the result of a tool says that it failed.
func isToolError(result jsonrpc.Raw) bool {
	return bytes.Contains(result, []byte(`"isError"`)) &&
		string(scan.Member(result, "isError")) == "true"
}

// route serves a request, see dispatch.
func (s *Server) route(
	c *call, req *farcall.Request,
) (result jsonrpc.Raw, in *era.Revision, err error) {
	m := methods[c.method]
	if c.forwards {
		return s.forward(c, m != nil && m.cacheable)
	}
	if m != nil && (!m.in(c.rev) || m.has != nil && !m.has(s)) {
		m = nil
	}
	var a answer
	if s.middleware.none() {
		a, err = s.answer(c, m, req)
	} else {
		a, err = s.surrounded(c, m, req)
	}
	if err != nil {
		return nil, nil, err
	}
	return s.finish(c, a, m != nil && m.cacheable), era.Latest(), nil
}

// answer serves a method of the table, or, if m is nil, any other.
func (s *Server) answer(c *call, m *method, req *farcall.Request) (answer, error) {
	if m != nil {
		return m.serve(s, c)
	}
	raw, err, handled := s.taskMethod(c)
	if !handled {
		raw, err = s.extensions.serve(c, req)
	}
	return answer{raw: raw}, err
}

func (s *Server) ping(*call) (answer, error) { return emptyAnswer(), nil }

func emptyAnswer() answer { return answer{raw: jsonrpc.Raw("{}"), plain: true} }

// discover serves server/discover.
func (s *Server) discover(c *call) (answer, error) {
	self, err := s.describe(c)
	if err != nil {
		return answer{}, err
	}
	r := spec.DiscoverResult{
		Capabilities: self.capabilities, Instructions: self.instructions,
		SupportedVersions: revisionNames(s.modern),
	}
	raw, err := jsonv2.Append(nil, r)
	if err != nil {
		return answer{}, err
	}
	info, err := jsonv2.Append(nil, self.info)
	return answer{raw: object.With(raw, "_meta", object.With(nil, spec.MetaServerInfo, info))}, err
}

// description is what a server says of itself to one that begins.
type description struct {
	info         spec.Implementation
	instructions string
	capabilities spec.ServerCapabilities
}

func (s *Server) describe(c *call) (description, error) {
	if s.relays() {
		return s.describeRelay(c)
	}
	return description{s.info, s.opts.Instructions, s.capabilities(c.rev)}, nil
}

func revisionNames(all []*era.Revision) []string {
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.Name
	}
	return names
}

// capabilities says what the server can do for clients of a revision. What the
// revision does not know is left to the translators, but for tasks: these are
// another thing in the legacy era.
func (s *Server) capabilities(r *era.Revision) spec.ServerCapabilities {
	c := *s.hints()
	if hasTools(s) {
		c.Tools = &spec.ToolsCapability{ListChanged: true}
	}
	if hasResources(s) {
		c.Resources = &spec.ResourcesCapability{Subscribe: true, ListChanged: true}
	}
	if hasPrompts(s) {
		c.Prompts = &spec.PromptsCapability{ListChanged: true}
	}
	if completes(s) {
		c.Completions = spec.JSONObject{}
	}
	c.Logging = spec.JSONObject{}
	c.Extensions = s.extensions.declared(c.Extensions)
	if s.taskTools.Load() && r.TasksExtension {
		c.Extensions[spec.ExtensionTasks] = spec.JSONObject{}
	}
	if len(c.Extensions) == 0 {
		c.Extensions = nil
	}
	if s.taskTools.Load() && r.LegacyTasks {
		c.Tasks = legacyTasks()
	}
	return c
}

func legacyTasks() *spec.TasksCapability {
	return &spec.TasksCapability{
		List: spec.JSONObject{}, Cancel: spec.JSONObject{},
		Requests: &spec.TaskRequestsCapability{Tools: &spec.TaskToolsCapability{Call: spec.JSONObject{}}},
	}
}

// extensions are what a server has beyond the protocol: methods and declared
// extensions. Both maps are copied when they change.
type extensions struct {
	mu       sync.Mutex
	handlers atomic.Pointer[map[string]farcall.Handler]
	settings atomic.Pointer[map[string]any]
}

// Handle adds a method, or notification, of an extension. It panics for those that the server
// handles itself. Of the protocol's notifications, notifications/roots/list_changed can have a
// handler. The handler's context is that of a tool's handler, and its request is as the client sent
// it. The result must be an object; what every result of the client's revision has is added.
func (s *Server) Handle(method string, h farcall.Handler) {
	s.checkMade()
	if method == "" || h == nil {
		misuse("the method %q needs a name and a handler", method)
	}
	if _, taken := methods[method]; taken || reserved(method) {
		misuse("Handle: the server itself handles %q; the handler would never be called", method)
	}
	change(&s.extensions.mu, &s.extensions.handlers, method, h)
}

// AddExtension declares an extension. Its id is such as "com.example/billing",
// to clients of revisions that know extensions. The settings must marshal to an
// object; nil is an empty one.
func (s *Server) AddExtension(id string, settings any) {
	if !strings.Contains(id, "/") {
		misuse("the extension %q needs a prefix, such as in com.example/billing", id)
	}
	if settings == nil {
		settings = struct{}{}
	}
	raw, err := jsonv2.Append(nil, settings)
	if err != nil || raw[0] != '{' {
		misuse("the settings of the extension %q must be an object", id)
	}
	change(&s.extensions.mu, &s.extensions.settings, id, any(jsonrpc.Raw(raw)))
}

func change[V any](mu *sync.Mutex, at *atomic.Pointer[map[string]V], key string, value V) {
	mu.Lock()
	defer mu.Unlock()
	all := map[string]V{}
	if old := at.Load(); old != nil {
		all = maps.Clone(*old)
	}
	all[key] = value
	at.Store(&all)
}

// declared returns what goes into the capabilities: its own map.
func (x *extensions) declared(more map[string]any) map[string]any {
	all := map[string]any{}
	maps.Copy(all, more)
	if own := x.settings.Load(); own != nil {
		maps.Copy(all, *own)
	}
	return all
}

func (x *extensions) find(method string) farcall.Handler {
	if all := x.handlers.Load(); all != nil {
		return (*all)[method]
	}
	return nil
}

// serve calls the handler of a method of an extension.
func (x *extensions) serve(c *call, req *farcall.Request) (jsonrpc.Raw, error) {
	h := x.find(c.method)
	if h == nil {
		return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound,
			"Method not found: %q is no method of this server in revision %s", c.method, c.rev.Name)
	}
	result, err := h.ServeRPC(c, req)
	if err != nil {
		return nil, err
	}
	raw, ok := result.(jsonrpc.Raw)
	if !ok {
		if raw, err = jsonv2.Append(nil, result); err != nil {
			return nil, err
		}
	}
	if len(raw) == 0 || string(raw) == "null" {
		return jsonrpc.Raw("{}"), nil
	}
	if raw[0] != '{' {
		return nil, errNoResultObject
	}
	return raw, nil
}

var errNoResultObject = &jsonrpc.Error{
	Code:    jsonrpc.InternalError,
	Message: "Internal error: the result of the method is no object",
}
