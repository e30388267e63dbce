package mcpauth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

const (
	// settle is how long a token must have been good before it is worth to ask for
	// another one.
	settle = time.Minute
	// rest is how long a refusal stands for all calls, so that each of them does not
	// open a browser.
	rest = 10 * time.Second
	// pause is how long it is remembered that no user could be asked.
	pause = time.Second
	// maxSteps is how often a server may ask for more scopes in stepTime.
	maxSteps = 3
	stepTime = 10 * time.Minute

	maxSessions   = 1024
	offlineAccess = "offline_access"
)

// A session is the tokens for one who calls, and the getting of them, which is one at
// a time.
type session struct {
	busy    chan struct{} // holds one while tokens are being got
	kept    bool          // in the store
	subject string
	skipped time.Time // when nothing said that there must be tokens; with busy
	stored  bool      // what is held is in the store, too; with busy

	mu       sync.Mutex
	loaded   bool
	tokens   *tokens
	asked    []string // scopes, of tokens that are gone
	refusal  error
	refused  time.Time
	steps    int
	stepped  time.Time
	lastUsed time.Time
}

func newSession(subject string, kept bool) *session {
	return &session{busy: make(chan struct{}, 1), subject: subject, kept: kept}
}

// String keeps the tokens out of logs.
func (s *session) String() string { return "session" }

// GoString keeps the tokens out of logs.
func (s *session) GoString() string { return "session" }

func (s *session) lock(ctx context.Context) error {
	select {
	case s.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("mcpauth: others are getting the tokens: %w", ctx.Err())
	}
}

func (s *session) unlock() { <-s.busy }

func (s *session) held() *tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens
}

// hold puts tokens in the place of others; nil: there are none any more.
func (s *session) hold(t *tokens) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens != nil {
		s.asked = s.tokens.Asked
	}
	s.tokens, s.loaded = t, true
	if t != nil {
		s.refusal = nil
	}
}

// scopes are those that were asked for.
func (s *session) scopes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens != nil {
		return s.tokens.Asked
	}
	return s.asked
}

// session returns that of anyone who calls.
func (c *Client) session(ctx context.Context) (*session, error) {
	if c.opts.Grant != GrantExchange {
		return c.own, nil
	}
	subject, err := c.opts.Subject(ctx)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: there is no token to be exchanged: %w", err)
	}
	if subject == "" {
		return nil, errors.New("mcpauth: there is no token to be exchanged: the caller has none")
	}
	key := sha256.Sum256([]byte(subject))
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[key]
	if s == nil {
		if len(c.sessions) >= maxSessions {
			c.evict()
		}
		s = newSession(subject, false)
		c.sessions[key] = s
	}
	s.lastUsed = c.now()
	return s, nil
}

// evict drops the session that was not used for the longest time. c.mu is held.
func (c *Client) evict() {
	var oldest [sha256.Size]byte
	var since time.Time
	for key, s := range c.sessions {
		if since.IsZero() || s.lastUsed.Before(since) {
			oldest, since = key, s.lastUsed
		}
	}
	delete(c.sessions, oldest)
}

// load reads the store. It reports whether there are other tokens than before. s.busy is held.
func (c *Client) load(ctx context.Context, s *session) (changed bool, err error) {
	if !s.kept {
		return false, nil
	}
	text, err := c.store.Load(ctx, tokenKey(c.id))
	if err != nil {
		return false, err
	}
	held := s.held()
	s.mu.Lock()
	s.loaded = true
	s.mu.Unlock()
	if text == nil {
		if !s.stored {
			return false, nil // what could not be saved is still good
		}
		s.stored = false
		s.hold(nil) // the user has logged out
		return held != nil, nil
	}
	t, err := readTokens(text)
	if err != nil {
		return false, err
	}
	s.stored = true
	if held != nil && held.Access == t.Access && held.Refresh == t.Refresh {
		return false, nil
	}
	s.hold(t)
	return true, nil
}

// save writes tokens into the store, and holds them.
func (c *Client) save(ctx context.Context, s *session, t *tokens) error {
	s.hold(t)
	if !s.kept {
		return nil
	}
	text, err := jsonv2.Append(nil, t)
	if err != nil {
		return fmt.Errorf("mcpauth: %w", err)
	}
	err = c.store.Save(context.WithoutCancel(ctx), tokenKey(c.id), text)
	s.stored = err == nil
	return err
}

// drop forgets tokens that are of no use, unless the store has others by now.
func (c *Client) drop(ctx context.Context, s *session, t *tokens) error {
	s.hold(nil)
	s.stored = false
	if !s.kept {
		return nil
	}
	text, err := c.store.Load(ctx, tokenKey(c.id))
	if err != nil || text == nil {
		return err
	}
	if there, err := readTokens(text); err == nil && there.Refresh == t.Refresh &&
		there.Access == t.Access {
		return c.store.Delete(ctx, tokenKey(c.id))
	}
	return nil
}

// current returns tokens that are good, renewed if need be; nil when there are none and a
// user has to be asked.
func (c *Client) current(ctx context.Context, s *session) (*tokens, error) {
	s.mu.Lock()
	t, loaded := s.tokens, s.loaded
	s.mu.Unlock()
	if t.valid(c.now()) {
		return t, nil
	}
	if t == nil && loaded && c.opts.Grant == GrantCode {
		return nil, nil // the server's challenge will say what it wants
	}
	select {
	case s.busy <- struct{}{}:
	default:
		if t.alive(c.now()) {
			return t, nil // others are renewing it already
		}
		if err := s.lock(ctx); err != nil {
			return nil, err
		}
	}
	defer s.unlock()
	if _, err := c.load(ctx, s); err != nil {
		return t.meanwhile(c.now(), err)
	}
	if t = s.held(); t.valid(c.now()) {
		return t, nil
	}
	if t != nil && t.Refresh != "" {
		renewed, err := c.refresh(ctx, s, t)
		switch {
		case renewed != nil:
			return renewed, nil
		case err != nil:
			return t.meanwhile(c.now(), err)
		}
	}
	if c.opts.Grant == GrantCode {
		return nil, nil
	}
	if err := s.resting(c.now()); err != nil {
		return nil, err
	}
	return c.unasked(ctx, s)
}

// unasked gets tokens before the server has asked for them; none when nothing says that it
// will.
func (c *Client) unasked(ctx context.Context, s *session) (*tokens, error) {
	if c.now().Sub(s.skipped) < settle && !c.challenged.Load() {
		return nil, nil
	}
	metadata, scopes := c.probe(ctx)
	p, err := c.find(ctx, metadata, "")
	if err != nil {
		return nil, c.pause(ctx, s, err)
	}
	if p.legacy && !c.challenged.Load() {
		s.skipped = c.now()
		return nil, nil
	}
	return c.fill(ctx, s, p, scopes)
}

// refresh renews tokens. It returns neither tokens nor an error when they cannot be renewed, and
// are gone. s.busy is held.
func (c *Client) refresh(ctx context.Context, s *session, t *tokens) (*tokens, error) {
	if s.kept { // a refresh token may count once, also among processes
		free, err := exclusive(ctx, c.store, tokenKey(c.id))
		if err != nil {
			return nil, err
		}
		defer free()
		changed, err := c.load(ctx, s)
		if err != nil {
			return nil, err
		}
		if held := s.held(); changed && held.valid(c.now()) {
			return held, nil
		} else if changed {
			t = held
		}
		if t == nil {
			return nil, nil
		}
	}
	renewed, err := c.renew(ctx, t)
	if refusal, ok := errors.AsType[*oauthError](err); ok &&
		slices.Contains([]string{"invalid_grant", "invalid_client", "unauthorized_client"},
			refusal.code) {
		return nil, c.drop(ctx, s, t)
	}
	if err != nil {
		return nil, err
	}
	return renewed, c.save(ctx, s, renewed)
}

// wanted is what is asked for: scopes, which the server has named, or else those in its
// metadata.
func (c *Client) wanted(s *session, p *place, scopes []string) []string {
	wanted := scopes
	switch {
	case c.capped():
		wanted = c.opts.Scopes
	case len(c.opts.Scopes) > 0:
		wanted = union(c.opts.Scopes, scopes)
	case len(scopes) == 0:
		wanted = p.resource.Scopes
	}
	wanted = union(s.scopes(), wanted)
	// Not where that would take the place of the scopes that the server gives on its own.
	if c.opts.Grant == GrantCode && len(wanted) > 0 && slices.Contains(p.as.Scopes, offlineAccess) {
		wanted = union(wanted, []string{offlineAccess})
	}
	if !slices.Contains(p.as.Scopes, offlineAccess) &&
		!slices.Contains(c.opts.Scopes, offlineAccess) && !slices.Contains(scopes, offlineAccess) {
		wanted = slices.DeleteFunc(wanted, func(scope string) bool { return scope == offlineAccess })
	}
	return wanted
}

// fill asks for new tokens. s.busy is held.
func (c *Client) fill(ctx context.Context, s *session, p *place, scopes []string) (*tokens, error) {
	t, err := c.grant(ctx, p, c.wanted(s, p, scopes), s.subject)
	if err != nil {
		if p.as.guess {
			err = fmt.Errorf("%w (%w)", err, errNowhere)
		}
		refusal, refused := errors.AsType[*oauthError](err)
		if refused && refusal.status < 500 || !refused && c.opts.Grant == GrantCode && ctx.Err() == nil {
			s.note(err, c.now())
		}
		return nil, err
	}
	return t, c.keep(ctx, s, t)
}

// keep saves the tokens of a new grant. s.busy is held.
func (c *Client) keep(ctx context.Context, s *session, t *tokens) error {
	if s.kept { // who renews those of before would put them back
		if free, err := exclusive(ctx, c.store, tokenKey(c.id)); err == nil {
			defer free()
		}
	}
	return c.save(ctx, s, t)
}

// pause keeps an error that has nothing to do with who calls for a moment: anyone who waits for the
// same would only ask again, one after the other.
func (c *Client) pause(ctx context.Context, s *session, err error) error {
	if ctx.Err() == nil {
		s.note(err, c.now().Add(pause-rest))
	}
	return err
}

// note keeps a refusal, or that the user has not signed in, for a while.
func (s *session) note(err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal, s.refused = err, now
}

// resting returns the refusal that still stands.
func (s *session) resting(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal == nil || now.Sub(s.refused) >= rest {
		return nil
	}
	return s.refusal
}

// step counts the times that a server wants more. It reports whether that was too
// often.
func (s *session) step(now time.Time) (tooOften bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.stepped) >= stepTime {
		s.steps, s.stepped = 0, now
	}
	s.steps++
	return s.steps > maxSteps
}

// used reports whether a request carried these tokens.
func (t *tokens) used(authorization string) bool {
	return t != nil && bytes.Equal([]byte(authorization), []byte(t.Type+" "+t.Access))
}
