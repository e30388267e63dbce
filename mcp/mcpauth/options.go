package mcpauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// The values of Options.Grant.
const (
	// GrantCode asks the user, in a browser: authorization code with PKCE. It is
	// the default.
	GrantCode = "authorization_code"
	// GrantClient uses the client's own credentials: ClientID, and ClientSecret or
	// Key.
	GrantClient = "client_credentials"
	// GrantAssertion presents a JWT that the workload's platform has issued
	// (workload identity federation, RFC 7523 §2.1). It needs Assertion.
	GrantAssertion = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	// GrantExchange exchanges a caller's token for one of the server (RFC 8693). It
	// needs Subject.
	GrantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	// GrantEnterprise gives the user's ID token for an authorization grant at the
	// enterprise's identity provider, and that for a token (ID-JAG). It needs
	// Enterprise.
	GrantEnterprise = "enterprise"
)

// Options say who the client is and how it gets tokens. The zero value, and nil,
// mean: a public client, which registers itself, for tokens that are in memory
// only and that another has put there, as there is no Visit.
type Options struct {
	// ClientID is what the authorization server knows the client by, when it has
	// been registered by hand. ClientSecret or Key, a private key in PEM (PKCS 8,
	// PKCS 1 or SEC 1) for private_key_jwt, proves it. KeyID is its kid and
	// KeyAlgorithm its alg; they may be empty.
	ClientID, ClientSecret   string
	Key, KeyID, KeyAlgorithm string
	// Issuer is the only authorization server that ClientID and its secret are
	// for; with a secret it should be set. Default: the one that the MCP server names
	// first, which is kept in Store.
	Issuer string
	// MetadataURL is where the client's ID metadata document is, an https URL. It
	// is the client ID wherever the authorization server supports that.
	MetadataURL string
	// Name is shown to the user when the client registers itself. Default
	// "farcall".
	Name string
	// RedirectURL is where the browser is sent to in the end. Default
	// DefaultRedirect.
	RedirectURL string
	// Scopes are asked for in place of those in the server's metadata, and beside
	// those that its challenges name. Where no user is asked they are all that is asked for.
	Scopes []string
	// Grant is how tokens are asked for, one of the constants. Default GrantCode.
	Grant string
	// Assertion returns a fresh JWT for the authorization server at audience, its
	// issuer; for GrantAssertion.
	Assertion func(ctx context.Context, audience string) (string, error)
	// Subject returns the token to be exchanged, for GrantExchange. It is asked
	// for each request, so that each caller, identified by ctx, has separate tokens;
	// they are in memory only. Unless Issuer says where it may be exchanged, only who
	// has issued it, by the iss of a JWT, gets to see it. Audience is an extra parameter;
	// it may be empty.
	Subject  func(ctx context.Context) (token string, err error)
	Audience string
	// Enterprise is the identity provider, for GrantEnterprise.
	Enterprise *Enterprise
	// DPoP binds tokens to a key (RFC 9449) wherever the authorization server
	// supports that. With DPoPRequired it must.
	DPoP, DPoPRequired bool
	// Store keeps tokens and registrations. Default: memory.
	Store Store
	// HTTP sends the requests to authorization servers. Default: a
	// client that is not led to private addresses by public servers. What is given
	// here is trusted to be the operator's.
	HTTP *http.Client
	// Private lets a public server lead to authorization servers at private
	// addresses.
	Private bool
	// Visit lets the user sign in, and returns where the browser was sent to in the
	// end: the redirect URL with code and state. Default: none, and what needs it
	// fails with ErrLogin. See Browser.
	//
	// Redirect is where the browser is to be sent to: RedirectURL or the one that
	// served before; its port is 0 or missing when any will do. Begin takes the
	// redirect URL that it shall be, with the port, and returns the address to show
	// to the user; it is to be called once.
	Visit func(
		ctx context.Context, redirect string, begin func(redirect string) (address string, err error),
	) (callback *url.URL, err error)
	// Target is what the user calls the server; it is in the advice of errors.
	// Default: the server's URL.
	Target string
}

// Enterprise is an enterprise's identity provider, at which the user has
// already signed in.
type Enterprise struct {
	// Issuer is the provider; TokenURL its token endpoint, found out by default.
	Issuer, TokenURL string
	// ClientID is what the provider knows the client by, ClientSecret may prove
	// it.
	ClientID, ClientSecret string
	// IDToken returns the user's ID token.
	IDToken func(ctx context.Context) (string, error)
}

// DefaultRedirect is where the browser goes unless Options say otherwise. Any
// port will do there: RFC 8252 §7.3.
const DefaultRedirect = "http://127.0.0.1/callback"

// ErrLogin means that a user must sign in before the server can be used.
var ErrLogin = errors.New("login needed")

// A Store keeps small secrets by name. It is used by several goroutines, and
// several processes may use what it stands on.
type Store interface {
	// Load returns nil without an error when there is nothing.
	Load(ctx context.Context, key string) ([]byte, error)
	Save(ctx context.Context, key string, value []byte) error
	// Delete is no error when there is nothing.
	Delete(ctx context.Context, key string) error
}

// Status says what a Client has.
type Status struct {
	// Server is the resource that tokens are for, Issuer who has issued them; it is
	// empty when there are none.
	Server, Issuer, ClientID string
	Scopes                   []string
	// Expires is the Unix time in seconds when the access token ends, 0 when that
	// is not known. Refresh tells that it can be renewed without the user, Bound
	// that it is of use with the client's key only.
	Expires        int64
	Refresh, Bound bool
}

// String keeps what is secret out of logs.
func (o Options) String() string { return "authorization as " + tame(o.ClientID) }

// GoString keeps what is secret out of logs.
func (o Options) GoString() string { return o.String() }

// String keeps what is secret out of logs.
func (e Enterprise) String() string { return "identity provider " + tame(e.Issuer) }

// GoString keeps what is secret out of logs.
func (e Enterprise) GoString() string { return e.String() }

// check refuses options that contradict one another, and reads the key.
func (o *Options) check() (*signer, error) {
	switch {
	case o.ClientSecret != "" && o.Key != "":
		return nil, errors.New("mcpauth: a client has a secret or a key, not both")
	case o.ClientSecret != "" && o.ClientID == "":
		return nil, errors.New("mcpauth: the client's secret needs its ID")
	}
	if err := errors.Join(o.checkGrant(), o.checkAddresses()); err != nil {
		return nil, err
	}
	for _, scope := range o.Scopes {
		if !validScope(scope) {
			return nil, fmt.Errorf("mcpauth: %q is no scope", tame(scope))
		}
	}
	if o.Key == "" {
		return nil, nil
	}
	return newSigner(o.Key, o.KeyID, o.KeyAlgorithm)
}

// checkGrant refuses a grant without what it needs.
func (o *Options) checkGrant() error {
	missing := ""
	switch o.Grant {
	case "", GrantCode:
	case GrantClient:
		if o.ClientSecret == "" && (o.Key == "" || o.ClientID == "" && o.MetadataURL == "") {
			missing = "a client ID, and a secret or a key"
		}
	case GrantAssertion:
		if o.Assertion == nil {
			missing = "an assertion"
		}
	case GrantExchange:
		if o.Subject == nil {
			missing = "a subject"
		}
	case GrantEnterprise:
		if e := o.Enterprise; e == nil || e.IDToken == nil || e.Issuer == "" && e.TokenURL == "" {
			missing = "the identity provider and the user's ID token"
		}
	default:
		return fmt.Errorf("mcpauth: the grant %q is unknown", tame(o.Grant))
	}
	if missing != "" {
		return fmt.Errorf("mcpauth: the grant %s needs %s", o.Grant, missing)
	}
	return nil
}

// checkAddresses refuses addresses that cannot be, or that others could use.
func (o *Options) checkAddresses() error {
	if o.Issuer != "" {
		if u, err := issuerURL(o.Issuer); err != nil || !secure(u) {
			return errors.New("mcpauth: the issuer is not a URL like https://host/path")
		}
	}
	if o.MetadataURL != "" {
		// draft-ietf-oauth-client-id-metadata-document-00 §3.
		u, err := url.Parse(o.MetadataURL)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" ||
			strings.Trim(u.Path, "/") == "" {
			return errors.New("mcpauth: a client ID metadata document is at a URL like https://host/path")
		}
	}
	if o.RedirectURL != "" {
		return checkRedirect(o.RedirectURL)
	}
	return nil
}

// checkRedirect refuses redirect URLs at which others listen: MCP allows https, and this
// machine.
func checkRedirect(redirect string) error {
	u, err := url.Parse(redirect)
	if err != nil || !secure(u) || u.Fragment != "" {
		return fmt.Errorf("mcpauth: the redirect URL %q is neither https nor on this machine",
			tame(redirect))
	}
	return nil
}

// sameButPort reports whether two redirect URLs differ in the port at most, and the second
// one has none.
func sameButPort(a, b string) bool {
	x, err1 := url.Parse(a)
	y, err2 := url.Parse(b)
	if err1 != nil || err2 != nil {
		return false
	}
	return a == b || (y.Port() == "" || y.Port() == "0") && x.Scheme == y.Scheme &&
		x.Hostname() == y.Hostname() && x.RequestURI() == y.RequestURI()
}
