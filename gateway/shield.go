package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A shield is the gateway's guard. A nil one lets everybody do everything.
type shield struct {
	*guard.Guard
}

// methodRPC is how calls of servers that speak no MCP are named to policies, and methodStatus
// that of the page for operators.
const (
	methodRPC    = "rpc"
	methodStatus = "gateway/status"
)

var errShield = errors.New(
	"a guard is put up, or taken away, when the gateway is started: this needs a restart")

func (g *Gateway) newShield(c *Config) error {
	if c.Guard == nil {
		return nil
	}
	var o guard.Options
	if g.opts.Guard != nil {
		o = *g.opts.Guard
	}
	o.Logger = cmp.Or(o.Logger, g.opts.Logger)
	if o.Observer == nil {
		o.Observer = g.clientOptions().Observer
	}
	if g.node != nil {
		o.Shared, o.Secret = g.opts.Shared, g.node.Secret("nonces of DPoP")
		size := c.Cluster.Nodes()
		o.Nodes = func() int { return max(size, g.node.Most()) }
	}
	is, err := guard.New(c.Guard, &o)
	if err != nil {
		return err
	}
	g.shield = &shield{is}
	return nil
}

// Listener bounds the connections of l, as the guard of the configuration says.
func (g *Gateway) Listener(l net.Listener) net.Listener {
	if g.shield == nil {
		return l
	}
	return g.shield.Listener(l)
}

// MaxMessage bounds the messages of a connection in bytes, while the guard knows no principal at
// its other end. 0: there is no other bound than that of the transport.
func (g *Gateway) MaxMessage(ctx context.Context, c *guard.Conn) int {
	if g.shield == nil {
		return 0
	}
	return g.shield.MaxMessage(ctx, c)
}

// Budget returns the part of the gateway's budget for the large frames of a connection: see
// guard.Guard.
func (g *Gateway) Budget(c *guard.Conn) *farcall.Budget {
	if g.shield == nil {
		return budget.Connection(g.budget(), c, c.Remote)
	}
	return g.shield.Budget(c, g.budget())
}

// reload gives the guard another configuration.
func (s *shield) reload(c *Config) error {
	switch {
	case (s == nil) != (c.Guard == nil):
		return errShield
	case s == nil:
		return nil
	}
	return s.Reload(c.Guard)
}

// end writes the audit out.
func (s *shield) end() error {
	if s == nil {
		return nil
	}
	return s.Close()
}

// web lets requests pass with a sender that is known.
func (s *shield) web(h http.Handler) http.Handler {
	if s == nil {
		return h
	}
	return s.HTTP(h)
}

// interceptors find out who calls, before those of the options. conn is nil for HTTP.
func (s *shield) interceptors(conn *guard.Conn, rest []farcall.Interceptor) []farcall.Interceptor {
	if s == nil {
		return rest
	}
	return append([]farcall.Interceptor{s.Identify(conn), s.admitted}, rest...)
}

// admitted asks about what the front answers on its own, and about unauthenticated callers; the
// rest is asked about once it is known which server it is for.
func (s *shield) admitted(next farcall.Handler) farcall.Handler {
	return farcall.HandlerFunc(func(
		ctx context.Context, req *farcall.Request,
	) (result any, err error) {
		modern := scan.Member(scan.Member(req.Params, "_meta"), spec.MetaProtocolVersion) != nil
		switch req.Method {
		case spec.MethodToolsCall, spec.MethodResourcesRead, spec.MethodPromptsGet,
			spec.MethodCompletionComplete,
			spec.MethodToolsList, spec.MethodResourcesList, spec.MethodResourcesTemplatesList,
			spec.MethodPromptsList:
			if guard.From(ctx) != nil {
				return next.ServeRPC(ctx, req)
			}
		default:
			if guard.From(ctx) != nil && !known(req.Method) {
				return next.ServeRPC(ctx, req)
			}
		}
		return s.Serve(ctx,
			&guard.Call{Method: req.Method, Params: req.Params, MCP: true, Modern: modern}, req, next)
	})
}

// known reports whether the front handles a method on its own. A subscription to resources is asked
// about for each of them, by Watch.
func known(method string) bool {
	switch method {
	case spec.MethodInitialize, spec.MethodPing, spec.MethodServerDiscover, spec.MethodLoggingSetLevel,
		spec.MethodSubscriptionsListen,
		spec.MethodResourcesSubscribe, spec.MethodResourcesUnsubscribe,
		spec.MethodTasksGet, spec.MethodTasksUpdate, spec.MethodTasksCancel, spec.MethodTasksResult,
		spec.MethodTasksList,
		spec.NotificationCancelled, spec.NotificationProgress, spec.NotificationInitialized,
		spec.NotificationRootsListChanged:
		return true
	}
	return false
}

// ofProtocol reports whether a notification is one of MCP itself, which needs no rule.
func ofProtocol(method string) bool {
	return strings.HasPrefix(method, "notifications/") && known(method)
}

// begin asks whether a call may proceed. done is to be called with its result or error, errPanicked
// if it does not return.
func (s *shield) begin(
	ctx context.Context, rev *era.Revision, c *guard.Call,
) (done func(jsonrpc.Raw, error), err error) {
	if s == nil {
		return func(jsonrpc.Raw, error) {}, nil
	}
	c.MCP, c.Modern = true, modernCodes(rev)
	end, err := s.Begin(ctx, c)
	if err != nil {
		return nil, err
	}
	return func(result jsonrpc.Raw, err error) {
		if errors.Is(err, mcp.ErrAsked) { // the client is to come back with answers
			result, err = jsonrpc.Raw(`{"resultType":"input_required"}`), nil
		}
		end(result, err)
	}, nil
}

// modernCodes reports whether errors have the numbers of the newest revision.
func modernCodes(rev *era.Revision) bool { return rev == nil || rev.ReservedCodes }

// beginAt is begin for a call of something that was found.
func (s *shield) beginAt(w *calling, t *route.Target) (done func(jsonrpc.Raw, error), err error) {
	if s == nil {
		return s.begin(w, w.Revision, nil)
	}
	return s.begin(w, w.Revision, about(w, t))
}

// again asks about a call that may proceed, and that has other arguments now.
func (s *shield) again(w *calling, t *route.Target) error {
	if s == nil {
		return nil
	}
	c := about(w, t)
	c.MCP, c.Modern = true, modernCodes(w.Revision)
	return s.Recheck(w, c)
}

var errPanicked = errors.New("gateway: the call panicked")

// about is what policies see of a call of something that was found.
func about(w *calling, t *route.Target) *guard.Call {
	c := &guard.Call{
		Method: w.Method, Upstream: t.Source, Name: t.Name, Params: w.Params,
		Asked: w.asks,
	}
	switch w.Method {
	case spec.MethodToolsCall:
		c.Arguments, c.Annotations = scan.Member(w.Params, "arguments"),
			scan.Member(t.Item, "annotations")
		if t.Tool != nil && !w.unfit { // else the error would name arguments that are not shown
			c.Schema = t.Tool.InputSchema
		}
	case spec.MethodPromptsGet:
		c.Arguments = scan.Member(w.Params, "arguments")
	}
	return c
}

// missing asks about what no server has: it counts as other calls do, and tells those who may not
// call it no more than of what is there. Its error is that, or err.
func (s *shield) missing(w *calling, name string, err error) error {
	return s.missingThen(w, name, func() error { return err })
}

// missingThen is missing with an error that is only made for those that may know it: a refused
// caller must not learn from the time of the answer that there is no such thing.
func (s *shield) missingThen(w *calling, name string, explain func() error) error {
	done, refused := s.begin(w, w.Revision,
		&guard.Call{Method: w.Method, Name: name, Params: w.Params})
	if refused != nil {
		return refused
	}
	err := explain()
	done(nil, err)
	return err
}

// unsigned returns params without the signature, which was checked, and is not of what the server
// gets: names and _meta are other ones there.
func (s *shield) unsigned(params jsonrpc.Raw) jsonrpc.Raw {
	if s == nil || !bytes.Contains(params, []byte(signature)) {
		return params
	}
	meta := scan.Member(params, "_meta")
	if scan.Member(meta, signature) == nil {
		return params
	}
	return withMember(params, "_meta", without(meta, signature))
}

const signature = "farcall.dev/signature" // see guard.SignParams

// uses are the methods by which something of a list is used.
var uses = map[string]string{
	route.Tools: spec.MethodToolsCall, route.Resources: spec.MethodResourcesRead,
	route.Templates: spec.MethodResourcesRead, route.Prompts: spec.MethodPromptsGet,
}

// shown reports whether a caller may use something, and so sees it in lists.
func (s *shield) shown(ctx context.Context, kind string, t *route.Target) bool {
	return s == nil || s.shownAs(ctx, kind, t, scan.Member(t.Item, "annotations"))
}

// shownAs is shown for what has those annotations.
func (s *shield) shownAs(
	ctx context.Context, kind string, t *route.Target, annotations jsonrpc.Raw,
) bool {
	return s == nil ||
		s.Visible(ctx,
			&guard.Call{Method: uses[kind], Upstream: t.Source, Name: t.Name, Annotations: annotations})
}

// admits reports whether the caller may call a method that MCP does not define at a server.
func (s *shield) admits(ctx context.Context, upstream, method string, params jsonrpc.Raw) bool {
	return s == nil ||
		s.Visible(ctx,
			&guard.Call{
				Method: methodRPC, Upstream: upstream, Name: method, Params: params,
				Arguments: params,
			})
}

// stays reports whether a caller may still watch a resource.
func (s *shield) stays(ctx context.Context, upstream, uri string) bool {
	return s == nil ||
		s.Visible(ctx, &guard.Call{Method: spec.MethodResourcesRead, Upstream: upstream, Name: uri})
}

// admit asks about a call of a server that speaks no MCP.
func (s *shield) admit(
	ctx context.Context, upstream, method string, params jsonrpc.Raw,
) (done func(jsonrpc.Raw, error), err error) {
	if s == nil {
		return func(jsonrpc.Raw, error) {}, nil
	}
	return s.Begin(ctx, plainCall(upstream, method, params))
}

// plainCall is what policies see of a call of a server that speaks no MCP.
func plainCall(upstream, method string, params jsonrpc.Raw) *guard.Call {
	if method == "$/cancelRequest" || method == "$/progress" { // of calls that were asked about
		return &guard.Call{Method: method, Params: params}
	}
	return &guard.Call{
		Method: methodRPC, Upstream: upstream, Name: method, Params: params,
		Arguments: params,
	}
}

// guarded are the interceptors of the handlers for a server that speaks no MCP.
// conn is nil for HTTP.
func (s *server) guarded(conn *guard.Conn, rest []farcall.Interceptor) []farcall.Interceptor {
	is := s.g.shield
	if is == nil {
		return rest
	}
	admit := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(
			ctx context.Context, req *farcall.Request,
		) (result any, err error) {
			c := plainCall(s.cfg.Name, req.Method, req.Params)
			if s.g.plan.Load().hooks[s.cfg.Name] != nil {
				c.Asked = new([]guard.Asked)
				ctx = context.WithValue(ctx, askedKey{}, c.Asked)
			}
			return is.Serve(ctx, c, req, next)
		})
	}
	return append([]farcall.Interceptor{is.Identify(conn), admit}, rest...)
}

// operator lets those see a page who may.
func (g *Gateway) operator(w http.ResponseWriter, r *http.Request, page http.Handler) {
	if g.shield != nil {
		done, err := g.shield.Begin(r.Context(), &guard.Call{Method: methodStatus})
		if err != nil {
			text := "Forbidden: the page needs a rule that allows " + methodStatus
			if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) &&
				wire.Code != jsonrpc.PermissionDenied {
				// a limit, most likely
				text = wire.Message + ": try again later"
			}
			onhttp.Probe(w, http.StatusForbidden, text)
			return
		}
		defer done(nil, nil)
	}
	page.ServeHTTP(w, r)
}

// A seal binds the request state of a modern server to that server and the endpoint: after a reload
// the name of a tool may lead to another one, and another endpoint has other rules. With a guard it
// is bound to the caller, too: to the server all callers are the gateway. What is bound is a MAC, a
// dot and the server's own. Without a guard the key is empty, so that a state outlives the process:
// a client could as well make one up. The nodes of a cluster have the same key, so that each
// accepts what another has bound.
type seal struct{ key []byte }

func newSeal(guarded bool, nodes []byte) *seal {
	s := &seal{}
	switch {
	case guarded && nodes != nil:
		s.key = nodes
	case guarded:
		s.key = make([]byte, 32)
		_, _ = rand.Read(s.key) // it does not fail
	}
	return s
}

var errState = &jsonrpc.Error{
	Code: jsonrpc.InvalidParams,
	Message: "Invalid params: the requestState is of another caller or server, or from before a " +
		"restart; repeat the call without it",
}

// sum is different for every server, state and round, and with a guard for every owner. round is
// the traceparent of the round that ends with the state, "" when it is not recorded.
func (s *seal) sum(w *calling, server, round, state string) string {
	mac := hmac.New(sha256.New, s.key)
	owner := ""
	if len(s.key) > 0 {
		owner = w.Caller.Owner.Text()
	}
	for _, part := range []string{owner, server, round, state} {
		n := sha256.Sum256([]byte(part))
		mac.Write(n[:])
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:24])
}

// sumSize is how long a sum is.
const sumSize = 32

// open returns the params of a call with the server's own state.
func (s *seal) open(w *calling, server string) (jsonrpc.Raw, error) {
	if scan.Member(w.Params, "requestState") == nil {
		return w.Params, nil
	}
	given, _ := text(w.Params, "requestState")
	head, state, ok := strings.Cut(given, ".")
	sum, round := head[:min(len(head), sumSize)], head[min(len(head), sumSize):]
	if !ok || !hmac.Equal([]byte(sum), []byte(s.sum(w, server, round, state))) {
		return nil, errState
	}
	if w.seen != nil {
		w.seen.Before.SetParent(round)
	}
	return withMember(w.Params, "requestState", jsonrpc.AppendString(nil, state)), nil
}

// close binds the state in a result.
func (s *seal) close(w *calling, server string, r upstream.Result) upstream.Result {
	if state, ok := text(r.Raw, "requestState"); ok {
		round := ""
		if w.seen != nil && w.seen.Span.Sampled {
			round = w.seen.Span.Parent()
		}
		r.Raw = withMember(r.Raw, "requestState",
			jsonrpc.AppendString(nil, s.sum(w, server, round, state)+round+"."+state))
	}
	return r
}
