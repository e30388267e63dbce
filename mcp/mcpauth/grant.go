package mcpauth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
)

// grace is how long a renewal may go on when the caller has given up: what it has used up
// might be lost otherwise.
const grace = 2 * time.Second

// grant asks for new tokens, in the way of the options.
func (c *Client) grant(
	ctx context.Context, p *place, scopes []string, subject string,
) (*tokens, error) {
	before := c.before(p, scopes)
	strict, err := c.newKey(p, before)
	if err != nil {
		return nil, err
	}
	var answer *tokenAnswer
	if c.opts.Grant == GrantCode {
		answer, err = c.grantCode(ctx, p, before)
		if refusal, ok := errors.AsType[*oauthError](err); ok && refusal.code == "invalid_client" {
			if c.forget(ctx, p.as.Issuer, before.ClientID) {
				answer, err = c.grantCode(ctx, p, before)
			}
		}
	} else {
		answer, err = c.grantOwn(ctx, p, before, subject)
	}
	if err != nil {
		return nil, err
	}
	return c.take(answer, *before, strict)
}

// before is what is known of tokens that are asked for.
func (c *Client) before(p *place, scopes []string) *tokens {
	return &tokens{
		Issuer: p.as.Issuer, Resource: p.resource.ID, Legacy: p.legacy, Asked: scopes, Granted: scopes,
		Begun: c.now().Unix(),
	}
}

// newKey makes the key that tokens shall be bound to, if they shall. strict tells that they
// must.
func (c *Client) newKey(p *place, t *tokens) (strict bool, err error) {
	supported := slices.Contains(p.as.DPoP, dpopAlgorithm)
	strict = c.opts.DPoPRequired || p.resource.Bound
	if c.opts.DPoPRequired && !supported {
		return true,
			fmt.Errorf("mcpauth: the authorization server %s binds no tokens to keys of the kind %s, as "+
				"the options require", tame(p.as.Issuer), dpopAlgorithm)
	}
	if !strict && (!c.opts.DPoP || !supported) {
		return false, nil
	}
	if t.key, err = newDPoPKey(); err != nil {
		return strict, err
	}
	t.Key, err = t.key.marshal()
	return strict, err
}

// grantOwn asks for tokens without a user.
func (c *Client) grantOwn(
	ctx context.Context, p *place, t *tokens, subject string,
) (*tokenAnswer, error) {
	reg, err := c.register(ctx, p.as, "")
	if err != nil {
		return nil, err
	}
	t.ClientID = reg.ClientID
	form := url.Values{}
	switch c.opts.Grant {
	case GrantClient:
		form.Set("grant_type", GrantClient)
	case GrantAssertion:
		form.Set("grant_type", GrantAssertion)
		jwt, err := c.opts.Assertion(ctx, p.as.Issuer)
		if err != nil {
			return nil, fmt.Errorf("mcpauth: the workload has no assertion: %w", err)
		}
		// RFC 7523 §3: it names the audience that it is for. Anyone who else got it could use it there.
		if c.opts.Issuer == "" && !slices.ContainsFunc(audienceOf(jwt), p.as.named) {
			return nil,
				fmt.Errorf(
					"mcpauth: the workload's assertion is not for the authorization server %s of %s (aud), "+
						"which does not get it; set the issuer if it shall", tame(p.as.Issuer), c.id)
		}
		form.Set("assertion", jwt)
	case GrantExchange:
		// The MCP server has named the authorization server, and must not get at callers' tokens that
		// way.
		if c.opts.Issuer == "" && issuerOf(subject) != p.as.Issuer {
			return nil,
				fmt.Errorf(
					"mcpauth: the authorization server %s of %s has not issued the caller's token, and does not "+
						"get it; set the issuer if it shall", tame(p.as.Issuer), c.id)
		}
		form = exchangeForm(subject, typeAccessToken, typeAccessToken, c.opts.Audience, nil)
	case GrantEnterprise:
		jag, err := c.idJAG(ctx, c.opts.Enterprise, p.as.Issuer, t.Resource, t.Asked)
		if err != nil {
			return nil, err
		}
		form.Set("grant_type", GrantAssertion)
		form.Set("assertion", jag)
	}
	if len(t.Asked) > 0 {
		form.Set("scope", strings.Join(t.Asked, " "))
	}
	form.Set("resource", t.Resource) // RFC 8707 §2.2
	return c.ask(ctx, p.as, reg, form, t.key)
}

// named reports whether an audience is the server: RFC 7523 §3 has its token endpoint as well.
func (s *server) named(audience string) bool {
	return audience != "" && (strings.TrimSuffix(audience, "/") == strings.TrimSuffix(s.Issuer, "/") ||
		audience == s.TokenEndpoint)
}

// issuerOf is the issuer that a JWT names, which is not verified here; "" if it is no JWT.
func issuerOf(token string) string { return textOf(claimOf(token, "iss")) }

// audienceOf is the audience of a JWT, which is not verified here; nil if it is no JWT.
func audienceOf(token string) (all []string) {
	aud := claimOf(token, "aud")
	if len(aud) > 0 && aud[0] != '[' {
		return []string{textOf(aud)}
	}
	for element := range scan.Elements(aud) {
		all = append(all, textOf(element))
	}
	return all
}

// claimOf is a claim of a JWT as it is written, nil if there is none.
func claimOf(token, name string) []byte {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if end, fault := scan.Text(claims, tokenDeep); err != nil || fault != 0 || end != len(claims) {
		return nil
	}
	return scan.Member(claims, name)
}

// textOf is a JSON string's text, "" of anything else.
func textOf(value []byte) string {
	if len(value) == 0 || value[0] != '"' {
		return ""
	}
	return string(scan.Unquote(value))
}

// An attempt is one authorization request. It is answered once.
type attempt struct {
	as              *server
	reg             *registration
	state, verifier string
	redirect        string
	begun           bool
}

// grantCode asks the user: authorization code with PKCE, OAuth 2.1 §4.1.
func (c *Client) grantCode(ctx context.Context, p *place, t *tokens) (*tokenAnswer, error) {
	if err := c.checkCode(p.as); err != nil {
		return nil, err
	}
	if c.opts.Visit == nil {
		return nil, c.needLogin("there is no token for "+c.id, nil)
	}
	preferred := c.opts.RedirectURL
	if reg, err := c.stored(ctx, p.as.Issuer); err != nil {
		return nil, err
	} else if reg != nil && c.opts.ClientID == "" && reg.Redirect != "" &&
		sameButPort(reg.Redirect, preferred) {
		preferred = reg.Redirect
	}
	a := &attempt{as: p.as, state: rand.Text(), verifier: rand.Text() + rand.Text()}
	callback, err := c.opts.Visit(ctx, preferred, func(redirect string) (string, error) {
		return c.begin(ctx, a, t, redirect)
	})
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the user has not signed in: %w", err)
	}
	return c.redeem(ctx, a, t, callback)
}

// redeem asks for tokens when the user of an authorization request has come back.
func (c *Client) redeem(
	ctx context.Context, a *attempt, t *tokens, callback *url.URL,
) (*tokenAnswer, error) {
	code, err := a.code(callback)
	if err != nil {
		return nil, err
	}
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {a.verifier},
		"redirect_uri": {a.redirect}, "resource": {t.Resource},
	}
	return c.ask(ctx, a.as, a.reg, form, t.key)
}

// checkCode refuses authorization servers that cannot do this safely.
func (c *Client) checkCode(as *server) error {
	u, err := url.Parse(as.AuthorizationEndpoint)
	switch {
	case as.AuthorizationEndpoint == "":
		return fmt.Errorf(
			"mcpauth: the metadata of the authorization server %s has no authorization_endpoint",
			tame(as.Issuer))
	case err != nil || !secure(u) || u.Scheme == "http" && !strings.HasPrefix(as.Issuer, "http:"):
		// it is opened in the user's browser
		return fmt.Errorf(
			"mcpauth: the authorization server %s has an authorization_endpoint that is not https",
			tame(as.Issuer))
	case !slices.Contains(as.Challenges, "S256"):
		return fmt.Errorf(
			"mcpauth: the authorization server %s does not say that it supports PKCE with S256 "+
				"(code_challenge_methods_supported), so codes for tokens are not safe there", tame(as.Issuer))
	}
	return nil
}

// begin makes the address at which the user signs in. redirect is where the browser comes back.
func (c *Client) begin(
	ctx context.Context, a *attempt, t *tokens, redirect string,
) (string, error) {
	if a.begun {
		return "", errors.New("mcpauth: the authorization request has begun already")
	}
	a.begun = true
	var err error
	if err = checkRedirect(redirect); err != nil {
		return "", err
	}
	if a.reg, err = c.register(ctx, a.as, redirect); err != nil {
		return "", err
	}
	a.redirect, t.ClientID = redirect, a.reg.ClientID
	if a.reg.own {
		t.Client = a.reg
	}
	u, err := url.Parse(a.as.AuthorizationEndpoint)
	if err != nil {
		return "", fmt.Errorf("mcpauth: the authorization endpoint %q is no URL",
			tame(a.as.AuthorizationEndpoint))
	}
	sum := sha256.Sum256([]byte(a.verifier))
	q := u.Query()
	q.Set("response_type", "code")
	q.Set("client_id", a.reg.ClientID)
	q.Set("redirect_uri", redirect)
	q.Set("state", a.state)
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(sum[:]))
	q.Set("code_challenge_method", "S256")
	q.Set("resource", t.Resource)
	if len(t.Asked) > 0 {
		q.Set("scope", strings.Join(t.Asked, " "))
		if slices.Contains(t.Asked, offlineAccess) && slices.Contains(t.Asked, "openid") {
			q.Set("prompt", "consent") // OpenID Connect Core §11: no refresh token without it
		}
	}
	u.RawQuery, u.Fragment, u.RawFragment = q.Encode(), "", ""
	return u.String(), nil
}

// code reads where the browser came back to: it must answer this request (state), and come
// from the right server (RFC 9207), before anything in it counts.
func (a *attempt) code(callback *url.URL) (string, error) {
	if callback == nil || !a.begun || a.reg == nil {
		return "", errors.New("mcpauth: the user has not signed in: the browser did not come back")
	}
	q, err := url.ParseQuery(callback.RawQuery)
	if err != nil {
		return "", errors.New(
			"mcpauth: the answer to the authorization request cannot be read; log in again")
	}
	for _, name := range []string{"state", "iss", "code", "error"} {
		if len(q[name]) > 1 {
			return "",
				fmt.Errorf("mcpauth: the answer to the authorization request has %q twice; log in again", name)
		}
	}
	state := a.state
	a.state = "" // it counts once
	if state == "" || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(state)) != 1 {
		return "", errors.New(
			"mcpauth: the browser came back with the answer to another request (state); log in again")
	}
	switch _, there := q["iss"]; {
	case there && q.Get("iss") != a.as.Issuer: // to the byte
		return "",
			fmt.Errorf("mcpauth: the answer to the authorization request is not from %s (iss); nothing of "+
				"it was used", tame(a.as.Issuer))
	case !there && a.as.Iss:
		return "",
			fmt.Errorf("mcpauth: the answer to the authorization request does not say that it is from %s "+
				"(iss), as it must; nothing of it was used", tame(a.as.Issuer))
	case q.Get("error") != "":
		return "", &oauthError{
			who: tame(a.as.Issuer), code: tame(q.Get("error")),
			description: tame(q.Get("error_description")),
		}
	case q.Get("code") == "":
		return "", errors.New(
			"mcpauth: the answer to the authorization request has no code; log in again")
	}
	return q.Get("code"), nil
}

// renew gets new tokens for a refresh token. The caller's deadline does not end it at once, as a
// refresh token may count only once.
func (c *Client) renew(ctx context.Context, t *tokens) (*tokens, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	marks, marked := c.store.(marker)
	rest := grace
	if marked {
		rest = markTime
	}
	defer context.AfterFunc(ctx, func() {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-detached.Done():
		}
	})()
	as, err := c.server(detached, t)
	if err != nil {
		return nil, err
	}
	reg, err := c.clientOf(detached, t)
	if err != nil {
		return nil, err
	}
	form := url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {t.Refresh},
		"resource": {t.Resource},
	}
	unused := func() {}
	if marked {
		if unused, err = marks.Mark(detached, tokenKey(c.id)); err != nil {
			return nil, err
		}
		var end context.CancelFunc
		detached, end = context.WithTimeout(detached, markTime)
		defer end()
	}
	answer, err := c.ask(detached, as, reg, form, t.key)
	refusal, refused := errors.AsType[*oauthError](err)
	if dial, ok := errors.AsType[*net.OpError](err); refused || ok && dial.Op == "dial" {
		unused()
	}
	if refused && refusal.code == "invalid_client" {
		c.forget(detached, t.Issuer, t.ClientID)
	}
	if err != nil {
		return nil, err
	}
	return c.take(answer, *t, t.key != nil)
}

// clientOf is the client that tokens were issued to.
func (c *Client) clientOf(ctx context.Context, t *tokens) (*registration, error) {
	reg := &registration{ClientID: t.ClientID, signer: c.signer}
	switch {
	case t.ClientID != "" && t.ClientID == c.opts.ClientID:
		// The tokens may be older than the options, and of another program that gives the client the same
		// name.
		if err := c.bind(ctx, t.Issuer); err != nil {
			return nil, err
		}
		reg.Secret = c.opts.ClientSecret
		return reg, nil
	case t.ClientID == "" || t.ClientID == c.opts.MetadataURL:
		return reg, nil
	}
	stored, err := c.stored(ctx, t.Issuer)
	if err != nil {
		return nil, err
	}
	if stored != nil && stored.ClientID == t.ClientID {
		return stored, nil
	}
	// Another login there may have registered again, for its own port.
	if t.Client != nil && t.Client.ClientID == t.ClientID {
		t.Client.own = true
		return t.Client, nil
	}
	return nil, &oauthError{
		who: tame(t.Issuer), code: "invalid_grant",
		description: "the client is registered no more",
	}
}

// forget drops a registration that its server does not know any more. It reports whether
// another one can be had.
func (c *Client) forget(ctx context.Context, issuer, clientID string) bool {
	reg, err := c.stored(ctx, issuer)
	if err != nil || reg == nil || reg.ClientID != clientID {
		return false
	}
	return c.store.Delete(ctx, registrationKey(issuer)) == nil
}

// The types of tokens, RFC 8693 §3 and the drafts of the identity assertion grant.
const (
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token" //nolint:gosec // the name of a kind
	typeIDToken     = "urn:ietf:params:oauth:token-type:id_token"     //nolint:gosec // the same
	typeIDJAG       = "urn:ietf:params:oauth:token-type:id-jag"
)

// exchangeForm is a token exchange request (RFC 8693 §2.1) without what says who the client is
// and for which resource. requestedType and audience may be empty.
func exchangeForm(
	subject, subjectType, requestedType, audience string, scopes []string,
) url.Values {
	form := url.Values{
		"grant_type": {GrantExchange}, "subject_token": {subject}, "subject_token_type": {subjectType},
	}
	for name, value := range map[string]string{
		"requested_token_type": requestedType, "audience": audience, "scope": strings.Join(scopes, " "),
	} {
		if value != "" {
			form.Set(name, value)
		}
	}
	return form
}

// idJAG gives the user's ID token to the enterprise's identity provider for an authorization grant:
// a JWT that the authorization server with the issuer takes for a token for the resource.
func (c *Client) idJAG(
	ctx context.Context, e *Enterprise, issuer, resource string, scopes []string,
) (string, error) {
	if e.IDToken == nil {
		return "", errors.New("mcpauth: Options.Enterprise has no IDToken")
	}
	token, err := e.IDToken(ctx)
	if err != nil {
		return "", fmt.Errorf("mcpauth: there is no ID token: %w", err)
	}
	endpoint := e.TokenURL
	if endpoint == "" {
		// The operator has named the issuer: no server has led here.
		idp, err := c.discover(ctx, nil, e.Issuer)
		if err != nil {
			return "", fmt.Errorf("mcpauth: the identity provider was not found: %w", err)
		}
		endpoint = idp.TokenEndpoint
	}
	form := exchangeForm(token, typeIDToken, typeIDJAG, issuer, scopes)
	form.Set("resource", resource)
	header := http.Header{}
	switch {
	case e.ClientID != "" && e.ClientSecret != "":
		// RFC 6749 §2.3.1: both parts are encoded as in a form first.
		header.Set("Authorization", basic(e.ClientID, e.ClientSecret))
	case e.ClientID != "":
		form.Set("client_id", e.ClientID)
	}
	answer, err := c.post(ctx, nil, endpoint, header, form)
	if err != nil {
		return "", fmt.Errorf("mcpauth: the identity provider gives no authorization grant: %w", err)
	}
	switch {
	case answer.IssuedTokenType != typeIDJAG:
		return "", errors.New(
			"mcpauth: the identity provider has not issued an authorization grant (ID-JAG), but " +
				"another token")
	case !strings.EqualFold(answer.TokenType, "N_A"): // RFC 8693 §2.2.1: it is no access token
		return "", errors.New(
			"mcpauth: the identity provider's authorization grant has another token_type than N_A")
	case answer.AccessToken == "":
		return "", errors.New("mcpauth: the identity provider's answer has no authorization grant")
	}
	return answer.AccessToken, nil
}
