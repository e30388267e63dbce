package gateway

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/hook"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
)

// The phases of a hook, and what its failure means.
const (
	hookBefore = "before"
	hookAfter  = "after"
	hookDeny   = "deny"
	hookAllow  = "allow"
)

// The defaults of a Hook.
const (
	hookTimeout  = 2 * time.Second
	hookInFlight = 16
)

// hooks are those of the calls of one upstream's tools, in the order in which they are asked. A nil
// *hooks has none.
type hooks struct {
	before, after []boundHook
}

// A boundHook is a hook with the tools that it is about: patterns of the upstream's own names;
// empty: all.
type boundHook struct {
	*hook.Hook

	tools []string
}

// newHooks makes the hooks of a configuration, by upstream. all has each hook once.
func (g *Gateway) newHooks(
	c *Config, private []string,
) (by map[string]*hooks, all []*hook.Hook, err error) {
	bind := func(
		h *Hook, name, path string, upstreams []*Upstream,
		toolsOf func(upstream string) (tools []string, some bool),
	) error {
		made, err := g.newHook(h, cmp.Or(h.Name, name), private)
		if err != nil {
			return fmt.Errorf("gateway: %s: %w", path, err)
		}
		all = append(all, made)
		for _, u := range upstreams {
			tools, some := toolsOf(u.Name)
			if !some || u.Disabled {
				continue
			}
			if by == nil {
				by = map[string]*hooks{}
			}
			if by[u.Name] == nil {
				by[u.Name] = &hooks{}
			}
			list := &by[u.Name].before
			if h.On == hookAfter {
				list = &by[u.Name].after
			}
			*list = append(*list, boundHook{made, tools})
		}
		return nil
	}
	for i, h := range c.Hooks {
		name := fmt.Sprintf("hooks[%d]", i)
		err := bind(&h, name, name, c.Upstreams, func(upstream string) ([]string, bool) {
			tools := chosenOf(h.Tools, upstream)
			return tools, tools == nil || len(tools) > 0
		})
		if err != nil {
			return nil, nil, err
		}
	}
	for _, u := range c.Upstreams {
		for i, h := range u.Hooks {
			name := fmt.Sprintf("upstreams.%s.hooks[%d]", u.Name, i)
			if err := bind(&h, name, name, []*Upstream{u}, func(string) ([]string, bool) {
				return h.Tools, true
			}); err != nil {
				return nil, nil, err
			}
		}
	}
	return by, all, nil
}

// sameServer reports whether two configurations differ in their hooks at most, which need no
// restart.
func (c *Upstream) sameServer(o *Upstream) bool {
	one, two := *c, *o
	one.Hooks, two.Hooks = nil, nil
	return reflect.DeepEqual(&one, &two)
}

// newHook makes a hook.
func (g *Gateway) newHook(h *Hook, name string, private []string) (*hook.Hook, error) {
	o := &hook.Options{
		Name: name, After: h.On == hookAfter, Timeout: cmp.Or(h.Timeout, hookTimeout),
		Open:        h.OnFailure == hookAllow,
		MaxInFlight: cmp.Or(h.MaxInFlight, hookInFlight), Logger: g.component("hook"),
	}
	if h.URL == "" {
		child := &Upstream{Name: name, Command: h.Command, Env: h.Env}
		line, err := child.confined(g.opts.Sandbox, private, nil)
		if err != nil {
			return nil, err
		}
		o.Command, o.Env = func() []string { return line }, child.Environ(os.Environ())
		return hook.New(o), nil
	}
	at := &Upstream{URL: h.URL, Headers: h.Headers}
	at.TLS = h.TLS
	config, err := at.tlsConfig(g.component("hook"))
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	o.URL, o.Header = h.URL, at.header()
	o.Client = &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config,
			MaxIdleConnsPerHost: o.MaxInFlight, IdleConnTimeout: 90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return hook.New(o), nil
}

// of returns the hooks that are about a tool, nil when there are none.
func (h *hooks) of(tool string) *hooks {
	if h == nil {
		return nil
	}
	about := func(list []boundHook) (own []boundHook) {
		for _, b := range list {
			if len(b.tools) == 0 || slices.ContainsFunc(b.tools, func(p string) bool {
				return glob.Match(p, tool)
			}) {
				own = append(own, b)
			}
		}
		return own
	}
	before, after := about(h.before), about(h.after)
	if len(before)+len(after) == 0 {
		return nil
	}
	return &hooks{before, after}
}

// bind finds the hooks of the tool that is called, and what the endpoint leaves of its results.
func (w *calling) bind(e *endpoint, source, tool string) {
	p := e.g.plan.Load()
	w.tool = tool
	if v := p.virtual[e.name]; v != nil {
		w.output = v.cfg.Forms[source+"/"+tool].Output
	}
	if w.hooks = p.hooks[source].of(tool); w.hooks != nil {
		w.asks = new([]guard.Asked)
	}
}

// callHooked makes a call of a tool between the hooks before it and those after it. What is kept of
// results is between them, so that each call is seen by all hooks.
func (e *endpoint) callHooked(w *calling, t *route.Target) (upstream.Result, error) {
	if w.hooks != nil {
		if err := e.before(w, t); err != nil {
			return upstream.Result{}, err
		}
	}
	r, err := e.callTool(w, t)
	if err != nil {
		return r, w.afterError(w.hookCall(t.Source, t.Name, w.Revision, nil), err)
	}
	return w.after(r, t.Source, t.Name)
}

// before asks the hooks before a call, and has the guard decide again about arguments that they
// have changed.
func (e *endpoint) before(w *calling, t *route.Target) error {
	given := jsonrpc.Raw(scan.Member(w.Params, "arguments"))
	c := w.hookCall(t.Source, t.Name, w.Revision, given)
	if err := w.askAll(w.hooks.before, c); err != nil || string(c.Value) == string(given) {
		return err
	}
	w.Params = withMember(w.Params, "arguments", c.Value)
	return e.g.shield.again(w, t)
}

// after gives a result the form of the endpoint, and asks the hooks after the call about it.
func (w *calling) after(r upstream.Result, source, tool string) (upstream.Result, error) {
	if r.Raw = w.output.narrow(r.Raw); w.hooks == nil {
		return r, nil
	}
	c := w.hookCall(source, tool, r.Revision, r.Raw)
	if err := w.askAll(w.hooks.after, c); err != nil {
		return upstream.Result{}, err
	}
	r.Raw = c.Value
	return r, nil
}

// askAll asks hooks one after the other. Each gets, and the call has in the end, what those before
// it have made of the value. Its error is that of the call.
func (w *calling) askAll(all []boundHook, c *hook.Call) error {
	for _, h := range all {
		v, err := w.ask(h.Hook, c)
		if err != nil {
			return err
		}
		if v.Value != nil {
			c.Value = v.Value
		}
	}
	return nil
}

// ask asks a hook. Its error is that of the call.
func (w *calling) ask(h *hook.Hook, c *hook.Call) (hook.Verdict, error) {
	v, err := h.Ask(w, c)
	if err != nil {
		return v, err
	}
	switch {
	case v.Value == nil || !h.After():
	case c.Error && errorOf(v.Value) == nil:
		v = h.Failed(v, "the changed error is no error of JSON-RPC")
	case !c.RPC && !sameKind(c.Value, v.Value):
		v = h.Failed(v, "it has changed which kind of result it is")
	}
	*w.asks = append(*w.asks, guard.Asked{Hook: h.Name(), Outcome: string(v.Outcome), Took: v.Took})
	if v.Outcome.Passes() {
		return v, nil
	}
	return v, refusedBy(w.Revision, c.RPC, h, &v)
}

// sameKind reports whether a result that a hook has changed still says that it is whole, that it
// asks, or that it is a task.
func sameKind(was, is jsonrpc.Raw) bool {
	for _, name := range []string{"resultType", "task"} {
		if string(scan.Member(was, name)) != string(scan.Member(is, name)) {
			return false
		}
	}
	return true
}

// A hookError is the cause of the error with which a hook has refused a call.
type hookError struct {
	text   string
	status int
}

func (r *hookError) Error() string { return r.text }

// HTTPStatus is the status of the answer, as that of the guard's refusals.
func (r *hookError) HTTPStatus() int { return r.status }

// refusedBy is the answer to a call that a hook has not let pass.
func refusedBy(rev *era.Revision, rpc bool, h *hook.Hook, v *hook.Verdict) error {
	kind, text, data := jsonrpc.PermissionDenied, "", ""
	switch v.Outcome {
	case hook.Denied:
		if v.Reason != "" {
			data = `{"reason":` + string(jsonrpc.AppendString(nil, v.Reason)) + `}`
		}
	case hook.Busy:
		kind, text, data = jsonrpc.Overloaded, ": too many calls wait to be examined",
			`{"sent":"no","retryable":true,"retryAfterMs":1000}`
	default:
		kind, text, data = jsonrpc.Unavailable, ": the call cannot be examined",
			`{"sent":"no","retryable":true}`
	}
	if h.After() && v.Outcome != hook.Denied {
		data = `{"sent":"yes","retryable":false}`
	}
	c := kind.Condition()
	code := c.Legacy
	switch {
	case rpc:
		code = c.Plain
	case modernCodes(rev):
		code = c.Modern
	}
	cause := &hookError{"gateway: the hook " + h.Name() + ": " + string(v.Outcome), c.HTTPStatus}
	wire := &jsonrpc.Error{Code: code, Message: c.Name + text, Cause: cause}
	if data != "" {
		wire.Data = jsonrpc.Raw(data)
	}
	return wire
}

// hookCall is what hooks learn of a call. The session is named by a hash, since its id lets others
// into it.
func (w *calling) hookCall(source, tool string, rev *era.Revision, value jsonrpc.Raw) *hook.Call {
	c := &hook.Call{Owner: w.Caller.Owner, Upstream: source, Tool: tool, Value: value}
	if rev != nil {
		c.Revision = rev.Name
	}
	if id := w.client.Session; id != "" {
		sum := sha256.Sum256([]byte(id))
		c.Session = hex.EncodeToString(sum[:8])
	}
	if t := farcall.TraceFrom(w); t.Parent != "" {
		c.TraceParent, c.TraceState = t.Parent, t.State
	}
	if p := guard.From(w); p != nil {
		c.Method, c.Kind, c.Issuer, c.ID = p.Method, p.Kind, p.Issuer, p.ID
	}
	return c
}
