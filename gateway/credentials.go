package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// The types of Credentials.
const (
	authOAuth       = "oauth"
	authClient      = "client_credentials"
	authExchange    = "token_exchange"
	authPrincipals  = "principals"
	authPassthrough = "passthrough"
	authWorkload    = "workload_identity"
	authSignIn      = "sign_in"
)

// keyringStore is the Store of Credentials that is no file but the desktop's keyring.
const keyringStore = "keyring"

// checkAuth returns what is wrong with the credentials, and what to do about it; "" for nothing.
func (c *Upstream) checkAuth() (message, hint string) {
	a := c.Auth
	if a == nil {
		return "", ""
	}
	switch {
	case c.Profile == profileRaw:
		return "the profile raw has no credentials but headers",
			"write headers, or leave profile out if it is an MCP server"
	case a.asksWho() && c.forAll():
		return a.Type + " goes by who calls, and with the lifetime " + cmp.Or(c.Lifetime, lifetimeAuto) +
			" all callers have the same connection", "add lifetime: principal (or session, or call)"
	case a.Type == authClient && (a.ClientID == "" || a.Secret == "" && a.Key == ""):
		return "client_credentials needs a client_id, and a secret or a key",
			"add what the authorization server knows the gateway by"
	case a.Type == authWorkload && a.AssertionFile == "":
		return "workload_identity needs a file with the workload's token", "add assertion_file"
	}
	if message, hint = a.misfit(); message != "" {
		return message, hint
	}
	if _, err := c.authorization(nil); err != nil {
		return strings.TrimPrefix(err.Error(), "mcpauth: "), "see auth in docs/config.md"
	}
	return "", ""
}

// misfit returns what in the credentials is not for their type.
func (c *Credentials) misfit() (message, hint string) {
	switch {
	case (c.Type == authExchange || c.Type == authWorkload) && c.ClientID == "" &&
		(c.Secret != "" || c.Key != ""):
		return "there is a secret or a key, and no client_id", "add client_id"
	case c.Type == authPrincipals && len(c.Principals) == 0:
		return "principals has no headers", "add principals with a name, or \"*\" for all others"
	case c.Type != authPrincipals && len(c.Principals) > 0:
		return "principals is for the type principals only", "remove it, or write type: principals"
	case c.Type != authExchange && c.Audience != "":
		return "audience is for the type token_exchange only",
			"remove it: tokens are for the address of the server"
	case c.Type != authWorkload && c.AssertionFile != "":
		return "assertion_file is for the type workload_identity only", "remove it"
	case c.Type != authOAuth && c.Store != "":
		return "store is for the type oauth only", "remove it"
	case c.Secret != "" && c.Key != "":
		return "there is a secret and a key", "remove one"
	}
	return "", ""
}

// authorizer shows a server who calls, if it needs more than headers.
func (c *Upstream) authorizer(log *slog.Logger) (mcphttp.Authorizer, error) {
	if c.Auth == nil || len(c.Command) > 0 {
		return nil, nil
	}
	if message, hint := c.checkAuth(); message != "" {
		return nil, fmt.Errorf("gateway: upstream %s: auth: %s; %s", c.Name, message, hint)
	}
	auth, err := c.authorization(log)
	if err != nil {
		return nil, fmt.Errorf("gateway: upstream %s: auth: %w", c.Name, err)
	}
	return auth, nil
}

// authOptions are those of every type.
func (c *Upstream) authOptions() *mcpauth.Options {
	a := c.Auth
	return &mcpauth.Options{
		ClientID: a.ClientID, ClientSecret: a.Secret, Key: a.Key, MetadataURL: a.MetadataURL,
		Issuer: a.Issuer, Scopes: a.Scopes, DPoP: a.DPoP, Target: c.address(),
	}
}

// authorization puts the authorizer together. It sends nothing.
func (c *Upstream) authorization(*slog.Logger) (mcphttp.Authorizer, error) {
	a, o := c.Auth, c.authOptions()
	switch a.Type {
	case authOAuth:
		store, err := openStore(a.Store)
		if err != nil {
			return nil, err
		}
		o.Store = store
		if a.Store != "" {
			o.Target = "--store " + a.Store + " " + o.Target
		}
	case authClient:
		o.Grant = mcpauth.GrantClient
	case authWorkload:
		o.Grant, o.Assertion = mcpauth.GrantAssertion, mcpauth.AssertionFile(a.AssertionFile)
	case authExchange:
		o.Grant, o.Audience = mcpauth.GrantExchange, a.Audience
		o.Subject = func(ctx context.Context) (string, error) { return callersToken(callerIn(ctx)) }
	case authPrincipals, authPassthrough:
		u, err := url.Parse(c.URL)
		if err != nil {
			return nil, errors.New("the address is no URL")
		}
		if a.Type == authPassthrough {
			if _, err := mcpauth.New(c.URL, nil); err != nil {
				return nil, err // no token goes there in clear text
			}
		}
		return &perCaller{at: u, all: a.Principals, pass: a.Type == authPassthrough}, nil
	case authSignIn: // newSignIn makes it: the tokens are kept by the gateway
	default:
		return nil, fmt.Errorf("there is no type %q", a.Type)
	}
	return mcpauth.New(c.URL, o)
}

// openStore returns the store of farcall login.
func openStore(path string) (mcpauth.Store, error) {
	if path == keyringStore {
		return mcpauth.NewKeyring("farcall"), nil
	}
	if path == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("there is no place for the tokens; write store: %w", err)
		}
		path = filepath.Join(dir, "farcall", "tokens.json")
	}
	return mcpauth.NewFileStore(path), nil
}

// perCaller adds headers that depend on who calls.
type perCaller struct {
	at   *url.URL
	all  map[string]map[string]string // by principal, and "*"
	pass bool                         // the caller's own token
}

// String keeps the headers out of logs.
func (p *perCaller) String() string { return "credentials of the caller" }

// GoString keeps the headers out of logs.
func (p *perCaller) GoString() string { return p.String() }

// Authorize implements mcphttp.Authorizer.
func (p *perCaller) Authorize(ctx context.Context, r *http.Request) error {
	if r.URL.Scheme != p.at.Scheme || r.URL.Host != p.at.Host {
		return errors.New("gateway: the credentials are for another address")
	}
	who := callerIn(ctx)
	if p.pass {
		token, err := callersToken(who)
		if err != nil {
			return err
		}
		if bound(who) {
			return errors.New(
				"gateway: the caller's token is bound to their own key, and is of no use to anybody else; " +
					"use token_exchange")
		}
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	headers, ok := headersOf(p.all, who)
	if !ok && who == nil {
		return errors.New(`gateway: the caller is unauthenticated, and there are no credentials for "*"`)
	}
	if !ok {
		return fmt.Errorf(
			`gateway: there are no credentials for the principal %q, nor for "*"; add them to `+
				`auth.principals`, who.Name())
	}
	for name, value := range headers {
		if strings.EqualFold(name, "Host") {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	return nil
}

// headersOf returns the headers that a configuration has for a principal, by its name or by "*".
func headersOf(
	all map[string]map[string]string, who *guard.Principal,
) (headers map[string]string, ok bool) {
	headers, ok = all[credentialsName(who)]
	if who == nil || !ok {
		headers, ok = all["*"]
	}
	return headers, ok
}

// credentialsName is the name under which a configuration has the headers of a principal: its id,
// or issuer|id. An id that itself looks like one of an issuer has none, or it would get the headers
// of that issuer's principal.
func credentialsName(who *guard.Principal) string {
	if who == nil || who.Issuer == "" && strings.Contains(who.ID, "|") {
		return ""
	}
	return who.Name()
}

// Challenge implements mcphttp.Authorizer: there are no others.
func (p *perCaller) Challenge(context.Context, *http.Response) (bool, error) { return false, nil }

// callersToken returns the token that a caller has presented.
func callersToken(who *guard.Principal) (string, error) {
	switch {
	case who == nil:
		return "", errors.New("gateway: the caller is unauthenticated")
	case who.Token() == "":
		return "", fmt.Errorf("gateway: the principal %q has presented no token", who.Name())
	}
	return who.Token(), nil
}

// bound reports whether a token needs a proof, or a certificate, that only its owner has (RFC
// 7800).
func bound(who *guard.Principal) bool {
	confirmation, ok := who.Claims["cnf"].(map[string]any)
	return ok && len(confirmation) > 0
}

// upstreamKey is that of the owner of the upstream connection, in a request that belongs to no
// call.
type upstreamKey struct{}

// callerIn returns who a request is made for. Nil: unauthenticated.
func callerIn(ctx context.Context) *guard.Principal {
	if p := guard.From(ctx); p != nil {
		return p
	}
	p, _ := ctx.Value(upstreamKey{}).(*guard.Principal)
	return p
}

// identify is what an upstream connection has to remember of a call, for credentials that depend on
// who calls. Nil: nothing.
func (c *Upstream) identify() func(context.Context) any {
	if !c.Auth.asksWho() || c.forAll() {
		return nil
	}
	return func(ctx context.Context) any { return callerIn(ctx) }
}

// upstreamAuth is the authorizer of one connection. A request that belongs to no call is made for
// the last caller of the connection.
type upstreamAuth struct {
	mcphttp.Authorizer

	conn context.Context //nolint:containedctx // it is there for its values
}

// authFor is the authorizer of a connection that is made with a context.
func (s *server) authFor(ctx context.Context) mcphttp.Authorizer {
	if s.auth == nil || !s.cfg.Auth.asksWho() {
		return s.auth
	}
	auth := s.auth
	if s.signIn != nil {
		auth = &ownToken{signIn: s.signIn}
	}
	return &upstreamAuth{auth, context.WithoutCancel(ctx)}
}

func (l *upstreamAuth) known(ctx context.Context) context.Context {
	if callerIn(ctx) != nil {
		return ctx
	}
	if p, ok := upstream.Identity(l.conn).(*guard.Principal); ok && p != nil {
		return context.WithValue(ctx, upstreamKey{}, p)
	}
	return ctx
}

// Authorize implements mcphttp.Authorizer.
func (l *upstreamAuth) Authorize(ctx context.Context, r *http.Request) error {
	return l.Authorizer.Authorize(l.known(ctx), r)
}

// Challenge implements mcphttp.Authorizer.
func (l *upstreamAuth) Challenge(ctx context.Context, r *http.Response) (bool, error) {
	return l.Authorizer.Challenge(l.known(ctx), r)
}
