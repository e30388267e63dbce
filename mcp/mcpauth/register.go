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

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

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
		return &registration{ClientID: c.opts.ClientID, Secret: c.opts.ClientSecret, Redirect: redirect, signer: c.signer}, nil
	case c.opts.MetadataURL != "" && as.Documents:
		return &registration{ClientID: c.opts.MetadataURL, Redirect: redirect, signer: c.signer}, nil
	case redirect == "":
		return &registration{}, nil // RFC 7523 §3.1: the assertion says it all
	case as.RegistrationEndpoint == "":
		return nil, fmt.Errorf("mcpauth: the authorization server %s requires a pre-registered client: register one there with the redirect URL %s, and set its client ID", tame(as.Issuer), redirect)
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
		return fmt.Errorf("mcpauth: the client ID is registered at %s, but tokens for %s come from %s now; register the client there, and log out once", bound, c.id, tame(issuer))
	}
	return nil
}

// registerSelf registers the client, RFC 7591.
func (c *Client) registerSelf(ctx context.Context, as *server, redirect string) (*registration, error) {
	u, err := url.Parse(redirect)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the redirect URL %q is none", tame(redirect))
	}
	// OpenID Connect Registration 1.0 §2: what runs on the user's machine is native.
	kind := "web"
	if u.Scheme != "https" || local(u.Hostname()) {
		kind = "native"
	}
	method := authNone
	if len(as.AuthMethods) > 0 && !slices.Contains(as.AuthMethods, authNone) {
		for _, m := range []string{authBasic, authPost} {
			if slices.Contains(as.AuthMethods, m) {
				method = m
				break
			}
		}
	}
	body, err := jsonv2.Append(nil, map[string]any{
		"client_name":                cmp.Or(c.opts.Name, "farcall"),
		"redirect_uris":              []string{redirect},
		"grant_types":                []string{"authorization_code", "refresh_token"},
		"response_types":             []string{"code"},
		"token_endpoint_auth_method": method,
		"application_type":           kind,
	})
	if err != nil {
		return nil, fmt.Errorf("mcpauth: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, as.RegistrationEndpoint, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the registration endpoint %q is no URL", tame(as.RegistrationEndpoint))
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.send(r, as.origin, nil)
	if refusal, ok := errors.AsType[*oauthError](err); ok {
		refusal.code = cmp.Or(refusal.code, "registration failed")
		return nil, fmt.Errorf("%w (the client has registered as %s with the redirect URL %s; register one by hand if the server allows no other)", refusal, kind, redirect)
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
		return nil, fmt.Errorf("mcpauth: the answer of the registration endpoint is of no use: %s", cause(jsonv2.Explain(err)))
	}
	if reg.ClientID == "" {
		return nil, errors.New("mcpauth: the answer of the registration endpoint has no client_id")
	}
	reg.Redirect = redirect
	return reg, nil
}
