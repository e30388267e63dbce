package signin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
	"github.com/farcall-dev/farcall/store"
)

const (
	topic = "sign-ins"
	// maxNotified bounds the notifications of a sign-in, and maxPending the sign-ins with some.
	maxNotified, maxPending = 16, 10_000
	// waitEvery is between two looks at a sign-in that another node may have ended.
	waitEvery = 2 * time.Second
)

// The paths of a service: the start page; where browsers come back to, with the name of the
// upstream; and the client ID metadata document.
const (
	Path         = "/signin"
	CallbackPath = Path + "/callback/"
	ClientPath   = Path + "/client.json"
)

// Options adjust a Service.
type Options struct {
	Store *Store
	// URL is where browsers reach the gateway: https://host, without a path.
	URL string
	// Name is what the gateway calls itself.
	Name string
	// Find returns the upstream of a name as it is configured now, nil for none with sign-in.
	Find func(name string) *Upstream
	// Names returns those of all of them.
	Names func() []string
	// Bound: only a browser that shows the credentials of the owner may sign in.
	Bound bool
	// OnChange is called when an owner has signed in or out. It must not block. Where that happened at
	// another node, the ID has no owner.
	OnChange func(ID)
	// Shared is the store of the nodes that share sign-ins; nil: there are none.
	Shared store.Store
	Logger *slog.Logger
}

// A Who is a principal.
type Who struct {
	// Owner is the text of its key, Name what people call it.
	Owner, Name string
}

// A Service lets principals sign in to upstreams in their browsers.
type Service struct {
	opts   Options
	ctx    context.Context //nolint:containedctx // of the attempts; it ends with the service
	cancel context.CancelFunc
	wg     sync.WaitGroup

	attempts store.Records

	mu sync.Mutex
	// called after a sign-in; by the name of the record
	notify *share.Table[string, []func(context.Context)]
	// closed at the next sign-in: calls that wait look whether it was theirs
	woken chan struct{}
}

// ErrFull means that the store has no room for a sign-in, or its tokens.
var ErrFull = errors.New("the store of sign-ins has no room left; try again later")

// New returns a service. Close ends it.
func New(o *Options) *Service {
	s := &Service{
		opts: *o, attempts: o.Shared, woken: make(chan struct{}),
		notify: share.NewTable[string, []func(context.Context)](share.Bounds{Total: maxPending}),
	}
	if o.Shared == nil {
		s.attempts = store.New(&store.Options{MaxBytes: maxAttempts})
	}
	s.opts.URL = strings.TrimSuffix(s.opts.URL, "/")
	s.ctx, s.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	return s
}

// Close ends what is pending. Tokens are kept. A nil service has nothing.
func (s *Service) Close() {
	if s == nil {
		return
	}
	s.cancel()
	s.wg.Wait()
	s.opts.Store.Close()
	if own, ok := s.attempts.(*store.Local); ok {
		_ = own.Close() // it is in memory
	}
}

// Follow has the service know what happens at other nodes, until it is closed. A nil service has
// nothing to know.
func (s *Service) Follow() error {
	if s == nil || s.opts.Shared == nil {
		return nil
	}
	stop, err := s.opts.Shared.Subscribe(s.ctx, topic, s.receive)
	if err != nil {
		return fmt.Errorf("signin: %w: %w", ErrStore, err)
	}
	s.wg.Go(func() {
		<-s.ctx.Done()
		stop()
	})
	return nil
}

// receive takes what another node, or this one, says: + or - for a principal that has signed in or
// out, the name of its record, and the upstream.
func (s *Service) receive(m store.Message) {
	switch {
	case m.Gap:
		s.opts.Store.Forget("")
		for _, name := range s.opts.Names() {
			s.changed(ID{Upstream: name})
		}
	case len(m.Data) > 1+placeSize:
		name := string(m.Data[1 : 1+placeSize])
		s.opts.Store.Forget(name)
		s.changed(ID{Upstream: string(m.Data[1+placeSize:])})
		s.wake(name, m.Data[0] == '+')
	}
}

// publish tells the other nodes. They look again in any case, later.
func (s *Service) publish(what string, id ID) {
	if s.opts.Shared != nil {
		ctx, cancel := within()
		defer cancel()
		_ = s.opts.Shared.Publish(ctx, topic, []byte(what+s.opts.Store.Name(id)+id.Upstream))
	}
}

func (s *Service) changed(id ID) {
	if s.opts.OnChange != nil {
		s.opts.OnChange(id)
	}
}

// Store returns the tokens.
func (s *Service) Store() *Store { return s.opts.Store }

func (s *Service) log(a *attempts, err error) {
	if s.opts.Logger == nil {
		return
	}
	if err != nil {
		s.opts.Logger.Warn("a sign-in has failed", "upstream", a.Upstream, "principal", a.Name,
			"error", err)
		return
	}
	s.opts.Logger.Info("a principal has signed in", "upstream", a.Upstream, "principal", a.Name)
}

// signedIn lets this node and the others know of a sign-in.
func (s *Service) signedIn(id ID) {
	s.changed(id)
	s.wake(s.opts.Store.Name(id), true)
	s.publish("+", id)
}

// wake has calls that wait look again, and notifies clients when an owner has signed in.
func (s *Service) wake(name string, signedIn bool) {
	s.mu.Lock()
	close(s.woken)
	s.woken = make(chan struct{})
	var notify []func(context.Context)
	if signedIn && s.ctx.Err() == nil {
		notify, _ = s.notify.Remove(name)
	}
	s.mu.Unlock()
	for _, notify := range notify {
		s.wg.Go(func() { notify(s.ctx) })
	}
}

// callbackOf is where browsers come back to. Each upstream has its own, so that an authorization
// server cannot answer for that of another upstream (RFC 9700, section 4.4.2).
func (s *Service) callbackOf(upstream string) string { return s.opts.URL + CallbackPath + upstream }

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
	u := &Upstream{
		service: s, name: name, url: url, opts: o,
		clients: share.NewTable[string, *client](share.Bounds{Total: maxClients}),
	}
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

var errNoOwner = errors.New(
	"signin: the caller shows no credentials, and tokens are kept for principals only")

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
		err = again(errChanged, func() error { return c.Authorize(ctx, r) })
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCaller, err)
	}
	return nil
}

// again calls do until it does not fail with faster, the error when another process came first.
func again(faster error, do func() error) (err error) {
	for err = do(); errors.Is(err, faster); {
		err = do()
	}
	return err
}

// Challenge takes an answer of status 401 or 403 to a request of a principal. Tokens that the
// upstream takes no more, and that cannot be renewed, are forgotten: the principal is to sign in
// again.
func (u *Upstream) Challenge(
	ctx context.Context, who Who, r *http.Response,
) (retry bool, err error) {
	c, err := u.client(ctx, who)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrCaller, err)
	}
	err = again(errChanged, func() error {
		retry, err = c.Challenge(ctx, r)
		return err
	})
	switch {
	case err == nil:
		return retry, nil
	case !errors.Is(err, mcpauth.ErrLogin):
		return false, fmt.Errorf("%w: %w", ErrCaller, err)
	case r.StatusCode != http.StatusUnauthorized:
		return false,
			fmt.Errorf(
				"%w: %s wants more scopes than %s has granted: add them to auth.scopes, and sign in again",
				ErrCaller, u.name, who.Name)
	}
	used := r.Request.Header.Get("Authorization")
	err = u.service.opts.Store.change(u.ID(who), who.Name, func(r *record) bool {
		all := len(r.Entries) // it may have those of another sign-in by now
		maps.DeleteFunc(r.Entries, func(_ string, text jsonrpc.Raw) bool {
			var t struct {
				Access string `json:"access_token"`
			}
			return jsonv2.Unmarshal(text, &t) != nil || strings.HasSuffix(used, " "+t.Access)
		})
		return len(r.Entries) < all
	})
	if err != nil {
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
func (u *Upstream) Link(
	ctx context.Context, who Who, notify func(ctx context.Context, url string),
) (string, error) {
	if who.Owner == "" {
		return "", errNoOwner
	}
	return u.service.link(ctx, u.ID(who), who.Name, notify)
}

// Wait waits until a principal is signed in, at any node, or the context ends, and returns the
// error of the context.
func (u *Upstream) Wait(ctx context.Context, who Who) error {
	s := u.service
	for {
		s.mu.Lock()
		woken := s.woken
		s.mu.Unlock()
		if ready, err := u.Ready(ctx, who); ready || err != nil {
			return err
		}
		var again <-chan time.Time
		if s.opts.Shared != nil {
			again = time.After(waitEvery)
		}
		select {
		case <-woken:
		case <-again:
			s.opts.Store.Forget(s.opts.Store.Name(u.ID(who)))
		case <-ctx.Done():
			return ctx.Err()
		}
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
	u.service.changed(u.ID(who))
	u.service.publish("-", u.ID(who))
}
