package mcpauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/fetch"
)

// probeTime bounds the asking of a server what it wants.
const probeTime = 3 * time.Second

// A Client gets and keeps the tokens for one server. It may be used by several
// goroutines; one token request at a time is under way for the same tokens.
type Client struct {
	opts   Options
	url    *url.URL
	id     string // the server as a resource, RFC 8707 §2
	fetch  *fetch.Client
	store  Store
	signer *signer
	now    func() time.Time

	own        *session
	challenged atomic.Bool // the server has asked for tokens

	mu       sync.Mutex
	servers  map[string]*server // by issuer
	nonces   map[string]string  // for proofs, by origin
	sessions map[[sha256.Size]byte]*session
}

// New returns the client of the MCP server at an http or https URL. It fails when
// the options contradict one another; nothing is fetched yet.
func New(address string, o *Options) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("mcpauth: the server's address is not a URL like https://host/mcp, " +
			"without a user")
	}
	if !secure(u) {
		return nil,
			fmt.Errorf(
				"mcpauth: tokens for %s would go over the network in clear text; only https is safe, or http "+
					"on this machine", u.Redacted())
	}
	u.Fragment, u.RawFragment = "", ""
	c := &Client{
		url: u, id: resourceID(u), now: time.Now,
		servers: map[string]*server{}, nonces: map[string]string{},
		sessions: map[[sha256.Size]byte]*session{},
	}
	c.opts = *cmp.Or(o, &Options{})
	if c.signer, err = c.opts.check(); err != nil {
		return nil, err
	}
	c.opts.Grant = cmp.Or(c.opts.Grant, GrantCode)
	c.opts.RedirectURL = cmp.Or(c.opts.RedirectURL, DefaultRedirect)
	c.opts.Target = cmp.Or(c.opts.Target, address)
	if c.store = c.opts.Store; c.store == nil {
		c.store = newMemory()
	}
	c.fetch = fetch.New(&fetch.Options{HTTP: c.opts.HTTP, Private: c.opts.Private})
	// What needs no user is got again at any time.
	c.own = newSession("", c.opts.Grant == GrantCode)
	return c, nil
}

// resourceID is a server's canonical URI: RFC 8707 §2, MCP "Canonical Server URI".
func resourceID(u *url.URL) string {
	id := *u
	id.Scheme, id.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if id.Path == "/" && id.RawQuery == "" {
		id.Path, id.RawPath = "", ""
	}
	return id.String()
}

// String keeps what is secret out of logs.
func (c *Client) String() string { return "authorization for " + c.id }

// GoString keeps what is secret out of logs.
func (c *Client) GoString() string { return c.String() }

// Authorize adds the access token to a request, renewed if it has come to its
// end. Without one the request goes out as it is. It refuses a request to
// another origin than the server's.
func (c *Client) Authorize(ctx context.Context, r *http.Request) error {
	if !sameOrigin(r.URL, c.url) {
		return fmt.Errorf("mcpauth: the tokens for %s are not for %s", c.id, originOf(r.URL))
	}
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	t, err := c.current(ctx, s)
	if err != nil || t == nil {
		return err
	}
	r.Header.Set("Authorization", t.Type+" "+t.Access)
	if t.key != nil {
		proof, err := t.key.proof(r.Method, r.URL.String(), t.Access, c.nonce(r.URL))
		if err != nil {
			return err
		}
		r.Header.Set("DPoP", proof)
	}
	return nil
}

// Challenge gets the tokens that an answer of status 401 or 403 demands.
func (c *Client) Challenge(ctx context.Context, r *http.Response) (retry bool, err error) {
	if r.Request == nil || !sameOrigin(r.Request.URL, c.url) {
		return false, nil
	}
	s, err := c.session(ctx)
	if err != nil {
		return false, err
	}
	held := s.held()
	bound := c.opts.DPoP || c.opts.DPoPRequired || held != nil && held.key != nil
	ch := challengeOf(r.Header, bound)
	fresh := c.keepNonce(r.Request.URL, r.Header)
	authorization := r.Request.Header.Get("Authorization")
	get := c.answer
	switch {
	case r.StatusCode == http.StatusUnauthorized && fresh && ch.failure() == "use_dpop_nonce" &&
		authorization != "":
		return true, nil // RFC 9449 §9: only the proof is to be made again
	case ch.failure() == "insufficient_scope" &&
		(r.StatusCode == http.StatusForbidden || authorization != ""):
		get = c.stepUp
	case r.StatusCode == http.StatusUnauthorized:
		c.challenged.Store(true)
	default:
		return false, nil
	}
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.unlock()
	if _, err := c.load(ctx, s); err != nil {
		return false, err
	}
	return get(ctx, s, ch, authorization)
}

// answer gets tokens in the place of those that a request carried. The session is locked.
func (c *Client) answer(
	ctx context.Context, s *session, ch challenge, authorization string,
) (retry bool, err error) {
	t := s.held()
	switch {
	case t.valid(c.now()) && !t.used(authorization):
		return true, nil // others have been faster
	case !c.interactive() && t == nil:
		return false, c.needLogin("there is no token for "+c.id, nil)
	case !c.interactive() && t.Refresh == "":
		return false, c.needLogin(c.id+" takes the token no more", nil)
	}
	if err := s.resting(c.now()); err != nil {
		return false, err
	}
	p, err := c.find(ctx, ch.metadata(), t.issuer())
	if err != nil {
		return false, c.pause(ctx, s, err)
	}
	if t != nil {
		if done, err := c.replace(ctx, s, t, p, ch.failure()); done || err != nil {
			return done, err
		}
	}
	if _, err := c.fill(ctx, s, p, ch.scopes()); err != nil {
		return false, err
	}
	return true, nil
}

// replace renews tokens that the server has refused, if that may help. It fails when
// other tokens would not help either.
func (c *Client) replace(
	ctx context.Context, s *session, t *tokens, p *place, reason string,
) (done bool, err error) {
	now := c.now()
	if p.as.Issuer != t.Issuer { // nothing of one server is for another
		if s.step(now) {
			err := fmt.Errorf("mcpauth: %s names another authorization server again and again, now %s", c.id,
				tame(p.as.Issuer))
			s.note(err, now)
			return false, err
		}
		return false, nil
	}
	if t.Refresh != "" && now.Sub(time.Unix(t.Made, 0)) >= settle {
		renewed, err := c.refresh(ctx, s, t)
		if renewed != nil {
			return true, nil // also when it could not be stored
		}
		return false, err
	}
	if now.Sub(time.Unix(t.Begun, 0)) < settle {
		err := fmt.Errorf("mcpauth: %s refuses the token that %s has just issued for it (%s)", c.id,
			tame(t.Issuer), tame(cmp.Or(reason, "no reason given")))
		s.note(err, now) // each call would have the metadata fetched
		return false, err
	}
	return false, nil
}

// stepUp gets tokens with more scopes: those there were, and those that a challenge names. The
// session is locked.
func (c *Client) stepUp(
	ctx context.Context, s *session, ch challenge, authorization string,
) (retry bool, err error) {
	wanted := ch.scopes()
	t := s.held()
	switch {
	case len(wanted) == 0:
		return false, nil
	case t.valid(c.now()) && !t.used(authorization):
		return true, nil
	case covers(s.scopes(), wanted):
		return false,
			fmt.Errorf("mcpauth: %s wants the scopes %q, which were asked for already and did not suffice",
				c.id, tame(strings.Join(wanted, " ")))
	case c.capped() && !covers(c.opts.Scopes, wanted):
		return false, fmt.Errorf("mcpauth: %s wants the scopes %q, and the options have others only",
			c.id, tame(strings.Join(wanted, " ")))
	case !c.interactive():
		return false, c.needLogin(fmt.Sprintf("%s wants the scopes %q", c.id,
			tame(strings.Join(wanted, " "))), union(s.scopes(), wanted))
	}
	if err := s.resting(c.now()); err != nil {
		return false, err
	}
	if s.step(c.now()) {
		return false,
			fmt.Errorf(
				"mcpauth: %s wants more scopes again and again, now %q; after %d times it gets none "+
					"for a while", c.id, tame(strings.Join(wanted, " ")), maxSteps)
	}
	p, err := c.find(ctx, ch.metadata(), t.issuer())
	if err != nil {
		return false, c.pause(ctx, s, err)
	}
	if _, err := c.fill(ctx, s, p, wanted); err != nil {
		return false, err
	}
	return true, nil
}

// probe asks the server, without tokens, what it wants: where its metadata is, and scopes. It may
// say nothing.
func (c *Client) probe(ctx context.Context) (metadata string, scopes []string) {
	ctx, cancel := context.WithTimeout(ctx, probeTime) // a stream may begin with nothing
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url.String(), http.NoBody)
	if err != nil {
		return "", nil
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := c.fetch.Do(r, nil)
	if err != nil {
		return "", nil // anyone who sends the first message will see it
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		return "", nil
	}
	c.challenged.Store(true)
	ch := challengeOf(resp.Header, c.opts.DPoP || c.opts.DPoPRequired)
	return ch.metadata(), ch.scopes()
}

// Login gets new tokens, whether there are some or not.
func (c *Client) Login(ctx context.Context) error {
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if !c.interactive() {
		return c.needLogin("there is no user to ask", nil)
	}
	p, scopes, err := c.look(ctx, s)
	if err == nil {
		_, err = c.fill(ctx, s, p, scopes)
	}
	return err
}

// look finds out where tokens come from, and the scopes that the server wants. s.busy is held.
func (c *Client) look(ctx context.Context, s *session) (p *place, scopes []string, err error) {
	// only for the scopes and the issuer of before; what is damaged gets replaced
	_, _ = c.load(ctx, s)
	metadata, scopes := c.probe(ctx)
	p, err = c.find(ctx, metadata, s.held().issuer())
	if err == nil && p.legacy && !c.challenged.Load() {
		err = fmt.Errorf("mcpauth: %s asks for no token, and %w", c.id, errNowhere)
	}
	return p, scopes, err
}

// Logout revokes the tokens where the authorization server offers that, and forgets
// them in any case, with the client's registration there.
func (c *Client) Logout(ctx context.Context) error {
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if s.kept { // a renewal that goes on would put them back
		if free, err := exclusive(ctx, c.store, tokenKey(c.id)); err == nil {
			defer free()
		}
	}
	_, _ = c.load(ctx, s) // what is damaged is forgotten, too
	t := s.held()
	s.hold(nil)
	var failed error
	if t != nil {
		c.revoke(ctx, t)
		failed = c.store.Delete(ctx, registrationKey(t.Issuer))
	}
	if c.opts.ClientID != "" {
		failed = errors.Join(failed, c.store.Delete(ctx, bindingKey(c.id, c.opts.ClientID)))
	}
	if s.kept {
		failed = errors.Join(failed, c.store.Delete(ctx, tokenKey(c.id)))
	}
	return failed
}

// revoke tells the authorization server that tokens are of no use any more, RFC 7009. Whether it
// listens is its own affair.
func (c *Client) revoke(ctx context.Context, t *tokens) {
	as, err := c.server(ctx, t)
	if err != nil || as.RevocationEndpoint == "" {
		return
	}
	reg, err := c.clientOf(ctx, t)
	if err != nil {
		return
	}
	for hint, token := range map[string]string{"refresh_token": t.Refresh, "access_token": t.Access} {
		if token == "" {
			continue
		}
		form, header := url.Values{"token": {token}, "token_type_hint": {hint}}, http.Header{}
		if c.identify(as, reg, header, form) == nil {
			_, _ = c.postForm(ctx, as.origin, as.RevocationEndpoint, header, form)
		}
	}
}

// Status says what there is. It fetches nothing.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	if _, err := c.load(ctx, s); err != nil {
		return nil, err
	}
	st := &Status{Server: c.id}
	if t := s.held(); t != nil {
		st.Issuer, st.ClientID, st.Scopes = t.Issuer, t.ClientID, t.Granted
		st.Expires, st.Refresh, st.Bound = t.Expires, t.Refresh != "", t.key != nil
	}
	return st, nil
}

// interactive reports whether new tokens can be had, with a user or without.
func (c *Client) interactive() bool { return c.opts.Grant != GrantCode || c.opts.Visit != nil }

// capped reports whether the server gets no other scopes than those of the options: there is
// no user to refuse them.
func (c *Client) capped() bool { return len(c.opts.Scopes) > 0 && c.opts.Grant != GrantCode }

// needLogin is the error of what only a user can do.
func (c *Client) needLogin(why string, scopes []string) error {
	advice := []string{"farcall login"}
	for _, scope := range scopes {
		if pasteable(scope) {
			advice = append(advice, "--scope", scope)
		}
	}
	return fmt.Errorf("mcpauth: %w: %s; run `%s %s`", ErrLogin, why, strings.Join(advice, " "),
		c.opts.Target)
}

// pasteable reports whether a scope means nothing to a shell: the server has chosen it, and
// users paste advice.
func pasteable(scope string) bool {
	return scope[0] != '-' && !strings.ContainsFunc(scope, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune(":./_-", r)
	})
}
