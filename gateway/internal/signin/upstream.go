package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
)

// maxClients bounds the clients of an upstream. One that was dropped is made again from the store.
const maxClients = 4096

// An Upstream adds to requests the tokens of the principals that they are made for.
type Upstream struct {
	service   *Service
	name, url string
	opts      mcpauth.Options

	mu      sync.Mutex
	clients *share.Table[string, *client] // by owner
}

// A client has the tokens of one owner.
type client struct {
	*mcpauth.Client

	mu    sync.Mutex
	stamp string // of the record that it has read
}

// NewUpstream returns the upstream of a name at a URL. Of the options, Store, RedirectURL and Visit
// are the service's.
func (s *Service) NewUpstream(name, url string, o mcpauth.Options) (*Upstream, error) {
	u := &Upstream{service: s, name: name, url: url, opts: o, clients: share.NewTable[string, *client](share.Bounds{Total: maxClients})}
	u.opts.RedirectURL = s.callbackOf(name)
	_, err := mcpauth.New(url, &u.opts)
	return u, err
}

// String keeps what is secret out of logs.
func (u *Upstream) String() string { return "sign-in to " + u.name }

// GoString keeps what is secret out of logs.
func (u *Upstream) GoString() string { return u.String() }

// ID returns that of a principal's record.
func (u *Upstream) ID(who Who) ID { return ID{who.Owner, u.name} }

// ErrSignIn means that a principal must sign in before it can call an upstream. ErrCaller is
// wrapped by every error of a request that is about the token of its principal, and so says nothing
// of the upstream.
var (
	ErrSignIn = fmt.Errorf("%w: the principal must sign in to the upstream", ErrCaller)
	ErrCaller = errors.New("signin: the token of the caller is not accepted")
)

var errNoOwner = errors.New("signin: the caller shows no credentials, and tokens are kept for principals only")

// client returns that of a principal, with what the store has now.
func (u *Upstream) client(ctx context.Context, who Who) (*client, error) {
	if who.Owner == "" {
		return nil, errNoOwner
	}
	id := u.ID(who)
	u.mu.Lock()
	c, _, ok := u.clients.Get(who.Owner)
	if !ok {
		o := u.opts
		o.Store = u.service.opts.Store.Tokens(id, who.Name, false)
		made, err := mcpauth.New(u.url, &o)
		if err != nil {
			u.mu.Unlock()
			return nil, err
		}
		c = &client{Client: made}
		u.clients.Put(owner.Stored(who.Owner, ""), who.Owner, c, 1)
	}
	u.mu.Unlock()
	stamp := u.service.opts.Store.Stamp(id)
	c.mu.Lock()
	same := c.stamp == stamp && ok
	c.mu.Unlock()
	if same {
		return c, nil
	}
	if _, err := c.Status(ctx); err != nil { // it reads the store
		return nil, fmt.Errorf("signin: the tokens for %s cannot be read: %w", u.name, err)
	}
	c.mu.Lock()
	c.stamp = stamp
	c.mu.Unlock()
	return c, nil
}

// Authorize adds the access token of a principal to a request, renewed if it is about to expire.
func (u *Upstream) Authorize(ctx context.Context, who Who, r *http.Request) error {
	c, err := u.client(ctx, who)
	if err == nil {
		err = c.Authorize(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCaller, err)
	}
	return nil
}

// Challenge takes an answer of status 401 or 403 to a request of a principal. Tokens that the
// upstream takes no more, and that cannot be renewed, are forgotten: the principal is to sign in
// again.
func (u *Upstream) Challenge(ctx context.Context, who Who, r *http.Response) (retry bool, err error) {
	c, err := u.client(ctx, who)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrCaller, err)
	}
	retry, err = c.Challenge(ctx, r)
	switch {
	case err == nil:
		return retry, nil
	case !errors.Is(err, mcpauth.ErrLogin):
		return false, fmt.Errorf("%w: %w", ErrCaller, err)
	case r.StatusCode != http.StatusUnauthorized:
		return false, fmt.Errorf("%w: %s wants more scopes than %s has granted: add them to auth.scopes, and sign in again", ErrCaller, u.name, who.Name)
	}
	if err := u.service.opts.Store.Remove(u.ID(who)); err != nil {
		return false, err
	}
	u.changed(who)
	return false, ErrSignIn
}

// Ready reports whether there is a token for a principal, renewed if it has to be.
func (u *Upstream) Ready(ctx context.Context, who Who) (bool, error) {
	if who.Owner == "" {
		return false, nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url, http.NoBody)
	if err != nil {
		return false, fmt.Errorf("signin: %w", err)
	}
	if err := u.Authorize(ctx, who, r); err != nil {
		return false, err
	}
	return r.Header.Get("Authorization") != "", nil
}

// Link returns where a principal begins to sign in. When they have, notify is called with that; it
// may be nil.
func (u *Upstream) Link(who Who, notify func(ctx context.Context, url string)) (string, error) {
	if who.Owner == "" {
		return "", errNoOwner
	}
	return u.service.link(u.ID(who), who.Name, notify)
}

// Wait waits until a principal is signed in, or the context ends, and returns the error of the
// context.
func (u *Upstream) Wait(ctx context.Context, who Who) error {
	done, stop := u.service.wait(u.ID(who))
	defer stop()
	if ready, err := u.Ready(ctx, who); ready || err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SignOut revokes the tokens of a principal at the authorization server, where that offers it, and
// forgets them.
func (u *Upstream) SignOut(ctx context.Context, who Who) error {
	o := u.opts
	o.Store = u.service.opts.Store.Tokens(u.ID(who), who.Name, true)
	c, err := mcpauth.New(u.url, &o)
	if err == nil {
		err = c.Logout(ctx)
	}
	err = errors.Join(err, u.service.opts.Store.Remove(u.ID(who)))
	u.changed(who)
	return err
}

// changed drops what is in memory, and tells.
func (u *Upstream) changed(who Who) {
	u.mu.Lock()
	u.clients.Remove(who.Owner)
	u.mu.Unlock()
	if u.service.opts.OnChange != nil {
		u.service.opts.OnChange(u.ID(who))
	}
}
