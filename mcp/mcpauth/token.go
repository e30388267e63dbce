package mcpauth

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	maxToken  = 32 << 10                // bytes
	maxLife   = 10 * 365 * 24 * 60 * 60 // seconds; a longer life is as good as no end
	tokenDeep = 32

	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// The ways to prove who the client is, RFC 7591 §2.
const (
	authNone  = "none"
	authBasic = "client_secret_basic"
	authPost  = "client_secret_post"
	authKey   = "private_key_jwt"
)

// A tokenAnswer is a token endpoint's answer, RFC 6749 §5.1.
type tokenAnswer struct {
	AccessToken, TokenType, RefreshToken, IssuedTokenType string
	Scopes                                                []string // nil: as asked for
	ExpiresIn                                             int64    // seconds, -1 when it does not say
}

// String keeps the tokens out of logs.
func (tokenAnswer) String() string { return "token answer" }

// GoString keeps the tokens out of logs.
func (tokenAnswer) GoString() string { return "token answer" }

// parseAnswer reads a token endpoint's answer. Errors about it do not quote it.
func parseAnswer(body []byte) (*tokenAnswer, error) {
	if end, fault := scan.Text(body, tokenDeep); fault != 0 || end != len(body) {
		return nil, errors.New("it is not JSON")
	}
	var all map[string]rawValue
	if err := jsonv2.Unmarshal(body, &all); err != nil {
		return nil, errors.New("it is no JSON object, or has a member twice")
	}
	a := &tokenAnswer{ExpiresIn: -1}
	for name, into := range map[string]*string{
		"access_token": &a.AccessToken, "token_type": &a.TokenType, "refresh_token": &a.RefreshToken,
		"issued_token_type": &a.IssuedTokenType,
	} {
		raw := all[name]
		switch {
		case raw == nil, string(raw) == "null":
		case raw[0] != '"':
			return nil, fmt.Errorf("its %s is no string", name)
		default:
			*into = string(scan.Unquote(raw))
		}
		if !headerSafe(*into) {
			return nil, fmt.Errorf("its %s has characters that none may have, or is longer than %d bytes",
				name, maxToken)
		}
	}
	switch {
	case a.AccessToken == "":
		return nil, errors.New("it has no access_token")
	case a.TokenType == "": // RFC 6749 §7.1: a token of an unknown type must not be used
		return nil, errors.New("it has no token_type")
	}
	if raw := all["scope"]; len(raw) > 0 && raw[0] == '"' {
		a.Scopes = append([]string{}, scopesOf(string(scan.Unquote(raw)))...)
	}
	a.ExpiresIn = lifeOf(all["expires_in"])
	return a, nil
}

// rawValue is a JSON value as it is written.
type rawValue []byte

// UnmarshalJSON implements the interface of encoding/json.
func (r *rawValue) UnmarshalJSON(b []byte) error {
	*r = slices.Clone(b)
	return nil
}

// lifeOf reads expires_in, which some servers write as a string or with a fraction. What
// makes no sense, and 0, is -1: not known.
func lifeOf(raw rawValue) int64 {
	text := string(raw)
	if len(raw) > 0 && raw[0] == '"' {
		text = string(scan.Unquote(raw))
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || f < 1 || f > maxLife {
		return -1
	}
	return int64(f)
}

// headerSafe reports whether a token can be sent: RFC 6750 §2.1, and whatever else is
// visible ASCII.
func headerSafe(s string) bool {
	return len(s) <= maxToken &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < 0x21 || r > 0x7e })
}

// post sends a form to a token endpoint. origin is from where the endpoint was
// learned. A refusal is an *oauthError.
func (c *Client) post(
	ctx context.Context, origin *url.URL, endpoint string, header http.Header, form url.Values,
) (*tokenAnswer, error) {
	body, err := c.postForm(ctx, origin, endpoint, header, form)
	if err != nil {
		return nil, err
	}
	a, err := parseAnswer(body)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the answer of %s is of no use: %w", tame(endpoint), err)
	}
	return a, nil
}

// postForm sends a form and returns what came back with a status of 2xx.
func (c *Client) postForm(
	ctx context.Context, origin *url.URL, endpoint string, header http.Header, form url.Values,
) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint,
		strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the endpoint %q of the authorization server is no URL",
			tame(endpoint))
	}
	maps.Copy(r.Header, header)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return c.send(r, origin, form)
}

// send sends a request to an authorization server. The form is what in it is secret.
func (c *Client) send(r *http.Request, origin *url.URL, form url.Values) ([]byte, error) {
	if err := plainHost(r.URL); err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := c.fetch.Do(r, origin)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the authorization server cannot be asked: %w", err)
	}
	defer resp.Body.Close()
	c.keepNonce(r.URL, resp.Header)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the authorization server %s: %w", r.URL.Host, err)
	}
	// Some servers refuse with the status 200.
	if refusal := refusalOf(body); refusal != nil || resp.StatusCode/100 != 2 {
		refusal = cmp.Or(refusal, &oauthError{})
		refusal.who, refusal.status = r.URL.Host, resp.StatusCode
		refusal.code = tame(hide(refusal.code, form, r.Header.Get("Authorization")))
		refusal.description = tame(hide(refusal.description, form, r.Header.Get("Authorization")))
		return nil, refusal
	}
	return body, nil
}

// refusalOf reads an error of RFC 6749 §5.2, not yet tame; nil when there is none.
func refusalOf(body []byte) *oauthError {
	if end, fault := scan.Text(body, tokenDeep); fault != 0 || end != len(body) {
		return nil
	}
	text := func(name string) string {
		if v := scan.Member(body, name); len(v) > 0 && v[0] == '"' {
			return string(scan.Unquote(v))
		}
		return ""
	}
	e := &oauthError{code: text("error"), description: text("error_description")}
	if e.code == "" {
		return nil
	}
	return e
}

// ask asks an authorization server for tokens: form is the grant. key binds them, unless it is nil.
func (c *Client) ask(
	ctx context.Context, as *server, reg *registration, form url.Values, key *dpopKey,
) (*tokenAnswer, error) {
	header := http.Header{}
	if err := c.identify(as, reg, header, form); err != nil {
		return nil, err
	}
	u, err := url.Parse(as.TokenEndpoint)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the token endpoint %q is no URL", tame(as.TokenEndpoint))
	}
	for try := 0; ; try++ {
		if key != nil {
			proof, err := key.proof(http.MethodPost, as.TokenEndpoint, "", c.nonce(u))
			if err != nil {
				return nil, err
			}
			header.Set("DPoP", proof)
		}
		a, err := c.post(ctx, as.origin, as.TokenEndpoint, header, form)
		// RFC 9449 §8: the nonce came with the refusal. The grant has not been used.
		if refusal, ok := errors.AsType[*oauthError](err); ok && refusal.code == "use_dpop_nonce" &&
			key != nil && try == 0 {
			if reg.signer != nil { // its jti counts once
				if err := c.identify(as, reg, header, form); err != nil {
					return nil, err
				}
			}
			continue
		}
		return a, err
	}
}

// identify says who the client is, in the way that the server and the registration have in common.
func (c *Client) identify(
	as *server, reg *registration, header http.Header, form url.Values,
) error {
	switch method := reg.method(as); method {
	case authBasic:
		header.Set("Authorization", basic(reg.ClientID, reg.Secret))
	case authPost:
		form.Set("client_id", reg.ClientID)
		form.Set("client_secret", reg.Secret)
	case authKey:
		jwt, err := reg.signer.assertion(reg.ClientID, as.Issuer, c.now())
		if err != nil {
			return err
		}
		form.Set("client_id", reg.ClientID)
		form.Set("client_assertion_type", assertionType)
		form.Set("client_assertion", jwt)
	case authNone:
		if reg.ClientID != "" {
			form.Set("client_id", reg.ClientID)
		}
	default:
		return fmt.Errorf(
			"mcpauth: the authorization server %s wants the client to prove who it is by %s, for which it "+
				"has nothing", tame(as.Issuer), tame(method))
	}
	return nil
}

// basic is HTTP Basic authentication of a client: RFC 6749 §2.3.1 has both parts encoded
// as in a form.
func basic(id, secret string) string {
	return "Basic " +
		base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(id)+":"+url.QueryEscape(secret)))
}

// keepNonce keeps the nonce that a server wants in proofs, RFC 9449 §8.2 and §9.
func (c *Client) keepNonce(u *url.URL, h http.Header) bool {
	nonce := h.Get("DPoP-Nonce")
	if nonce == "" || len(nonce) > 1024 || !headerSafe(nonce) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.nonces) >= maxServers {
		clear(c.nonces)
	}
	c.nonces[originOf(u)] = nonce
	return true
}

func (c *Client) nonce(u *url.URL) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nonces[originOf(u)]
}

// tokens are what a session has. They do not change once others see them.
type tokens struct {
	Issuer   string `json:"issuer"`
	ClientID string `json:"client_id"`
	Resource string `json:"resource"`
	Legacy   bool   `json:"legacy,omitzero"`

	Access  string `json:"access_token"`
	Type    string `json:"token_type"` // Bearer or DPoP
	Refresh string `json:"refresh_token,omitzero"`

	Asked   []string `json:"asked"`   // scopes
	Granted []string `json:"granted"` // scopes
	Expires int64    `json:"expires,omitzero"`
	Made    int64    `json:"made"`  // Unix time in seconds of these tokens,
	Begun   int64    `json:"begun"` // and of the grant that they go back to
	Key     []byte   `json:"dpop_key,omitzero"`

	Client *registration `json:"client,omitzero"` // that made itself known

	key *dpopKey
}

// String keeps the tokens out of logs.
func (tokens) String() string { return "tokens" }

// GoString keeps the tokens out of logs.
func (tokens) GoString() string { return "tokens" }

// readTokens reads what a store has.
func readTokens(text []byte) (*tokens, error) {
	t := new(tokens)
	if err := jsonv2.Unmarshal(text, t); err != nil || t.Issuer == "" || !headerSafe(t.Access) ||
		!headerSafe(t.Refresh) {
		return nil, errors.New("mcpauth: the tokens in the store are damaged; log in again")
	}
	if len(t.Key) > 0 {
		var err error
		if t.key, err = readDPoPKey(t.Key); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// take makes tokens of an answer: before says what they are for.
func (c *Client) take(a *tokenAnswer, before tokens, strict bool) (*tokens, error) {
	t := before
	now := c.now()
	switch strings.ToLower(a.TokenType) {
	case "dpop":
		if t.key == nil {
			return nil,
				fmt.Errorf(
					"mcpauth: the authorization server %s has bound the token to a key that the client "+
						"does not have", tame(t.Issuer))
		}
		t.Type = "DPoP"
	case "bearer":
		if t.key != nil && strict { // RFC 9449 §5
			return nil,
				fmt.Errorf("mcpauth: the authorization server %s has not bound the token to the client's key",
					tame(t.Issuer))
		}
		t.Type, t.key, t.Key = "Bearer", nil, nil
	default:
		return nil,
			fmt.Errorf("mcpauth: the authorization server %s has issued a token of the unknown type %q",
				tame(t.Issuer), tame(a.TokenType))
	}
	t.Access, t.Made, t.Expires = a.AccessToken, now.Unix(), 0
	if a.ExpiresIn >= 0 {
		t.Expires = now.Add(time.Duration(a.ExpiresIn) * time.Second).Unix()
	}
	t.Refresh = cmp.Or(a.RefreshToken, t.Refresh)
	if a.Scopes != nil {
		t.Granted = a.Scopes
	}
	return &t, nil
}

// issuer is who has issued tokens, "" if there are none.
func (t *tokens) issuer() string {
	if t == nil {
		return ""
	}
	return t.Issuer
}

// valid reports whether the access token will live a moment longer.
func (t *tokens) valid(now time.Time) bool {
	if t == nil || t.Access == "" {
		return false
	}
	// It is renewed before its end: clocks differ, and the request takes its time.
	margin := min(30*time.Second, time.Duration(t.Expires-t.Made)*time.Second/4)
	return t.Expires == 0 || now.Before(time.Unix(t.Expires, 0).Add(-margin))
}

// alive reports whether the access token has not come to its end yet.
func (t *tokens) alive(now time.Time) bool {
	return t != nil && t.Access != "" && (t.Expires == 0 || now.Before(time.Unix(t.Expires, 0)))
}

// meanwhile returns tokens that could not be renewed, and will do for this time; else the error.
func (t *tokens) meanwhile(now time.Time, err error) (*tokens, error) {
	if t.alive(now) {
		return t, nil
	}
	return nil, err
}
