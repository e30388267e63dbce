package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/signin"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

const (
	// signInTool is what is listed of an upstream in place of its tools for a principal who has to
	// sign in.
	signInTool = "sign_in"
	// signInKey names the question among the input requests of a call.
	signInKey = "farcall.dev/sign-in"
	// signInWait is how long a call waits for a user who has agreed to sign in. Clients wait for a
	// minute.
	signInWait = 45 * time.Second
	// differPause is between two looks whether all nodes have the configuration of this one.
	differPause = 5 * time.Second
)

var errNoPrincipal = errors.New(
	"each principal signs in to it, so that it cannot be asked without one")

var errSignInFixed = errors.New(
	"gateway: sign_in cannot change while the gateway runs: this needs a restart")

// openSignIns opens the tokens of principals: in the configured directory, or else in the store
// that nodes share, or else in memory. Without keys in the configuration, those of nodes have the
// secret one.
func (c *Config) openSignIns(shared store.Records, secret []byte) (*signin.Store, error) {
	var keys [][]byte
	for i, text := range c.SignIn.Keys {
		key, err := cluster.ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("gateway: sign_in.keys[%d]: %w", i, err)
		}
		keys = append(keys, key)
	}
	var s *signin.Store
	var err error
	if c.SignIn.Dir != "" || shared == nil {
		s, err = signin.Open(c.SignIn.Dir, keys)
	} else {
		if len(keys) == 0 {
			keys = append(keys, secret)
		}
		s, err = signin.OpenShared(shared, keys)
	}
	if err != nil {
		return nil, fmt.Errorf("gateway: sign_in: %w", err)
	}
	return s, nil
}

// newSignIns lets principals sign in, where the configuration says at which address.
func (g *Gateway) newSignIns(c *Config) error {
	g.signing = c.SignIn
	g.signing.Keys = slices.Clone(c.SignIn.Keys)
	if c.SignIn.URL == "" {
		return nil
	}
	var shared store.Store
	if g.node != nil && c.SignIn.Dir == "" {
		shared = g.opts.Shared
	}
	tokens, err := c.openSignIns(shared, g.secret("sign-ins"))
	if err != nil {
		return err
	}
	g.signIns = signin.New(&signin.Options{
		Store: tokens, Shared: shared, URL: c.SignIn.URL, Name: c.name(), Bound: c.bindsBrowsers(),
		Find: func(name string) *signin.Upstream {
			if s := g.plan.Load().byName[name]; s != nil {
				return s.signIn
			}
			return nil
		},
		Names: func() (all []string) {
			for _, s := range g.plan.Load().order {
				if s.signIn != nil {
					all = append(all, s.cfg.Name)
				}
			}
			return all
		},
		OnChange: g.signInChanged, Logger: g.component("signin"),
	})
	return nil
}

// signInChanged lets clients know that an upstream shows something else to an owner.
func (g *Gateway) signInChanged(id signin.ID) {
	s := g.plan.Load().byName[id.Upstream]
	if s == nil || s.mcp == nil {
		return
	}
	if s.results != nil {
		s.results.wrote()
	}
	for _, kind := range []string{"tools", "resources", "prompts"} {
		s.listChanged(kind)
	}
}

// newSignIn lets principals sign in to the upstream of a server, if its credentials want that.
func (s *server) newSignIn() (err error) {
	if !s.cfg.signsIn() {
		return nil
	}
	if s.g.signIns == nil {
		return errSignInFixed
	}
	s.signIn, err = s.g.signIns.NewUpstream(s.cfg.Name, s.cfg.URL, *s.cfg.authOptions())
	if err != nil {
		return fmt.Errorf("gateway: upstream %s: auth: %w", s.cfg.Name, err)
	}
	s.auth = &ownToken{signIn: s.signIn}
	return nil
}

// ownToken adds the token of the principal that a request is made for. There is one for each
// connection, which belongs to one principal.
type ownToken struct {
	signIn *signin.Upstream
	owner  atomic.Pointer[string] // of the connection; nil before the first request
}

// String keeps tokens out of logs.
func (*ownToken) String() string { return "tokens of the caller" }

// GoString keeps tokens out of logs.
func (t *ownToken) GoString() string { return t.String() }

var errOtherOwner = errors.New(
	"gateway: a bug of farcall: the connection belongs to another principal")

// who returns the principal of a request.
func (t *ownToken) who(ctx context.Context) (signin.Who, error) {
	who := principalOf(ctx)
	if t.owner.CompareAndSwap(nil, &who.Owner) || *t.owner.Load() == who.Owner {
		return who, nil
	}
	return who, errOtherOwner
}

// Authorize implements mcphttp.Authorizer.
func (t *ownToken) Authorize(ctx context.Context, r *http.Request) error {
	who, err := t.who(ctx)
	if err != nil {
		return err
	}
	return t.signIn.Authorize(ctx, who, r)
}

// Challenge implements mcphttp.Authorizer.
func (t *ownToken) Challenge(ctx context.Context, r *http.Response) (bool, error) {
	who, err := t.who(ctx)
	if err != nil {
		return false, err
	}
	return t.signIn.Challenge(ctx, who, r)
}

var _ mcphttp.Authorizer = (*ownToken)(nil)

// principalOf returns the principal that calls, as the owner of tokens.
func principalOf(ctx context.Context) signin.Who {
	p := callerIn(ctx)
	return signin.Who{Owner: p.Owner(), Name: p.Name()}
}

// wantsSignIn reports whether the caller has to sign in to the upstream before anything else.
func (s *server) wantsSignIn(ctx context.Context) (bool, error) {
	if s.signIn == nil || s.held != nil {
		return false, nil
	}
	ready, err := s.signIn.Ready(ctx, principalOf(ctx))
	if err != nil {
		return false, &jsonrpc.Error{
			Code: jsonrpc.Unavailable, Cause: err, Data: jsonrpc.Raw(`{"sent":"no","retryable":true}`),
			Message: "the token of the caller for " + s.cfg.Name +
				" cannot be renewed at the moment; call again later",
		}
	}
	return !ready, nil
}

// callersFault reports whether a connection could not be started because of the caller, which says
// nothing of the upstream.
func callersFault(err error) bool {
	return errors.Is(err, signin.ErrCaller)
}

// unsigned describes the upstream to a principal that has to sign in. Nil: it has signed in, or
// does not have to.
func (s *server) unsigned(ctx context.Context) (*mcp.ServerInfo, error) {
	if wants, err := s.wantsSignIn(ctx); !wants || err != nil {
		return nil, err
	}
	return s.undescribed(), nil
}

// undescribed stands for what an upstream says about itself, before it was asked.
func (s *server) undescribed() *mcp.ServerInfo {
	return &mcp.ServerInfo{
		Name: s.cfg.Name, Version: s.g.opts.Version,
		Capabilities: &spec.ServerCapabilities{
			Tools:     &spec.ToolsCapability{ListChanged: true},
			Prompts:   &spec.PromptsCapability{ListChanged: true},
			Resources: &spec.ResourcesCapability{Subscribe: true, ListChanged: true},
		},
	}
}

// signInList is a list of the upstream for a caller who has to sign in.
func (s *server) signInList(kind string) route.List {
	// whatever is chosen of the upstream needs the sign-in
	all := route.List{Items: []jsonrpc.Raw{}, AsItIs: true}
	if kind == route.Tools {
		text := "Sign in to " + s.cfg.Name +
			". Its tools are listed when you have signed in. The user has to open a page in a browser."
		item := jsonrpc.AppendString(jsonrpc.Raw(`{"name":"`+signInTool+`","description":`), text)
		all.Items = append(all.Items,
			append(item, `,"inputSchema":{"type":"object"},"_meta":{"`+signInKey+`":true}}`...))
	}
	return all
}

// isSignIn reports whether a target is what signInList has made.
func (s *server) isSignIn(t *route.Target) bool {
	return s != nil && s.signIn != nil && t.Name == signInTool &&
		scan.Member(scan.Member(t.Item, "_meta"), signInKey) != nil
}

// signedIn is the result of the tool for a caller who has signed in.
func (s *server) signedIn() upstream.Result {
	return toolText("You are signed in to "+s.cfg.Name+". Its tools are listed now.", false)
}

// toolText is the result of a tool that is a text.
func toolText(text string, failed bool) upstream.Result {
	r := toolError(text)
	if !failed {
		r.Raw = without(r.Raw, "isError")
	}
	return r
}

// letSignIn lets the principal of a call sign in to the upstream, if it has to: its client is asked
// to open a page, or gets an error with the address. The call goes on when there is neither an
// answer nor an error.
//
// A client of 2026-07-28 is asked in a round of the call, and the next one waits for a while. One
// of 2025-11-25 gets the error of that revision, and a notification when the user has signed in.
// Any other client gets a text.
func (e *endpoint) letSignIn(w *calling, s *server) (answer *upstream.Result, err error) {
	if s.signIn == nil || s.held != nil {
		return nil, nil
	}
	wants, err := s.wantsSignIn(w)
	if err != nil {
		return nil, err
	}
	answered := scan.Member(scan.Member(w.Params, "inputResponses"), signInKey) != nil
	switch {
	case !wants && answered: // the answer belongs to this question, and not to one of the upstream
		_, err = e.askSignIn(w, s, s.g.signing.URL)
	case wants:
		answer, err = e.wantSignIn(w, s)
	}
	if answered {
		w.Params = without(w.Params, "requestState", "inputResponses")
	}
	return answer, err
}

// forwardFor makes a call at a server for a caller who may have to sign in before.
func (e *endpoint) forwardFor(w *calling, s *server) (upstream.Result, error) {
	if answer, err := e.letSignIn(w, s); err != nil {
		return upstream.Result{}, err
	} else if answer != nil {
		return *answer, nil
	}
	if w.signs {
		return s.signedIn(), nil
	}
	r, err := e.forwardSigned(w, s)
	if s.signIn != nil && callersFault(err) && !w.signedIn { // the server takes the token no more
		w.signedIn = true
		return e.forwardTo(w, s)
	}
	return r, err
}

// wantSignIn is letSignIn for a caller who has to.
func (e *endpoint) wantSignIn(w *calling, s *server) (*upstream.Result, error) {
	who := principalOf(w)
	if who.Owner == "" {
		return nil, &jsonrpc.Error{
			Code: jsonrpc.Unauthenticated.Condition().Modern,
			Message: s.cfg.Name +
				" wants each principal to sign in, and the caller shows no credentials to this gateway",
		}
	}
	url, err := s.signIn.Link(w, who, e.completing(w))
	if err != nil {
		code := jsonrpc.Unavailable
		if errors.Is(err, signin.ErrFull) {
			code = jsonrpc.Overloaded
		}
		return nil, &jsonrpc.Error{
			Code: code, Message: "the sign-in cannot begin: " + err.Error(),
			Cause: err, Data: jsonrpc.Raw(`{"sent":"no","retryable":true}`),
		}
	}
	visits := w.client.Capabilities.Elicitation != nil &&
		w.client.Capabilities.Elicitation.URL != nil && w.Revision.ElicitationURL
	switch {
	case visits && w.Revision.URLElicitationRequired != 0:
		return nil, errSignInAt(s.cfg.Name, url)
	case visits && mayAsk(w.Method):
		action, err := e.askSignIn(w, s, url)
		if err != nil {
			return nil, err
		}
		if action == spec.ElicitAccept && s.waitSignIn(w, who) {
			return nil, nil
		}
		if action != spec.ElicitAccept {
			return refusedSignIn(w, "The user did not agree to sign in to "+s.cfg.Name+".")
		}
	}
	return refusedSignIn(w,
		signInText(s.cfg.Name)+": open "+url+" in a browser, and call again when you are done.")
}

func signInText(name string) string { return "You have to sign in to " + name + " first" }

// mayAsk reports whether clients may be asked during a method (2026-07-28 basic/patterns/mrtr,
// "Supported Requests").
func mayAsk(method string) bool {
	return method == spec.MethodToolsCall || method == spec.MethodPromptsGet ||
		method == spec.MethodResourcesRead
}

// refusedSignIn is the answer of a call with a principal that has not signed in: one of a tool is
// for its model to read.
func refusedSignIn(w *calling, text string) (*upstream.Result, error) {
	if w.Method == spec.MethodToolsCall {
		r := toolText(text, true)
		return &r, nil
	}
	return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "%s", text)
}

// errSignInAt is the error of 2025-11-25 (Elicitation, "URL Elicitation Required Error").
func errSignInAt(name, url string) error {
	data, err := jsonv2.Append(nil,
		spec.URLElicitationRequiredData{Elicitations: []spec.ElicitRequestParams{{
			Mode: spec.ElicitURL, Message: signInText(name) + ".", URL: url,
			ElicitationID: elicitationOf(url),
		}}})
	if err != nil {
		return err
	}
	return &jsonrpc.Error{
		Code:    spec.URLElicitationRequired,
		Message: signInText(name) + ": open " + url + " in a browser", Data: data,
	}
}

// elicitationOf is the id of the elicitation of an address.
func elicitationOf(url string) string {
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:16])
}

// askSignIn asks the user to open a page. It returns what the user has answered.
func (e *endpoint) askSignIn(w *calling, s *server, url string) (action string, err error) {
	var answer spec.ElicitResult
	err = mcp.Ask(relay.Named(w, signInKey), spec.MethodElicitationCreate, &spec.ElicitRequestParams{
		Mode: spec.ElicitURL, Message: signInText(s.cfg.Name) + ".", URL: url,
	}, &answer)
	if err == nil && w.asked != nil {
		w.asked.Store(true)
	}
	return answer.Action, err
}

// waitSignIn waits until a principal who has agreed to has signed in, and reports whether that is
// so.
func (s *server) waitSignIn(ctx context.Context, who signin.Who) bool {
	ctx, cancel := context.WithTimeout(ctx, signInWait)
	defer cancel()
	defer context.AfterFunc(s.g.serving, cancel)() // not when the gateway ends
	return s.signIn.Wait(ctx, who) == nil
}

// completing returns what tells the session of a call that its user has signed in, nil where there
// is no such message.
func (e *endpoint) completing(w *calling) func(ctx context.Context, url string) {
	if !w.Revision.ElicitationComplete || w.client.Session == "" {
		return nil
	}
	for session := range e.server.Sessions() {
		if session.ID() == w.client.Session {
			return func(ctx context.Context, url string) {
				// A client that has gone needs no telling.
				_ = session.Notify(ctx, spec.NotificationElicitationComplete,
					spec.ElicitationCompleteNotificationParams{ElicitationID: elicitationOf(url)})
			}
		}
	}
	return nil
}

// signsInto returns the server that the caller has to sign in to before it is known whether it has
// something of that name, and its own name of that. Nil: there is none.
func (e *endpoint) signsInto(ctx context.Context, kind, name string) (s *server, own string) {
	_, servers := e.servers()
	for _, s := range servers {
		if s.signIn == nil {
			continue
		}
		var qualified bool
		refs := s.cfg.refs()
		if kind == route.Resources {
			own, qualified = refs.StripURI(name)
		} else {
			own, qualified = refs.StripName(name)
		}
		if !qualified && e.name != s.cfg.Name {
			continue
		}
		tool := kind == route.Tools && own == signInTool
		if e.virtual() != nil && !tool { // what the address does not show is not there
			continue
		}
		if wants, err := s.wantsSignIn(ctx); tool || wants && err == nil {
			return s, own
		}
	}
	return nil, ""
}

// signInFirst makes a call of something of an upstream with lists that are not known before the
// caller has signed in.
func (e *endpoint) signInFirst(
	w *calling, s *server, own string, again func() (upstream.Result, error),
) (r upstream.Result, err error) {
	done, err := e.g.shield.begin(w, w.Revision,
		&guard.Call{Method: w.Method, Upstream: s.cfg.Name, Name: own, Params: w.Params})
	if err != nil {
		return upstream.Result{}, err
	}
	answer, err := e.letSignIn(w, s)
	switch {
	case err != nil:
		done(nil, err)
		return upstream.Result{}, err
	case answer != nil:
		r = *answer
	case own == signInTool && w.Method == spec.MethodToolsCall:
		r = s.signedIn()
	default:
		w.signedIn = true
		done(toolText(signInKey, false).Raw, nil)
		return again()
	}
	done(r.Raw, nil)
	return r, nil
}
