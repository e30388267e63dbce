package token

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/fetch"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	defaultIntrospectTTL     = 30 * time.Second
	defaultIntrospectTimeout = 5 * time.Second
	maxAnswer                = 64 << 10 // bytes of an answer
	maxAnswers               = 32 << 20 // and of all that are remembered
	answerOverhead           = 512
	logEvery                 = 10 * time.Second
)

// An introspector asks an issuer about tokens (RFC 7662). Answers are remembered for TTL, at
// most until the token expires, in a table in which each owner has a share; those who ask about
// the same token at the same time share one request. What cannot be found out is refused.
type introspector struct {
	v      *Verifier
	i      *issuer
	client *fetch.Client

	mu      sync.Mutex
	known   *share.Table[[sha256.Size]byte, *answer]
	asking  map[[sha256.Size]byte]*asked
	logged  time.Time
	skipped int // failures that were not logged since
}

// An answer is what the issuer has said about a token. Exactly one of token and err is set.
type answer struct {
	token *Token
	err   error
	until time.Time
}

// asked is a request under way, and then its answer.
type asked struct {
	done   chan struct{}
	answer *answer
}

func newIntrospector(v *Verifier, i *issuer, client *http.Client) (*introspector, error) {
	c := &i.Introspection
	if c.URL == "" {
		if c.Opaque || c.ClientID != "" || c.ClientSecret != "" {
			return nil, errors.New("its introspection has no url")
		}
		return nil, nil //nolint:nilnil // its tokens are not asked about
	}
	if err := fetch.Check(c.URL); err != nil {
		return nil, fmt.Errorf("its introspection endpoint: %w", err)
	}
	c.Auth = cmp.Or(c.Auth, "basic")
	switch {
	case c.Auth != "basic" && c.Auth != "post" && c.Auth != "bearer":
		return nil, fmt.Errorf("its introspection has the auth %q; use basic, post or bearer", c.Auth)
	case c.ClientSecret == "":
		return nil, errors.New(
			"its introspection has no client_secret; the endpoint must know who asks (RFC 7662 §2.1)")
	case c.Auth != "bearer" && c.ClientID == "":
		return nil, errors.New("its introspection has no client_id")
	case c.TTL < 0 || c.Timeout < 0:
		return nil, errors.New("a time of its introspection is negative")
	}
	c.TTL, c.Timeout = cmp.Or(c.TTL, defaultIntrospectTTL), cmp.Or(c.Timeout, defaultIntrospectTimeout)
	return &introspector{
		v: v, i: i,
		client: fetch.New(
			&fetch.Options{HTTP: client, Private: i.Private, MaxBytes: maxAnswer, Timeout: c.Timeout}),
		known:  share.NewTable[[sha256.Size]byte, *answer](share.Bounds{Total: maxAnswers}),
		asking: map[[sha256.Size]byte]*asked{},
	}, nil
}

// ask returns what the issuer says about a token, or an *Error, or that of Options.Admit.
func (n *introspector) ask(ctx context.Context, raw string) (*Token, error) {
	key := sha256.Sum256([]byte(raw))
	n.mu.Lock()
	if a, _, ok := n.known.Get(key); ok && n.v.now().Before(a.until) {
		n.mu.Unlock()
		return a.token, a.err
	}
	f := n.asking[key]
	n.mu.Unlock()
	if f == nil {
		var err error
		if f, err = n.begin(ctx, key, raw); err != nil {
			return nil, err
		}
	}
	select {
	case <-f.done:
		return f.answer.token, f.answer.err
	case <-ctx.Done():
		return nil, &Error{Reason: "unavailable", Cause: context.Cause(ctx)}
	}
}

// begin begins a request, or joins one that has begun meanwhile. The request goes on when its
// caller gives up, as others may wait for it.
func (n *introspector) begin(
	ctx context.Context, key [sha256.Size]byte, raw string,
) (*asked, error) {
	by, release := owner.Key{}, func() {}
	if n.v.admit != nil {
		var err error
		if by, release, err = n.v.admit(ctx); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.asking[key]; f != nil {
		release()
		return f, nil
	}
	f := &asked{done: make(chan struct{})}
	began := n.v.background(func() {
		defer release()
		a, size := n.fetch(raw)
		n.mu.Lock()
		delete(n.asking, key)
		if n.known.Remove(key); n.v.now().Before(a.until) {
			n.known.Put(by, key, a, size+answerOverhead)
		}
		n.mu.Unlock()
		f.answer = a
		close(f.done)
	})
	if !began {
		release()
		return nil, &Error{Reason: "unavailable", Cause: errClosed}
	}
	n.asking[key] = f
	return f, nil
}

// fetch asks the issuer. A failure is not remembered.
func (n *introspector) fetch(raw string) (a *answer, size int) {
	ctx, cancel := context.WithTimeout(n.v.ctx, n.i.Introspection.Timeout)
	defer cancel()
	claims, size, err := n.post(ctx, raw)
	if err != nil {
		n.failed(err)
		return &answer{err: refuse("unavailable", "the issuer cannot be asked about it: %w", err)}, 0
	}
	now := n.v.now()
	a = &answer{until: now.Add(n.i.Introspection.TTL)}
	active, ok := claims["active"].(bool)
	if !ok {
		n.failed(errors.New("its answer has no member active, true or false"))
		return &answer{
			err: refuse("unavailable", "the answer of the issuer does not say whether it is active"),
		}, 0
	}
	if !active {
		a.err = refuse("inactive",
			"its issuer says that it is not active: revoked, expired, or of another issuer")
		return a, size
	}
	if a.token, a.err = n.i.introspected(claims, now); a.err == nil && !a.token.Expires.IsZero() &&
		a.token.Expires.Before(a.until) {
		a.until = a.token.Expires
	}
	return a, size
}

// post sends the request (RFC 7662 §2.1), and returns the members of the answer.
func (n *introspector) post(
	ctx context.Context, raw string,
) (claims map[string]any, size int, err error) {
	c := &n.i.Introspection
	form := url.Values{"token": {raw}, "token_type_hint": {"access_token"}}
	if c.Auth == "post" {
		form.Set("client_id", c.ClientID)
		form.Set("client_secret", c.ClientSecret)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	switch c.Auth {
	case "basic": // encoded first (RFC 6749 §2.3.1)
		r.SetBasicAuth(url.QueryEscape(c.ClientID), url.QueryEscape(c.ClientSecret))
	case "bearer":
		r.Header.Set("Authorization", "Bearer "+c.ClientSecret)
	}
	resp, err := n.client.Do(r, nil)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, 0,
			fmt.Errorf(
				"the endpoint refuses this server with status %d: check client_id, client_secret and auth",
				resp.StatusCode)
	default:
		return nil, 0, fmt.Errorf("the endpoint answers with status %d", resp.StatusCode)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0, err
	}
	claims, err = readObject(b)
	return claims, len(b), err
}

// failed logs failures, one in logEvery.
func (n *introspector) failed(err error) {
	if n.v.ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.logged) >= logEvery {
		n.v.log.Error("tokens cannot be introspected, and are refused", "issuer", n.i.Issuer.Issuer,
			"error", err, "failed_before", n.skipped)
		n.logged, n.skipped = now, 0
		return
	}
	n.skipped++
}

// introspected reads the members of an answer about an active token (RFC 7662 §2.2) as claims.
func (i *issuer) introspected(claims map[string]any, now time.Time) (*Token, error) {
	if name, there := claims["iss"]; there && name != i.Issuer.Issuer {
		return nil, refuse("issuer", "the answer is about a token of another issuer")
	}
	t := &Token{Issuer: i.Issuer.Issuer, IssuerIndex: i.index, Claims: claims}
	if _, there := claims["exp"]; there {
		var err error
		if t.Expires, err = i.times(claims, now); err != nil {
			return nil, err
		}
	} else if i.MaxAge > 0 {
		return nil, refuse("claims", "the answer has no exp, so max_age cannot be kept")
	}
	if _, there := claims["aud"]; there || !i.Introspection.AnyAudience {
		if err := i.checkAudience(claims); err != nil {
			return nil, err
		}
	}
	if err := i.fill(t, claims); err != nil {
		return nil, err
	}
	return t, nil
}

// confirm asks about a token that was verified by its signature, which its issuer may have revoked.
func (n *introspector) confirm(ctx context.Context, raw string) error {
	_, err := n.ask(ctx, raw)
	if bad, ok := errors.AsType[*Error](err); ok &&
		(bad.Reason == "audience" || bad.Reason == "claims") {
		return nil // the token itself has been read; the answer need not repeat it
	}
	return err
}
