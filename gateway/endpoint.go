package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// endpoint is one address for MCP: all servers, or one of them. It stays when
// the configuration changes; which servers those are, it asks for each call.
type endpoint struct {
	g      *Gateway
	name   string // of the one server; "" for all
	server *mcp.Server
	http   *mcphttp.Handler
	ws     http.Handler
}

var _ mcp.Relay = (*endpoint)(nil)

// servers returns those behind the endpoint that speak MCP, and the view of them.
func (e *endpoint) servers() (*route.View, []*server) {
	p := e.g.plan.Load()
	if e.name == "" {
		return p.all, p.mcp
	}
	s := p.byName[e.name]
	if s == nil || s.mcp == nil {
		return route.NewView(nil, nil), nil // it was taken out
	}
	return s.alone, []*server{s}
}

// caller says who calls.
func (g *Gateway) caller(ctx context.Context) upstream.Caller {
	who := upstream.Caller{Principal: g.principal(ctx)}
	if c := mcp.ClientFrom(ctx); c != nil {
		who.Session, who.Info, who.Capabilities = c.Session, c.InfoRaw, c.CapabilitiesRaw
	}
	return who
}

func (g *Gateway) principal(ctx context.Context) string {
	if g.opts.Principal == nil {
		return ""
	}
	r := mcphttp.RequestFrom(ctx)
	if r == nil {
		return ""
	}
	return g.opts.Principal(r)
}

// Describe implements mcp.Relay. One server speaks for itself; of several it is
// what all of them can do, as far as they are up.
func (e *endpoint) Describe(ctx context.Context) (*mcp.ServerInfo, error) {
	if e.g.draining.Load() {
		return nil, errDraining()
	}
	_, servers := e.servers()
	who := e.g.caller(ctx)
	c := e.g.plan.Load().config
	if len(servers) == 1 && (e.name != "" || c.Name == "") {
		return servers[0].mcp.Describe(ctx, who)
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	infos := make([]*mcp.ServerInfo, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { infos[i], _ = s.mcp.Describe(ctx, who) }) // one that is down is described when it is up
	}
	wg.Wait()
	all := &mcp.ServerInfo{Name: c.name(), Title: c.Title, Version: e.g.opts.Version, Instructions: instructions(c, servers, infos), Capabilities: union(infos)}
	return all, nil
}

// union is what any of the servers can do. One that is down may offer anything
// once it is up.
func union(infos []*mcp.ServerInfo) *spec.ServerCapabilities {
	all := &spec.ServerCapabilities{}
	var tools, resources, prompts bool
	for _, info := range infos {
		if info == nil {
			tools, resources, prompts = true, true, true
			continue
		}
		c := info.Capabilities
		tools, resources, prompts = tools || c.Tools != nil, resources || c.Resources != nil, prompts || c.Prompts != nil
		if c.Completions != nil {
			all.Completions = spec.JSONObject{}
		}
		if c.Logging != nil {
			all.Logging = spec.JSONObject{}
		}
		if c.Tasks != nil {
			all.Tasks = c.Tasks
		}
		for id, settings := range c.Extensions {
			if all.Extensions == nil {
				all.Extensions = map[string]any{}
			}
			all.Extensions[id] = settings
		}
	}
	if tools || len(infos) == 0 {
		all.Tools = &spec.ToolsCapability{ListChanged: true}
	}
	if resources {
		all.Resources = &spec.ResourcesCapability{Subscribe: true, ListChanged: true}
	}
	if prompts {
		all.Prompts = &spec.PromptsCapability{ListChanged: true}
	}
	return all
}

// instructions are the configuration's own, or those of the servers, each with
// its name.
func instructions(c *Config, servers []*server, infos []*mcp.ServerInfo) string {
	if c.Instructions != "" {
		return c.Instructions
	}
	var parts []string
	for i, info := range infos {
		if info != nil && info.Instructions != "" {
			parts = append(parts, servers[i].cfg.Name+": "+info.Instructions)
		}
	}
	return strings.Join(parts, "\n\n")
}

// Forward implements mcp.Relay.
func (e *endpoint) Forward(ctx context.Context, rev *era.Revision, method string, params jsonrpc.Raw) (jsonrpc.Raw, *era.Revision, error) {
	if e.g.draining.Load() {
		return nil, nil, errDraining()
	}
	defer farcall.Waiting(ctx)() // what is under way, the servers bound
	var raw jsonrpc.Raw
	var err error
	switch method {
	case spec.MethodToolsList:
		raw, err = e.list(ctx, "tools", params)
	case spec.MethodResourcesList:
		raw, err = e.list(ctx, "resources", params)
	case spec.MethodResourcesTemplatesList:
		raw, err = e.list(ctx, "templates", params)
	case spec.MethodPromptsList:
		raw, err = e.list(ctx, "prompts", params)
	default:
		r, err := e.call(ctx, &upstream.Call{Method: method, Params: params, Revision: rev})
		return r.Raw, r.Revision, err
	}
	return raw, era.Latest(), err
}

// call makes a call that is about one thing that one server has.
func (e *endpoint) call(ctx context.Context, c *upstream.Call) (upstream.Result, error) {
	switch c.Method {
	case spec.MethodToolsCall:
		return e.named(ctx, c, "tools", "tool")
	case spec.MethodPromptsGet:
		return e.named(ctx, c, "prompts", "prompt")
	case spec.MethodResourcesRead:
		return e.read(ctx, c)
	case spec.MethodCompletionComplete:
		return e.complete(ctx, c)
	}
	return e.custom(ctx, c)
}

// named calls a tool, or gets a prompt.
func (e *endpoint) named(ctx context.Context, c *upstream.Call, kind, word string) (upstream.Result, error) {
	name, ok := text(c.Params, "name")
	if !ok {
		return upstream.Result{}, jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: %s needs a member %q, a string", c.Method, "name")
	}
	view, _ := e.servers()
	target, ok, err := view.Find(ctx, kind, name)
	if err != nil {
		return upstream.Result{}, err
	}
	if !ok {
		return upstream.Result{}, e.unknown(word, name)
	}
	if target.Name != name {
		c.Params = withMember(c.Params, "name", jsonrpc.AppendString(nil, target.Name))
	}
	if kind == "tools" {
		c.Idempotent = idempotent(target.Item)
		c.Task = scan.Member(c.Params, "task") != nil
	}
	return e.forward(ctx, target.Source, c)
}

// idempotent reports whether a tool says that it may be called twice.
func idempotent(tool jsonrpc.Raw) bool {
	hints := scan.Member(tool, "annotations")
	return string(scan.Member(hints, "readOnlyHint")) == "true" || string(scan.Member(hints, "idempotentHint")) == "true"
}

// unknown is the error for a tool or prompt that is not there, and says why when
// it is because of a pin.
func (e *endpoint) unknown(word, name string) error {
	_, servers := e.servers()
	for _, s := range servers {
		if change, ok := s.blockedTool(name); ok && word == "tool" {
			return jsonrpc.Errorf(jsonrpc.InvalidParams, "The tool %s is blocked: upstream %s has %s it since it was pinned. "+
				"Look at the change on the gateway's page or with 'farcall pin', and accept it with 'farcall pin --accept'", name, s.cfg.Name, change.Kind)
		}
	}
	return jsonrpc.Errorf(jsonrpc.InvalidParams, "Unknown %s: %s", word, name)
}

// read reads a resource.
func (e *endpoint) read(ctx context.Context, c *upstream.Call) (upstream.Result, error) {
	uri, ok := text(c.Params, "uri")
	if !ok {
		return upstream.Result{}, jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: %s needs a member %q, a string", c.Method, "uri")
	}
	view, _ := e.servers()
	target, ok, err := view.Find(ctx, "resources", uri)
	if err != nil {
		return upstream.Result{}, err
	}
	if !ok {
		return upstream.Result{}, notFound(uri)
	}
	if target.Name != uri {
		c.Params = withMember(c.Params, "uri", jsonrpc.AppendString(nil, target.Name))
	}
	c.Idempotent = true
	r, err := e.forward(ctx, target.Source, c)
	if err == nil && target.Name != uri {
		r.Raw = renamed(r.Raw, target.Name, uri)
	}
	return r, err
}

// renamed gives the contents of a resource the URI by which the client knows it.
func renamed(result jsonrpc.Raw, from, to string) jsonrpc.Raw {
	out := jsonrpc.Raw{'['}
	scan.Array(scan.Member(result, "contents"), func(contents []byte) bool {
		if uri, _ := text(contents, "uri"); uri == from {
			contents = withMember(contents, "uri", jsonrpc.AppendString(nil, to))
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, contents...)
		return true
	})
	return withMember(result, "contents", append(out, ']'))
}

// notFound is the error for a resource that is not there, in the newest revision.
func notFound(uri string) error {
	return &jsonrpc.Error{
		Code: era.Latest().ResourceNotFound, Message: "Resource not found: " + uri,
		Data: append(jsonrpc.AppendString([]byte(`{"uri":`), uri), '}'),
	}
}

// complete completes an argument of a prompt or a template.
func (e *endpoint) complete(ctx context.Context, c *upstream.Call) (upstream.Result, error) {
	ref := scan.Member(c.Params, "ref")
	kind, member := "prompts", "name"
	if of, _ := text(ref, "type"); of == spec.RefResource {
		kind, member = "resources", "uri"
	}
	name, ok := text(ref, member)
	if !ok {
		return upstream.Result{}, jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: %s needs a %q with a type and a %s", c.Method, "ref", member)
	}
	view, _ := e.servers()
	target, ok, err := view.Find(ctx, kind, name)
	if err != nil {
		return upstream.Result{}, err
	}
	if !ok {
		return upstream.Result{}, jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: unknown %s: %s", strings.TrimSuffix(kind, "s"), name)
	}
	if target.Name != name {
		c.Params = withMember(c.Params, "ref", withMember(ref, member, jsonrpc.AppendString(nil, target.Name)))
	}
	c.Idempotent = true
	return e.forward(ctx, target.Source, c)
}

// custom makes a call of a method that MCP does not define, at the first server
// that has it.
func (e *endpoint) custom(ctx context.Context, c *upstream.Call) (upstream.Result, error) {
	_, servers := e.servers()
	err := error(jsonrpc.Errorf(jsonrpc.MethodNotFound, "Method not found: no server behind this address has %q", c.Method))
	for _, s := range servers {
		given := *c
		r, failed := e.forward(ctx, s.cfg.Name, &given)
		if failed == nil || !errors.Is(failed, jsonrpc.MethodNotFound) && len(servers) == 1 {
			return r, failed
		}
		if wire := new(jsonrpc.Error); errors.As(failed, &wire) && wire.Code != jsonrpc.MethodNotFound {
			err = failed // unless another one has it
		}
	}
	return upstream.Result{}, err
}

// forward makes a call at a server.
func (e *endpoint) forward(ctx context.Context, name string, c *upstream.Call) (upstream.Result, error) {
	s := e.g.plan.Load().byName[name]
	if s == nil || s.mcp == nil {
		return upstream.Result{}, jsonrpc.Errorf(jsonrpc.InvalidParams, "the server %s has just been taken out of the gateway", name)
	}
	who := mcp.ClientFrom(ctx)
	c.Caller = upstream.Caller{Principal: e.g.principal(ctx), Session: who.Session, Info: who.InfoRaw, Capabilities: who.CapabilitiesRaw}
	c.LogLevel = who.LogLevel
	c.OnTask = func() error { return mcp.StartTask(ctx) }
	c.Notice = func(method string, params jsonrpc.Raw) { _ = mcp.Notify(ctx, method, params) } // a client that is gone needs none
	if who.ProgressWanted {
		c.Progress = func(params jsonrpc.Raw) { _ = mcp.Notify(ctx, spec.NotificationProgress, params) }
	}
	asks := canBeAsked(who.Capabilities)
	if c.Revision.Modern {
		modern, err := s.modern(ctx, c.Caller)
		if err != nil {
			return upstream.Result{}, err
		}
		if modern { // which asks by its answer, and the client answers it
			return s.mcp.Call(ctx, c)
		}
		state := scan.Member(c.Params, "requestState") != nil
		c.Params = without(c.Params, "requestState", "inputResponses")
		if asks || state {
			return e.resumable(ctx, s.mcp, c)
		}
		return s.mcp.Call(ctx, c)
	}
	c.Rounds = true
	if asks {
		c.Ask = func(asking context.Context, method string, params jsonrpc.Raw) (answer jsonrpc.Raw, err error) {
			// The question belongs to the call of the client, whatever brought it here.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(asking, cancel)()
			return answer, mcp.Ask(ctx, method, params, &answer)
		}
	}
	return s.mcp.Call(ctx, c)
}

func canBeAsked(c *spec.ClientCapabilities) bool {
	return c.Elicitation != nil || c.Sampling != nil || c.Roots != nil
}

// modern reports whether a server is of a stateless revision, which it may have
// to be started for.
func (s *server) modern(ctx context.Context, who upstream.Caller) (bool, error) {
	info, err := s.mcp.Describe(ctx, who)
	if err != nil {
		return false, err
	}
	rev := era.Lookup(info.Revision)
	return rev != nil && rev.Modern, nil
}

// TaskSupport implements mcp.Relay.
func (e *endpoint) TaskSupport(ctx context.Context, tool string) string {
	view, _ := e.servers()
	target, ok, err := view.Find(ctx, "tools", tool)
	if err != nil || !ok {
		return ""
	}
	if support, ok := text(scan.Member(target.Item, "execution"), "taskSupport"); ok {
		return support
	}
	s := e.g.plan.Load().byName[target.Source]
	if s == nil {
		return ""
	}
	// A modern server decides by itself.
	if info, err := s.mcp.Describe(ctx, e.g.caller(ctx)); err == nil && info.Capabilities.Extensions[spec.ExtensionTasks] != nil {
		return spec.TaskOptional
	}
	return ""
}

// Watch implements mcp.Relay.
func (e *endpoint) Watch(ctx context.Context, uri string, updated func()) (stop func(), err error) {
	view, _ := e.servers()
	target, ok, err := view.Find(ctx, "resources", uri)
	if err != nil {
		return nil, err
	}
	s := e.g.plan.Load().byName[target.Source]
	if !ok || s == nil {
		return nil, notFound(uri)
	}
	return s.mcp.Watch(ctx, e.g.caller(ctx), target.Name, updated)
}

// Notified implements mcp.Relay.
func (e *endpoint) Notified(ctx context.Context, method string, params jsonrpc.Raw) {
	who := e.g.caller(ctx)
	_, servers := e.servers()
	for _, s := range servers {
		s.mcp.Notify(ctx, who, method, params)
	}
}

// Closed implements mcp.Relay.
func (e *endpoint) Closed(session string) {
	_, servers := e.servers()
	for _, s := range servers {
		s.mcp.Forget(session)
	}
}
