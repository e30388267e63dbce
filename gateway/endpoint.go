package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/refs"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// endpoint is one address for MCP: all servers, one of them, or a virtual one. It stays when
// the configuration changes; which servers those are, it asks for each call.
type endpoint struct {
	g      *Gateway
	name   string   // of the one server, or of the virtual one; "" for all
	keys   [][]byte // that seal its sessions
	server *mcp.Server
	http   *mcphttp.Handler
	ws     http.Handler
	began  beginnings // of its sessions
	// announced are the servers in the description of search_tools, as it was shown last; nil: it was
	// not.
	announced atomic.Pointer[map[string]bool]
}

var _ relay.Relay = (*endpoint)(nil)

// servers returns those behind the endpoint that speak MCP, and the view of them.
func (e *endpoint) servers() (*route.View, []*server) {
	p := e.g.plan.Load()
	if e.name == "" {
		return p.all, p.mcp
	}
	if v := p.virtual[e.name]; v != nil {
		return v.view, v.servers
	}
	s := p.byName[e.name]
	if s == nil || s.mcp == nil {
		return route.NewView(nil, nil), nil // it was taken out
	}
	return s.alone, []*server{s}
}

// find finds what a name stands for.
func (e *endpoint) find(ctx context.Context, kind, name string) (route.Target, bool, error) {
	view, _ := e.servers()
	target, ok, err := view.Find(ctx, kind, name)
	for {
		newer, _ := e.servers()
		if ok || newer == view || ctx.Err() != nil {
			break
		}
		view = newer // the other one was closed on the way
		target, ok, err = view.Find(ctx, kind, name)
	}
	if err == nil {
		return target, ok && e.offers(ctx, kind, &target), nil
	}
	if several, is := errors.AsType[*route.AmbiguousError](err); is {
		return e.choose(ctx, several)
	}
	if maybe, is := errors.AsType[*route.UnknownError](err); is {
		if held := e.g.plan.Load().heldError(e, kind, name, maybe.Missing); held != nil {
			return target, ok, held
		}
		err = &jsonrpc.Error{
			Code: jsonrpc.Unavailable, Message: maybe.Text(!e.g.plain()),
			Data: jsonrpc.Raw(`{"sent":"no","retryable":true}`), Cause: err,
		}
	}
	return target, ok, err
}

// forwarded is Forward with the codes of plain JSON-RPC in errors of the gateway itself.
func (e *endpoint) forwarded(
	ctx context.Context, rev *era.Revision, method string, params jsonrpc.Raw,
) (jsonrpc.Raw, *era.Revision, error) {
	if e.g.draining.Load() {
		return nil, nil, errDraining()
	}
	if !e.virtual().admits(ctx) {
		return nil, nil, errNotThere()
	}
	defer farcall.Waiting(ctx)() // what is under way, the servers bound
	var raw jsonrpc.Raw
	var err error
	switch method {
	case spec.MethodToolsList:
		raw, err = e.list(ctx, "tools", rev, params)
	case spec.MethodResourcesList:
		raw, err = e.list(ctx, "resources", rev, params)
	case spec.MethodResourcesTemplatesList:
		raw, err = e.list(ctx, "templates", rev, params)
	case spec.MethodPromptsList:
		raw, err = e.list(ctx, "prompts", rev, params)
	default:
		w := e.g.newCalling(ctx)
		w.Method, w.Params, w.Revision = method, e.g.shield.unsigned(params), rev
		r, err := e.call(w)
		return r.Raw, r.Revision, w.kept.left(err)
	}
	return raw, era.Latest(), err
}

// call makes a call that is about one thing that one server has.
func (e *endpoint) call(w *calling) (upstream.Result, error) {
	switch w.Method {
	case spec.MethodToolsCall:
		return e.named(w, "tools", "tool")
	case spec.MethodPromptsGet:
		return e.named(w, "prompts", "prompt")
	case spec.MethodResourcesRead:
		return e.read(w)
	case spec.MethodCompletionComplete:
		return e.complete(w)
	}
	return e.custom(w)
}

// named calls a tool, or gets a prompt.
func (e *endpoint) named(w *calling, kind, word string) (r upstream.Result, err error) {
	name, ok := text(w.Params, "name")
	if !ok {
		return upstream.Result{},
			jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: %s needs a member %q, a string",
				w.Method, "name")
	}
	if s := e.searchOf(); s != nil && kind == route.Tools && isSearch(name) {
		if name == searchTools {
			w.observeName(kind, name)
			return e.search(w, s)
		}
		if w.via = name; w.via == callToolRead && !s.Split {
			return upstream.Result{},
				e.g.shield.missing(w, callToolRead, e.unknown(kind, word, callToolRead))
		}
		var refused string
		if name, refused = inner(w); refused != "" {
			return upstream.Result{},
				e.g.shield.missing(w, w.via,
					jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: %s", refused))
		}
	}
	return e.namedAs(w, kind, word, name)
}

// namedAs calls the tool of a name, or gets the prompt.
func (e *endpoint) namedAs(w *calling, kind, word, name string) (r upstream.Result, err error) {
	target, ok, err := e.find(w, kind, name)
	if err != nil {
		return upstream.Result{}, err
	}
	if !ok && !w.signedIn {
		if s, own := e.signsInto(w, kind, name); s != nil {
			return e.signInFirst(w, s, own, func() (upstream.Result, error) {
				return e.namedAs(w, kind, word, name)
			})
		}
	}
	if !ok {
		return upstream.Result{}, e.g.shield.missingThen(w, name, func() error {
			blocked, err := e.absent(kind, word, name)
			switch {
			case blocked:
			case w.via != "":
				err = e.suggest(w, name, err)
			default:
				err = e.meant(w, kind, name, err)
			}
			return err
		})
	}
	w.observeName(kind, name)
	e.address(w, &target, "name")
	var shown jsonrpc.Raw
	var unfit error
	w.signs = e.g.plan.Load().byName[target.Source].isSignIn(&target)
	w.hidden = w.via != "" && !e.shown(w, kind, &target)
	if target.Tool != nil {
		shown, unfit = e.virtual().arguments(w, &target) // the guard sees what the tool gets
		w.unfit = unfit != nil
		w.bind(e, target.Source, target.Name)
	}
	done, err := e.g.shield.beginAt(w, &target)
	if err != nil {
		return upstream.Result{}, err
	}
	err = errPanicked // until it returns
	defer func() { done(r.Raw, err) }()
	if is, ok := errors.AsType[*unfitError](unfit); ok {
		return toolError(is.text), nil
	} else if unfit != nil {
		return upstream.Result{}, unfit
	}
	if tool := target.Tool; tool != nil {
		if w.via == "" { // call_tool has no headers for the arguments of other tools
			if err := relay.CheckHeaders(w, name, shown); err != nil {
				return upstream.Result{}, err
			}
		}
		w.Idempotent = tool.Repeatable
		w.Task = relay.TaskOf(w) != relay.NoTask && (w.via == "" || e.runsTask(w, &target))
		return e.callOnce(w, &target)
	}
	return e.forward(w, target.Source)
}

// read reads a resource.
func (e *endpoint) read(w *calling) (r upstream.Result, err error) {
	uri, ok := text(w.Params, "uri")
	if !ok {
		return upstream.Result{},
			jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: %s needs a member %q, a string",
				w.Method, "uri")
	}
	target, ok, err := e.find(w, "resources", uri)
	if err != nil {
		return upstream.Result{}, err
	}
	if !ok && !w.signedIn {
		if s, own := e.signsInto(w, route.Resources, uri); s != nil {
			return e.signInFirst(w, s, own, func() (upstream.Result, error) { return e.read(w) })
		}
	}
	if !ok {
		err := e.blockedResource(uri)
		if err == nil {
			err = notFound(uri)
		}
		return upstream.Result{}, e.g.shield.missing(w, uri, err)
	}
	e.address(w, &target, "uri")
	done, err := e.g.shield.beginAt(w, &target)
	if err != nil {
		return upstream.Result{}, err
	}
	if blocked := e.blockedTarget(uri, &target); blocked != nil {
		done(nil, blocked)
		return upstream.Result{}, blocked
	}
	err = errPanicked // until it returns
	defer func() { done(r.Raw, err) }()
	w.Idempotent = true
	return e.forward(w, target.Source)
}

// notFound is the error for a resource that is not there, in the newest revision.
func notFound(uri string) error {
	return &jsonrpc.Error{
		Code: era.Latest().ResourceNotFound, Message: "Resource not found: " + uri,
		Data: append(jsonrpc.AppendString([]byte(`{"uri":`), uri), '}'),
	}
}

// complete completes an argument of a prompt or a template.
func (e *endpoint) complete(w *calling) (r upstream.Result, err error) {
	ref := scan.Member(w.Params, "ref")
	kind, member := "prompts", "name"
	of, _ := text(ref, "type")
	if of == spec.RefResource {
		kind, member = "resources", "uri"
	}
	name, ok := text(ref, member)
	if !ok {
		return upstream.Result{},
			jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: %s needs a %q with a type and a %s",
				w.Method, "ref", member)
	}
	target, ok, err := e.find(w, kind, name)
	if err != nil {
		return upstream.Result{}, err
	}
	if !ok {
		w.Method = uses[kind]
		err := jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: unknown %s: %s",
			strings.TrimSuffix(kind, "s"), name)
		return upstream.Result{}, e.g.shield.missing(w, name, err)
	}
	w.refs = e.refs(target.Source)
	w.Params = w.refs.Up(refs.Params, w.Method, w.Params)
	// A member that is there twice is not to name another one to the server.
	ref = withMember(withMember(scan.Member(w.Params, "ref"), "type", jsonrpc.AppendString(nil, of)),
		member, jsonrpc.AppendString(nil, target.Name))
	w.Params = withMember(w.Params, "ref", ref)
	use := &guard.Call{
		Method: uses[kind], Upstream: target.Source, Name: target.Name,
		Params: w.Params,
	}
	done, err := e.g.shield.begin(w, w.Revision, use)
	if err != nil {
		return upstream.Result{}, err
	}
	err = errPanicked // until it returns
	defer func() { done(r.Raw, err) }()
	w.Idempotent = true
	return e.forward(w, target.Source)
}

// forward makes a call at a server.
func (e *endpoint) forward(w *calling, name string) (upstream.Result, error) {
	w.refs = e.refs(name)
	return w.down(e.forwardAsItIs(w, name))
}

// forwardAsItIs is forward without giving the answer the form of this address.
func (e *endpoint) forwardAsItIs(w *calling, name string) (upstream.Result, error) {
	for {
		s := e.g.plan.Load().byName[name]
		if s == nil || s.mcp == nil {
			return upstream.Result{},
				jsonrpc.Errorf(jsonrpc.InvalidParams, "the server %s has just been taken out of the gateway",
					name)
		}
		var err error
		if w.Header, err = s.forwarded(w); err != nil {
			return upstream.Result{}, err
		}
		r, err := e.forwardTo(w, s)
		if w.Err() != nil || !closing(err) || e.g.plan.Load().byName[name] == s {
			return r, err
		}
	}
}

// closing reports whether a server has refused a call because it is being closed.
func closing(err error) bool {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && wire.Code == jsonrpc.ShuttingDown.Condition().Modern
}

// forwardTo makes a call at a server, as its caller's revision and what the caller
// can be asked demand.
func (e *endpoint) forwardTo(w *calling, s *server) (upstream.Result, error) {
	w.at, w.kept, w.Tasks = s, nil, w // the server may make a task of it
	if w.seen != nil {
		w.seen.Upstream = s.cfg.Name
	}
	if err := w.atHome(); err != nil {
		return upstream.Result{}, err
	}
	return e.forwardFor(w, s)
}

// forwardSigned is forwardTo when the caller has signed in, where they have to.
func (e *endpoint) forwardSigned(w *calling, s *server) (upstream.Result, error) {
	w.LogLevel, w.Notice = w.client.LogLevel, notice
	if w.client.ProgressWanted {
		w.Progress = progress
	}
	can := w.client.Capabilities
	asks := can.Elicitation != nil || can.Sampling != nil || can.Roots != nil
	if w.Revision.InputRounds {
		modern, err := s.modern(w, w.Caller)
		if err != nil {
			return upstream.Result{}, err
		}
		// It asks by its answer, and the client answers it; but for a task. One that
		// lives for a call alone would not know its own requestState again.
		if modern && s.mcp.Lasts(w.Caller) {
			if asks && relay.TaskOf(w) != relay.NoTask {
				w.Ask = askingOf(w.refs, asking(w))
			}
			return e.sealed(w, s)
		}
		state := scan.Member(w.Params, "requestState") != nil
		w.Params = without(w.Params, "requestState", "inputResponses")
		w.Rounds = modern
		if s.mcp.RootsFirst() {
			if w.Caller.Roots, err = rootsOf(w); err != nil {
				return upstream.Result{}, err
			}
		}
		if asks || state {
			return e.resumable(w, s.mcp)
		}
		return w.callAt(s)
	}
	w.Rounds = true
	if asks {
		w.Ask = askingOf(w.refs, asking(w))
	}
	return w.callAt(s)
}

// rootsOf asks a modern client for its roots before a call at a legacy server that asks for them
// outside of calls, and keeps them: each call must get the connection that has its client's roots.
// Nil: the client has none.
func rootsOf(w *calling) (roots jsonrpc.Raw, err error) {
	if w.client.Capabilities.Roots == nil {
		return nil, nil
	}
	switch w.Method {
	case spec.MethodToolsCall, spec.MethodPromptsGet, spec.MethodResourcesRead: // others ask nothing
		err = mcp.Ask(relay.Named(w, "farcall.dev/roots"), spec.MethodRootsList, nil, &roots)
	}
	if errors.Is(err, mcp.ErrAsked) || w.Err() != nil {
		return nil, err
	}
	return roots, nil // a client that does not answer has no roots
}

// sealed makes a call at a modern server. The state belongs to the caller.
func (e *endpoint) sealed(w *calling, s *server) (upstream.Result, error) {
	bound, to := e.g.states, e.name+"/"+s.cfg.Name
	given := w.Params
	defer func() { w.Params = given }() // it may be made once more
	var err error
	if w.Params, err = bound.open(w, to); err != nil {
		return upstream.Result{}, err
	}
	r, err := w.callAt(s)
	return bound.close(w, to, r), err
}

// asking returns what asks the client of a call and waits for its answer.
func asking(call context.Context) asker {
	return func(
		asked context.Context, method string, params jsonrpc.Raw,
	) (answer jsonrpc.Raw, err error) {
		if w, ok := call.Value(callingKey{}).(*calling); ok && w.asked != nil {
			w.asked.Store(true)
		}
		// The question belongs to the call of the client, whatever brought it here.
		ctx, cancel := context.WithCancel(call)
		defer cancel()
		defer context.AfterFunc(asked, cancel)()
		err = mcp.Ask(ctx, method, params, &answer)
		return answer, err
	}
}

// modern reports whether a server is of a stateless revision, which it may have
// to be started for.
func (s *server) modern(ctx context.Context, who upstream.Caller) (bool, error) {
	info, err := s.mcp.Describe(ctx, who)
	if err != nil {
		return false, err
	}
	rev := era.Lookup(info.Revision)
	return rev != nil && rev.InputRounds, nil
}

// TaskSupport implements relay.Relay.
func (e *endpoint) TaskSupport(ctx context.Context, tool string) string {
	if isSearch(tool) && e.searchOf() != nil {
		return e.searchTasks(ctx, tool)
	}
	target, ok, err := e.find(ctx, "tools", tool)
	if err != nil || !ok || !e.shown(ctx, "tools", &target) {
		return ""
	}
	if seen := observe.From(ctx); seen != nil {
		// The call itself may run as a task, which is not observed.
		seen.Tool, seen.Upstream = tool, target.Source
	}
	return e.taskSupport(ctx, &target)
}

// taskSupport is TaskSupport of a tool that was found.
func (e *endpoint) taskSupport(ctx context.Context, target *route.Target) string {
	if target.Tool.TaskSupport != "" {
		return target.Tool.TaskSupport
	}
	s := e.g.plan.Load().byName[target.Source]
	if s == nil || s.mcp == nil {
		return ""
	}
	if wants, err := s.wantsSignIn(ctx); wants || err != nil {
		return ""
	}
	// A modern server decides on its own.
	if info, err := s.mcp.Describe(ctx, e.g.caller(ctx)); err == nil &&
		info.Capabilities.Extensions[spec.ExtensionTasks] != nil {
		return spec.TaskOptional
	}
	return ""
}

// Notified implements relay.Relay.
func (e *endpoint) Notified(ctx context.Context, method string, params jsonrpc.Raw) {
	who := e.g.caller(ctx)
	_, servers := e.servers()
	for _, s := range servers {
		if !ofProtocol(method) {
			done, err := e.g.shield.admit(ctx, s.cfg.Name, method, params)
			if err != nil {
				continue // it was written down
			}
			done(nil, nil)
		}
		s.mcp.Notify(ctx, who, method, params)
	}
}

// Holds reports whether a session has its own connections or subscriptions at a server, so that it
// is kept while its client is away.
func (e *endpoint) Holds(session string) bool {
	_, servers := e.servers()
	return slices.ContainsFunc(servers, func(s *server) bool { return s.mcp.Holds(session) })
}

// Closed implements relay.Relay.
func (e *endpoint) Closed(session string) {
	_, servers := e.servers()
	for _, s := range servers {
		s.mcp.Forget(session)
	}
}
