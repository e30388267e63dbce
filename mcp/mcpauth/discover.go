package mcpauth

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

const (
	metadataLife = 10 * time.Minute // of what was found, when tokens are renewed
	maxServers   = 16               // that are remembered, and that one resource may name
)

// A resource is protected-resource metadata, RFC 9728 §2.
type resource struct {
	ID      string   `json:"resource"`
	Servers []string `json:"authorization_servers"`
	Scopes  []string `json:"scopes_supported"`
	Bound   bool     `json:"dpop_bound_access_tokens_required"`
}

// A server is an authorization server's metadata, RFC 8414 §2.
type server struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint"`
	Scopes                []string `json:"scopes_supported"`
	Challenges            []string `json:"code_challenge_methods_supported"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported"`
	DPoP                  []string `json:"dpop_signing_alg_values_supported"`
	Documents             bool     `json:"client_id_metadata_document_supported"`
	Iss                   bool     `json:"authorization_response_iss_parameter_supported"`

	origin *url.URL  // from where its addresses were learned, see internal/fetch
	found  time.Time // when
	guess  bool      // nothing says so
}

// A place is where the tokens for the server come from.
type place struct {
	resource *resource
	as       *server
	legacy   bool // nothing says who issues tokens: the server itself, as in the revision 2025-03-26
}

var errNowhere = errors.New("neither the server nor its host says who issues tokens for it")

// find finds out where tokens come from. metadata is the address in a challenge, if
// there was one.
func (c *Client) find(ctx context.Context, metadata, known string) (*place, error) {
	res, err := c.findResource(ctx, metadata)
	if err != nil {
		return nil, err
	}
	if res == nil || len(res.Servers) == 0 {
		if c.opts.Issuer != "" {
			res = &resource{ID: c.id, Servers: []string{c.opts.Issuer}}
		} else {
			return c.findLegacy(ctx, res)
		}
	}
	issuer, err := c.choose(res, known)
	if err != nil {
		return nil, err
	}
	as, err := c.discover(ctx, c.origin(issuer), issuer)
	if err != nil {
		return nil, err
	}
	return &place{resource: res, as: as}, nil
}

// origin is from where an issuer was learned: the operator has named it, or the MCP server.
func (c *Client) origin(issuer string) *url.URL {
	if issuer == c.opts.Issuer {
		if u, err := url.Parse(issuer); err == nil {
			return u
		}
	}
	return c.url
}

// choose takes one of the authorization servers: that which the options name, that of
// the tokens there are, or the first.
func (c *Client) choose(res *resource, known string) (string, error) {
	switch {
	case c.opts.Issuer != "":
		if !slices.Contains(res.Servers, c.opts.Issuer) {
			return "", fmt.Errorf(
				"mcpauth: the client is registered at %s, but tokens for %s come from %s now; register it "+
					"there, or leave the issuer out",
				c.opts.Issuer, c.id, tame(res.Servers[0]))
		}
		return c.opts.Issuer, nil
	case known != "" && slices.Contains(res.Servers, known):
		return known, nil
	}
	return res.Servers[0], nil
}

// findResource fetches the protected-resource metadata, from where the challenge says,
// from below the host's well-known address, or from there. There may be none.
func (c *Client) findResource(ctx context.Context, metadata string) (*resource, error) {
	places := []string{insertWellKnown(c.url, "oauth-protected-resource", true)}
	if root := insertWellKnown(c.url, "oauth-protected-resource", false); root != places[0] {
		places = append(places, root)
	}
	if metadata != "" {
		u, err := c.url.Parse(metadata) // RFC 9728 has it absolute, and some servers not
		if err != nil {
			return nil, errors.New("mcpauth: the server's challenge has a resource_metadata that is no URL")
		}
		places = slices.Insert(places, 0, u.String())
	}
	for _, address := range places {
		res := new(resource)
		ok, err := c.document(ctx, c.url, address, res)
		if err != nil {
			return nil, fmt.Errorf("mcpauth: the metadata of %s cannot be had: %w", c.id, err)
		}
		if ok {
			return res, c.checkResource(res)
		}
	}
	return nil, nil
}

// checkResource refuses metadata of another (RFC 9728 §3.3): tokens for what it names
// would be theirs. A server's host, or a part of its path, may be the resource.
func (c *Client) checkResource(res *resource) error {
	u, err := url.Parse(res.ID)
	if err != nil || res.ID == "" || u.Fragment != "" || u.User != nil || !sameOrigin(u, c.url) ||
		!within(u, c.url) {
		return fmt.Errorf(
			"mcpauth: the metadata of %s is that of another resource, %q: no token is asked for", c.id,
			tame(res.ID))
	}
	if len(res.Servers) > maxServers {
		return fmt.Errorf("mcpauth: the metadata of %s names %d authorization servers, more than %d",
			c.id, len(res.Servers), maxServers)
	}
	return nil
}

// within reports whether inner is at outer, or below it.
func within(outer, inner *url.URL) bool {
	if outer.RawQuery != "" {
		return outer.RawQuery == inner.RawQuery && outer.EscapedPath() == inner.EscapedPath()
	}
	above := strings.TrimSuffix(outer.EscapedPath(), "/") + "/"
	return strings.HasPrefix(strings.TrimSuffix(inner.EscapedPath(), "/")+"/", above)
}

// insertWellKnown returns the well-known address for another one, with its path after
// it (RFC 8414 §3.1, RFC 9728 §3.1), or of its host.
func insertWellKnown(u *url.URL, name string, path bool) string {
	w := url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/.well-known/" + name}
	if path {
		w.RawQuery = u.RawQuery
		return w.JoinPath(strings.TrimSuffix(u.EscapedPath(), "/")).String()
	}
	return w.String()
}

// discover fetches an authorization server's metadata, in all its places, in MCP's
// order. origin is from where issuer was learned.
func (c *Client) discover(ctx context.Context, origin *url.URL, issuer string) (*server, error) {
	u, err := issuerURL(issuer)
	if err != nil {
		return nil, err
	}
	if u.EscapedPath() == "/" {
		u.Path, u.RawPath = "", ""
	}
	places := []string{
		insertWellKnown(u, "oauth-authorization-server", true),
		insertWellKnown(u, "openid-configuration", true),
	}
	if u.Path != "" {
		places = append(places, u.JoinPath(".well-known/openid-configuration").String())
	}
	as, err := c.firstServer(ctx, origin, places)
	switch {
	case err != nil:
		return nil, err
	case as == nil:
		return nil, fmt.Errorf("mcpauth: the authorization server %s publishes no metadata at %s",
			tame(issuer), strings.Join(places, " or "))
	case as.Issuer != issuer: // RFC 8414 §3.3, to the byte
		return nil,
			fmt.Errorf("mcpauth: the metadata of the authorization server %s is that of another one, %q",
				tame(issuer), tame(as.Issuer))
	}
	return as, c.remember(as)
}

// firstServer fetches the first metadata that there is.
func (c *Client) firstServer(
	ctx context.Context, origin *url.URL, places []string,
) (*server, error) {
	for _, address := range places {
		as := &server{origin: origin, found: c.now()}
		ok, err := c.document(ctx, origin, address, as)
		if err != nil {
			return nil, fmt.Errorf("mcpauth: the authorization server's metadata cannot be had: %w", err)
		}
		if ok {
			return as, nil
		}
	}
	return nil, nil
}

// findLegacy finds the authorization server of a server that does not name one: it is
// its host, which may have metadata and else has its endpoints at fixed paths
// (2025-03-26, Authorization, "Server Metadata Discovery").
func (c *Client) findLegacy(ctx context.Context, res *resource) (*place, error) {
	base := url.URL{Scheme: c.url.Scheme, Host: c.url.Host}
	as, err := c.firstServer(ctx, c.url, []string{
		insertWellKnown(&base, "oauth-authorization-server", false),
		insertWellKnown(&base, "openid-configuration", false),
	})
	if err != nil {
		return nil, err
	}
	at := base.String()
	if as == nil {
		as = &server{
			Issuer: at, AuthorizationEndpoint: at + "/authorize", TokenEndpoint: at + "/token",
			RegistrationEndpoint: at + "/register",
			Challenges:           []string{"S256"}, origin: c.url, found: c.now(), guess: true,
		}
	}
	// It is not published how the issuer is written; both are the host.
	if as.Issuer != at && as.Issuer != at+"/" {
		return nil,
			fmt.Errorf("mcpauth: the metadata of the authorization server %s is that of another one, %q", at,
				tame(as.Issuer))
	}
	res = cmp.Or(res, &resource{ID: c.id})
	return &place{resource: res, as: as, legacy: true}, c.remember(as)
}

// remember checks metadata and keeps it for the renewal of tokens.
func (c *Client) remember(as *server) error {
	if as.TokenEndpoint == "" {
		return fmt.Errorf("mcpauth: the metadata of the authorization server %s has no token_endpoint",
			tame(as.Issuer))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.servers) >= maxServers {
		clear(c.servers)
	}
	c.servers[as.Issuer] = as
	return nil
}

// server returns the authorization server that has issued tokens.
func (c *Client) server(ctx context.Context, t *tokens) (*server, error) {
	c.mu.Lock()
	as := c.servers[t.Issuer]
	c.mu.Unlock()
	switch {
	case as != nil && c.now().Sub(as.found) < metadataLife:
		return as, nil
	case t.Legacy:
		p, err := c.findLegacy(ctx, nil)
		if err != nil {
			return nil, err
		}
		if p.as.Issuer != t.Issuer {
			return nil, fmt.Errorf("mcpauth: %s issues the tokens no more", tame(t.Issuer))
		}
		return p.as, nil
	}
	return c.discover(ctx, c.origin(t.Issuer), t.Issuer)
}

// document fetches a JSON document. It reports false when there is none: the answer
// is that nothing is there, or something else than JSON, as the page that some hosts
// have for all addresses.
func (c *Client) document(
	ctx context.Context, origin *url.URL, address string, into any,
) (bool, error) {
	u, err := url.Parse(address)
	if err != nil {
		return false, fmt.Errorf("%q is no URL", tame(address))
	}
	if err := plainHost(u); err != nil {
		return false, err
	}
	body, _, status, err := c.fetch.Get(ctx, origin, address)
	if err != nil {
		return false, err
	}
	address = tame(address)
	switch {
	case status >= 500:
		return false, fmt.Errorf("%s answers with the status %d %s; try again later", address, status,
			http.StatusText(status))
	case status != http.StatusOK ||
		!strings.HasPrefix(strings.TrimLeft(string(body[:min(len(body), 64)]), " \t\r\n"), "{"):
		return false, nil
	}
	if err := jsonv2.Unmarshal(body, into); err != nil {
		where := jsonv2.Explain(err)
		return false, fmt.Errorf("%s has no valid metadata: %s", address, cause(where))
	}
	return true, nil
}

func cause(p jsonv2.Problem) string {
	switch {
	case p.Reason == "duplicate":
		return "a member is there twice"
	case p.Pointer != "" && p.Want != nil:
		return fmt.Sprintf("%q is of the wrong type", tame(p.Pointer))
	}
	return "it is not JSON of the right form"
}

// issuerURL checks an issuer, RFC 8414 §2.
func issuerURL(issuer string) (*url.URL, error) {
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery ||
		u.Fragment != "" {
		return nil, fmt.Errorf("mcpauth: the authorization server %q is not named by a URL like "+
			"https://host/path", tame(issuer))
	}
	return u, nil
}

// A registration is who the client is at one authorization server. Only what the server
// itself has given is stored.
type registration struct {
	ClientID string `json:"client_id"`
	Secret   string `json:"client_secret,omitzero"`
	Method   string `json:"token_endpoint_auth_method,omitzero"`
	Redirect string `json:"redirect,omitzero"`
	Expires  int64  `json:"client_secret_expires_at,omitzero"`

	signer *signer
	own    bool // made by dynamic registration
	stored bool // and not just now
}

// String keeps the secret out of logs.
func (r registration) String() string { return "client " + r.ClientID }

// GoString keeps the secret out of logs.
func (r registration) GoString() string { return r.String() }

// method is how the client proves who it is.
func (r *registration) method(as *server) string {
	supported := func(m string) bool { return slices.Contains(as.AuthMethods, m) }
	switch {
	case r.signer != nil && (len(as.AuthMethods) == 0 || supported(authKey) || !supported(authNone)):
		return authKey
	case r.Secret == "":
		return authNone
	case slices.Contains([]string{authNone, authBasic, authPost}, r.Method):
		return r.Method
	case len(as.AuthMethods) == 0 || supported(authBasic): // RFC 8414 §2: the default
		return authBasic
	case supported(authPost):
		return authPost
	case supported(authNone) && r.own:
		return authNone
	}
	return as.AuthMethods[0]
}

// The keys in a Store.
func tokenKey(id string) string             { return "tokens " + id }
func registrationKey(issuer string) string  { return "client " + issuer }
func bindingKey(id, clientID string) string { return "issuer " + clientID + " " + id }

// register returns who the client is at an authorization server, in MCP's order: as the
// options have it, by its metadata document, or by registering itself. redirect is where the
// browser will be sent to, "" for grants without one.
func (c *Client) register(ctx context.Context, as *server, redirect string) (*registration, error) {
	switch {
	case c.opts.ClientID != "":
		if err := c.bind(ctx, as.Issuer); err != nil {
			return nil, err
		}
		return &registration{
			ClientID: c.opts.ClientID, Secret: c.opts.ClientSecret, Redirect: redirect,
			signer: c.signer,
		}, nil
	case c.opts.MetadataURL != "" && as.Documents:
		return &registration{ClientID: c.opts.MetadataURL, Redirect: redirect, signer: c.signer}, nil
	case redirect == "":
		return &registration{}, nil // RFC 7523 §3.1: the assertion says it all
	case as.RegistrationEndpoint == "":
		return nil,
			fmt.Errorf("mcpauth: the authorization server %s requires a pre-registered client: register "+
				"one there with the redirect URL %s, and set its client ID", tame(as.Issuer), redirect)
	}
	reg, err := c.stored(ctx, as.Issuer)
	if err != nil {
		return nil, err
	}
	if reg != nil && reg.Redirect == redirect && (reg.Expires == 0 || reg.Expires > c.now().Unix()) {
		return reg, nil
	}
	if reg, err = c.registerSelf(ctx, as, redirect); err != nil {
		return nil, err
	}
	text, err := jsonv2.Append(nil, reg)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: %w", err)
	}
	if err := c.store.Save(ctx, registrationKey(as.Issuer), text); err != nil {
		return nil, err
	}
	return reg, nil
}

// stored returns the registration that the server has given before, or nil.
func (c *Client) stored(ctx context.Context, issuer string) (*registration, error) {
	text, err := c.store.Load(ctx, registrationKey(issuer))
	if err != nil || text == nil {
		return nil, err
	}
	reg := &registration{own: true, stored: true}
	if err := jsonv2.Unmarshal(text, reg); err != nil || reg.ClientID == "" {
		return nil, nil //nolint:nilerr // what is damaged is made again
	}
	return reg, nil
}

// bind keeps the client ID of the options to one authorization server: that which they name,
// or the first one that was found. Its secret is not for others.
func (c *Client) bind(ctx context.Context, issuer string) error {
	bound := c.opts.Issuer
	if bound == "" {
		key := bindingKey(c.id, c.opts.ClientID)
		text, err := c.store.Load(ctx, key)
		if err != nil {
			return err
		}
		if text == nil || jsonv2.Unmarshal(text, &bound) != nil {
			text, err := jsonv2.Append(nil, issuer)
			if err != nil {
				return fmt.Errorf("mcpauth: %w", err)
			}
			return c.store.Save(ctx, key, text)
		}
	}
	if bound != issuer {
		return fmt.Errorf(
			"mcpauth: the client ID is registered at %s, but tokens for %s come from %s now; register the "+
				"client there, and log out once", bound, c.id, tame(issuer))
	}
	return nil
}

// registerSelf registers the client, RFC 7591.
func (c *Client) registerSelf(
	ctx context.Context, as *server, redirect string,
) (*registration, error) {
	u, err := url.Parse(redirect)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the redirect URL %q is none", tame(redirect))
	}
	// OpenID Connect Registration 1.0 §2: what runs on the user's machine is native.
	kind := "web"
	if u.Scheme != "https" || local(u.Hostname()) {
		kind = "native"
	}
	methods := []string{authNone, authBasic, authPost} // the first that the server has, or else none
	has := func(method string) bool { return slices.Contains(as.AuthMethods, method) }
	body, err := jsonv2.Append(nil, map[string]any{
		"client_name":                cmp.Or(c.opts.Name, "farcall"),
		"redirect_uris":              []string{redirect},
		"grant_types":                []string{"authorization_code", "refresh_token"},
		"response_types":             []string{"code"},
		"token_endpoint_auth_method": methods[max(slices.IndexFunc(methods, has), 0)],
		"application_type":           kind,
	})
	if err != nil {
		return nil, fmt.Errorf("mcpauth: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, as.RegistrationEndpoint,
		bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the registration endpoint %q is no URL",
			tame(as.RegistrationEndpoint))
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.send(r, as.origin, nil)
	if refusal, ok := errors.AsType[*oauthError](err); ok {
		refusal.code = cmp.Or(refusal.code, "registration failed")
		return nil,
			fmt.Errorf(
				"%w (the client has registered as %s with the redirect URL %s; register one by hand if the "+
					"server allows no other)", refusal, kind, redirect)
	}
	if err != nil {
		return nil, err
	}
	return readRegistration(answer, redirect)
}

// readRegistration reads a registration endpoint's answer, RFC 7591 §3.2.1.
func readRegistration(answer []byte, redirect string) (*registration, error) {
	reg := &registration{own: true}
	if err := jsonv2.Unmarshal(answer, reg); err != nil {
		return nil, fmt.Errorf("mcpauth: the answer of the registration endpoint is of no use: %s",
			cause(jsonv2.Explain(err)))
	}
	if reg.ClientID == "" {
		return nil, errors.New("mcpauth: the answer of the registration endpoint has no client_id")
	}
	reg.Redirect = redirect
	return reg, nil
}
