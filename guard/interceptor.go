package guard

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard/internal/policy"
	"github.com/farcall-dev/farcall/guard/internal/sign"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/permit"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// Interceptor finds out who calls, and lets pass what may. For messages over HTTP behind
// [Guard.HTTP] c is nil. It must be the first, so that others see the [Principal].
func (g *Guard) Interceptor(c *Conn) farcall.Interceptor {
	identify := g.Identify(c)
	return func(next farcall.Handler) farcall.Handler {
		return identify(
			farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (result any, err error) {
				call := g.described(ctx, req.Method, req.Params)
				h := next
				switch {
				case call.Method == spec.MethodSubscriptionsListen:
					h = g.watching(call, next)
				case g.asksAgain(call.Method):
					ctx = context.WithValue(ctx, permit.Key{}, permit.Func(g.permits))
				}
				if strings.HasSuffix(req.Method, "subscribe") {
					ctx = context.WithValue(ctx, permit.HoldKey{}, g.holds(&call))
				}
				return g.Serve(ctx, &call, req, h)
			}))
	}
}

// described is what a message is about, with what the options know of that.
func (g *Guard) described(ctx context.Context, method string, params jsonrpc.Raw) Call {
	call := callOf(method, params)
	if g.opts.Schema != nil && call.Method == method { // not of what is completed or subscribed to
		call.Schema = g.opts.Schema(ctx, call.Method, call.Name)
	}
	if g.opts.Annotations != nil && call.Method == spec.MethodToolsCall {
		call.Annotations = g.opts.Annotations(ctx, call.Method, call.Name)
	}
	return call
}

// asksAgain reports whether the handler of a method may have something to ask the guard, see
// permits: which event farcall.HandleSubscription subscribes to, or whether a tool may have the
// arguments that mcp.Lenient makes of those that came, where policies look at them.
func (g *Guard) asksAgain(method string) bool {
	if method == spec.MethodToolsCall {
		s := g.state.Load()
		return s.policy.Names() != nil || s.trial.Names() != nil
	}
	return strings.HasSuffix(method, "subscribe")
}

// watching refuses a subscription to what the caller may not read, before next serves it.
func (g *Guard) watching(c Call, next farcall.Handler) farcall.Handler {
	return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		if err := g.watches(ctx, &c); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		end := func(err error) { cancel(&noLongerError{err}) }
		releases := []func(){g.hold(ctx, &c, end)}
		defer func() {
			for _, release := range releases {
				release()
			}
		}()
		for _, read := range watched(&c) {
			releases = append(releases, g.hold(ctx, read, end))
		}
		result, err := next.ServeRPC(ctx, req)
		if lost, ok := errors.AsType[*noLongerError](context.Cause(ctx)); ok {
			return nil, lost.err
		}
		return result, err
	})
}

// noLongerError is why a subscription is ended: its caller may not have it any more.
type noLongerError struct{ err error }

func (e *noLongerError) Error() string {
	return "guard: the subscription is no longer permitted: " + e.err.Error()
}

// Serve decides about a call of the principal in ctx, as Begin does, and has h serve what it is
// about. The outcome is what the call is answered with.
func (g *Guard) Serve(
	ctx context.Context, c *Call, req *farcall.Request, h farcall.Handler,
) (result any, err error) {
	done, err := g.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	if done != nil && !farcall.OnAnswer(ctx, done) {
		err = errUnfinished // unless the handler returns
		defer func() {
			raw, _ := result.(jsonrpc.Raw)
			done(raw, err)
		}()
	}
	return h.ServeRPC(ctx, req)
}

// errUnfinished is the error of a handler that did not return.
var errUnfinished = errors.New("guard: the handler panicked")

// watches refuses a subscription to what the caller may not read.
func (g *Guard) watches(ctx context.Context, c *Call) error {
	for _, read := range watched(c) {
		if err := g.admitPart(ctx, read); err != nil {
			return err
		}
	}
	return nil
}

// watched returns the resources that a subscriptions/listen names.
func watched(c *Call) (all []*Call) {
	uris := scan.Member(scan.Member(c.Params, "notifications"), "resourceSubscriptions")
	for raw := range scan.Elements(uris) {
		if raw[0] == '"' {
			all = append(all, &Call{
				Method: spec.MethodResourcesRead, Name: string(scan.Unquote(raw)), MCP: c.MCP, Modern: c.Modern,
			})
		}
	}
	return all
}

// permits refuses what the caller may not call: a permit.Func.
func (g *Guard) permits(ctx context.Context, method string, params []byte) error {
	c := g.described(ctx, method, params)
	return g.admitPart(ctx, &c)
}

// admitPart decides about what a call that may proceed also is.
func (g *Guard) admitPart(ctx context.Context, c *Call) error {
	s, who, now := g.state.Load(), sessionFrom(ctx), g.now()
	d, refused := s.admit(who, c, now)
	switch {
	case refused == nil:
		return nil
	case !refused.shadow:
		g.decided(ctx, who, denied, &d, now)
		return s.refused(who, c, denied, d.Policies, refused)
	}
	g.shadowed.note(g.opts.Logger, who, c, wouldDeny, refused)
	if failed := s.passedPart(who, c, wouldDeny, d.Policies, refused); failed != nil {
		return refuse(jsonrpc.Unavailable, failed.Error()).wire(c, false)
	}
	return nil
}

// Identify is Interceptor without the decision, for those who ask [Guard.Begin].
func (g *Guard) Identify(c *Conn) farcall.Interceptor {
	at := &connected{g: g, c: c, id: strconv.FormatUint(g.connections.Add(1), 10)}
	if c != nil && c.Close != nil {
		g.streams.addConn(at)
	}
	return func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(
			ctx context.Context, req *farcall.Request,
		) (result any, err error) {
			s := g.state.Load()
			who := sessionFrom(ctx)
			defer func() { at.dropAbusive(who, err) }()
			if c != nil { // what its context may know is of the handshake, and may have changed
				var refused *refusal
				if who, refused = at.session(ctx, s); refused != nil {
					return nil, s.refusedMessage(who, req, refused)
				}
				ctx = context.WithValue(ctx, sessionKey{}, who)
			}
			mine, end, refused := s.message(ctx, who, req)
			if refused != nil {
				return nil, s.refusedMessage(who, req, refused)
			}
			if mine != who {
				defer end()
				who, ctx = mine, context.WithValue(ctx, sessionKey{}, mine)
			}
			g.noticed(ctx, who)
			result, err = next.ServeRPC(ctx, req)
			if role := g.opts.Details; err != nil && role != "" && !From(ctx).HasRole(role) {
				err = discreet{err}
			}
			return result, err
		})
	}
}

// noticed tells the observer who calls: some calls end before a decision, such as those that begin
// a task.
func (g *Guard) noticed(ctx context.Context, who *session) {
	if g.opts.Observer == nil || who == nil || who.principal == nil {
		return
	}
	if c := observe.From(ctx); c != nil {
		c.Principal = who.principal.Name()
	}
}

// refusedMessage refuses a message before a decision about its call.
func (s *state) refusedMessage(who *session, req *farcall.Request, refused *refusal) error {
	call := callOf(req.Method, req.Params)
	return s.refused(who, &call, "refused", nil, refused)
}

// discreet is an error with the details that the caller is not to know. See
// farcall.Options.Details.
type discreet struct{ error }

func (d discreet) Unwrap() error { return d.error }

// Discreet is what package farcall asks.
func (d discreet) Discreet() bool { return true }

// message returns the session of a message, which is who itself unless the message is signed, or is
// of a request that has a ticket. end is to be called then, after the message.
func (s *state) message(
	ctx context.Context, who *session, req *farcall.Request,
) (mine *session, end func(), refused *refusal) {
	var ofRequest *ticket
	if who != nil && who.http != nil {
		ofRequest = who.http.ticket
	}
	signed := sign.HasSignature(req.Params)
	if ofRequest == nil && !signed {
		return who, nil, nil
	}
	return s.proved(ctx, who, req, ofRequest, signed)
}

// proved is message for what is signed or has a ticket. It is apart, because its variables are
// allocated.
func (s *state) proved(
	ctx context.Context, who *session, req *farcall.Request, ofRequest *ticket, signed bool,
) (mine *session, end func(), refused *refusal) {
	var ofMessage *ticket
	mine = &session{}
	if who != nil {
		*mine = *who
	}
	mine.attempt = new(attempt)
	if ofRequest != nil && !ofRequest.enter() {
		return nil, nil, refuse(jsonrpc.Replayed, "the request has been refused and may be sent again")
	}
	if signed {
		var signer *known
		if signer, ofMessage, refused = s.signedMessage(ctx, req.Method, req.Params); refused != nil {
			return nil, nil, refused
		}
		ofMessage.enter()
		mine.principal, mine.subject, mine.owner = signer.principal, signer.subject, signer.owner
	}
	inBatch := req.InBatch() // beside what no interceptor sees, such as answers
	return mine, func() {
		if ofRequest != nil {
			ofRequest.leave(!inBatch && mine.attempt.refused())
		}
		if ofMessage != nil {
			ofMessage.leave(mine.attempt.refused())
			ofMessage.settle(ctx)
		}
	}, nil
}

// signedMessage admits a message that is signed on its own.
func (s *state) signedMessage(
	ctx context.Context, method string, params jsonrpc.Raw,
) (*known, *ticket, *refusal) {
	sig, err := sign.VerifyMessage(method, params, s.verify, s.c.Resource.URL)
	if err != nil {
		return nil, nil, refuse(jsonrpc.BadSignature, err.Error())
	}
	return s.signature(ctx, sig, false)
}

// connected is a connection. Its principal is determined with its first message, and again
// when the configuration has changed.
type connected struct {
	g  *Guard
	c  *Conn
	id string // unique in the guard

	accepted atomic.Bool  // a message of an authenticated or anonymous principal has come
	refusals atomic.Int32 // until then

	mu  sync.Mutex
	of  *state
	who *session
	bad *refusal
}

func (x *connected) session(ctx context.Context, s *state) (*session, *refusal) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of == s {
		return x.who, x.bad
	}
	k, refused := s.conn(ctx, x.c)
	who := &session{
		remote: host(x.c.Remote), transport: x.c.Transport,
		local: x.c.Local || x.c.Transport == "stdio", at: x,
	}
	if k != nil {
		who.principal, who.subject, who.owner = k.principal, k.subject, k.owner
	}
	if who.owner.IsZero() {
		who.owner = owner.Connection(x.id, x.c.Remote)
	}
	if refused == nil || refused.status == 401 { // what cannot be found out now may be later
		x.of, x.who, x.bad = s, who, refused
	}
	return who, refused
}

// invalidText tells the caller what is wrong with what it has sent.
func invalidText(err error) string {
	return jsonrpc.InvalidParams.Condition().Name + ": " + err.Error()
}

// invalid refuses params; err is public.
func invalid(err error, reason string) *refusal {
	r := refuse(jsonrpc.InvalidParams, reason)
	r.text = invalidText(err)
	return r
}

// tooLarge is for what exceeds a bound of HTTP.
func tooLarge(what string, size, limit int64, status int) *refusal {
	r := refuse(jsonrpc.TooLarge, "it has "+strconv.FormatInt(size, 10)+" bytes")
	r.text, r.status, r.limit = what+" too large", status, limit
	return r
}

// noCredentials is the reason of a refusal that does not count as a wrong credential.
const noCredentials = "there are no credentials" //nolint:gosec // it is not a secret

// A refusal says why something may not proceed.
type refusal struct {
	kind   jsonrpc.Code  // of the registry, see jsonrpc.Condition
	text   string        // for the caller
	status int           // of HTTP
	reason string        // for the operator; see wire for who else gets it
	after  time.Duration // when to try again
	limit  int64         // of bytes, that the request exceeds
	scopes []string      // that would be enough
	nonce  bool          // for DPoP
	locked bool          // the credentials are good, and locked
	shadow bool          // the call proceeds all the same
}

// refuse returns a refusal with the text and the status of the registry.
func refuse(kind jsonrpc.Code, reason string) *refusal {
	c := kind.Condition()
	return &refusal{kind: kind, text: c.Name, status: c.HTTPStatus, reason: reason}
}

// later has the caller wait for a time.
func (r *refusal) later(after time.Duration) *refusal {
	r.after = after
	return r
}

// code is the number for a call.
func (r *refusal) code(call *Call) jsonrpc.Code {
	c := r.kind.Condition()
	switch {
	case call == nil || !call.MCP && !call.Modern:
		return c.Plain
	case call.Modern:
		return c.Modern
	}
	return c.Legacy
}

func (r *refusal) Error() string { return "guard: " + r.text + ": " + r.reason }

// HTTPStatus is the status of the answer, where the transport has one for each call: the table of
// conditions decides, whichever handler refuses.
func (r *refusal) HTTPStatus() int { return r.status }

// wire is the answer to a call. It has the reason where the registry says that every caller gets
// it, and with details.
func (r *refusal) wire(c *Call, details bool) *jsonrpc.Error {
	e := &jsonrpc.Error{Code: r.code(c), Message: r.text, Cause: r}
	var data []string
	if r.limit > 0 {
		data = append(data, `"maxSize":`+strconv.FormatInt(r.limit, 10), `"unit":"bytes"`)
	}
	if r.after > 0 {
		data = append(data, `"retryable":true`,
			`"retryAfterMs":`+strconv.FormatInt((r.after+time.Millisecond-1).Milliseconds(), 10))
	}
	if len(r.scopes) > 0 {
		data = append(data, `"scope":`+string(jsonrpc.AppendString(nil, strings.Join(r.scopes, " "))))
	}
	if c := r.kind.Condition(); details || c.Explained() && r.limit == 0 {
		data = append(data, `"reason":`+string(jsonrpc.AppendString(nil, r.reason)))
	}
	if len(data) > 0 {
		e.Data = jsonrpc.Raw("{" + strings.Join(data, ",") + "}")
	}
	return e
}

// callOf finds out what a message is about.
func callOf(method string, params jsonrpc.Raw) Call {
	c := Call{Method: method, Params: params}
	c.MCP, c.Modern = dialect(method, params)
	switch method {
	case spec.MethodToolsCall:
		c.Name, c.Arguments = scan.StringMember(params, "name"), scan.Member(params, "arguments")
	case spec.MethodPromptsGet:
		c.Name, c.Arguments = scan.StringMember(params, "name"), scan.Member(params, "arguments")
	case spec.MethodResourcesRead:
		c.Name = scan.StringMember(params, "uri")
	case spec.MethodResourcesSubscribe, spec.MethodResourcesUnsubscribe:
		c.Method, c.Name = spec.MethodResourcesRead, scan.StringMember(params, "uri")
	case spec.MethodCompletionComplete: // what may be used may be completed
		ref := scan.Member(params, "ref")
		c.Method, c.Name = spec.MethodPromptsGet, scan.StringMember(ref, "name")
		if scan.StringMember(ref, "type") == spec.RefResource {
			c.Method, c.Name = spec.MethodResourcesRead, scan.StringMember(ref, "uri")
		}
	default:
		c.Arguments = params
	}
	return c
}

var modernKey = []byte(spec.MetaProtocolVersion)

// dialect says how errors are numbered for anyone who sent a message.
func dialect(method string, params jsonrpc.Raw) (mcp, modern bool) {
	if bytes.Contains(params, modernKey) &&
		scan.Member(scan.Member(params, "_meta"), spec.MetaProtocolVersion) != nil {
		return true, true
	}
	return ofMCP(method), false
}

func ofMCP(method string) bool {
	before, _, ok := strings.Cut(method, "/")
	if !ok {
		return method == spec.MethodInitialize || method == spec.MethodPing
	}
	switch before {
	case "tools", "resources", "prompts", "completion", "logging", "notifications", "tasks",
		"subscriptions", "server":
		return true
	}
	return false
}

// open reports whether a method is for everybody who was let in: what a client needs to begin,
// and what answers with that alone which is its own or which it may use.
func open(method string) bool {
	switch method {
	case spec.MethodInitialize, spec.MethodPing, spec.MethodServerDiscover, spec.MethodLoggingSetLevel,
		spec.MethodToolsList, spec.MethodResourcesList, spec.MethodResourcesTemplatesList,
		spec.MethodPromptsList,
		// each resource is asked about
		spec.MethodSubscriptionsListen, spec.MethodResourcesSubscribe, spec.MethodResourcesUnsubscribe,
		spec.MethodTasksGet, spec.MethodTasksUpdate, spec.MethodTasksCancel, spec.MethodTasksResult,
		spec.MethodTasksList,
		spec.NotificationCancelled, spec.NotificationProgress, spec.NotificationInitialized,
		spec.NotificationRootsListChanged,
		"$/cancelRequest", "$/progress":
		return true
	}
	return false
}

// mustBeGranted reports whether a method needs a rule that allows it, also where there are no
// policies and in shadow mode: it changes the gateway itself.
func mustBeGranted(method string) bool { return method == "gateway/admin" }

// name is what patterns are checked against.
func (c *Call) name() string { return policy.CallName(c.Method, c.Upstream, c.Name) }
