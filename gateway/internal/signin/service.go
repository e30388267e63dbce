package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
)

const (
	// linkLife is how long a link may be opened, and flowLife how long the user may take from then on.
	linkLife = 10 * time.Minute
	flowLife = 10 * time.Minute

	maxAttempts = 10_000
	maxNotified = 16 // of one attempt
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
	// OnChange is called when an owner has signed in or out. It must not block.
	OnChange func(ID)
	Logger   *slog.Logger
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

	mu      sync.Mutex
	ledger  *share.Ledger       // attempts, by owner
	latest  map[ID]*attempt     // not opened yet; by owner and upstream
	open    map[ID]*attempt     // with a user at the authorization server; by owner and upstream
	links   map[string]*attempt // by link, until it is opened
	states  map[string]*attempt // by state, until the browser comes back
	waiting map[ID]*waiters     // of calls; by owner and upstream
	swept   time.Time
}

// An attempt is one sign-in.
//
//	linked ── the user goes on, on the start page ──▶ opened ── the browser comes back ──▶ ended
//	   │                                                │
//	   └───────────── linkLife passed ──────────────────┴── flowLife passed ──────────────▶ ended
//
// The link counts once, and each state counts once.
type attempt struct {
	id      ID
	name    string // of the principal
	link    string
	expires time.Time
	browser [sha256.Size]byte // of the cookie of the browser that has opened it
	state   string
	cancel  context.CancelFunc // nil: it was not opened
	notify  []func(ctx context.Context, url string)
	events  chan event
	back    chan *url.URL
}

// An event is what the browser that waits is to do.
type event struct {
	address string // go there
	err     error  // without an address: how the attempt ended
}

// ErrFull means that too many sign-ins are pending.
var ErrFull = errors.New("too many sign-ins are pending; try again later")

// New returns a service. Close ends it.
func New(o *Options) *Service {
	s := &Service{
		opts: *o, ledger: share.NewLedger(share.Bounds{Total: maxAttempts}),
		latest: map[ID]*attempt{}, open: map[ID]*attempt{}, links: map[string]*attempt{}, states: map[string]*attempt{}, waiting: map[ID]*waiters{},
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
}

// Store returns the tokens.
func (s *Service) Store() *Store { return s.opts.Store }

// link returns where a principal begins to sign in. It is the same until it was opened, or was
// about to expire. When the principal has signed in, notify is called with it; it may be nil.
func (s *Service) link(id ID, name string, notify func(ctx context.Context, url string)) (string, error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepLocked(now)
	a := s.latest[id]
	if a == nil || a.expires.Sub(now) < linkLife/2 {
		if !s.ledger.Take(owner.Stored(id.Owner, ""), 1) {
			return "", ErrFull
		}
		a = &attempt{id: id, name: name, link: rand.Text(), events: make(chan event, 1), back: make(chan *url.URL, 1)}
		a.expires = now.Add(linkLife)
		if old := s.latest[id]; old != nil {
			s.endLocked(old)
		}
		s.latest[id], s.links[a.link] = a, a
	}
	if notify != nil && len(a.notify) < maxNotified {
		a.notify = append(a.notify, notify)
	}
	return s.linkOf(a), nil
}

func (s *Service) linkOf(a *attempt) string { return s.opts.URL + Path + "?link=" + a.link }

// sweepLocked ends what has expired.
func (s *Service) sweepLocked(now time.Time) {
	if now.Sub(s.swept) < time.Minute {
		return
	}
	s.swept = now
	for _, a := range s.latest {
		if !now.Before(a.expires) {
			s.endLocked(a)
		}
	}
}

// endLocked forgets an attempt. It may be called again.
func (s *Service) endLocked(a *attempt) {
	known := s.latest[a.id] == a || s.open[a.id] == a
	if s.latest[a.id] == a {
		delete(s.latest, a.id)
	}
	if s.open[a.id] == a {
		delete(s.open, a.id)
	}
	delete(s.links, a.link)
	if s.states[a.state] == a {
		delete(s.states, a.state)
	}
	if a.cancel != nil {
		a.cancel()
	}
	if known {
		s.ledger.Give(owner.Stored(a.id.Owner, ""), 1)
	}
}

// errLink is of a link that does not count.
var errLink = errors.New("this link is not valid: it was opened before, it has expired, or the gateway was restarted. Call the tool again for another one")

// linked returns the attempt of a link.
func (s *Service) linked(link, browser string) (*attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.links[link]
	if a == nil || !time.Now().Before(a.expires) {
		return nil, errLink
	}
	return a, s.fits(a, browser)
}

// fits reports what is wrong with the browser of an attempt: browser is the owner with the
// credentials that it shows, "" for none.
func (s *Service) fits(a *attempt, browser string) error {
	switch {
	case browser != "" && browser != a.id.Owner:
		return errors.New("this sign-in belongs to another principal than the one with the credentials that this browser shows")
	case browser == "" && s.opts.Bound:
		return errors.New("this browser shows no credentials, and this gateway requires those of the principal for a sign-in: a client certificate, or a token that a proxy adds")
	}
	return nil
}

// begin opens an attempt in the browser with a cookie. The link is used up.
func (s *Service) begin(link, browser, cookie string) (*attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.links[link]
	if a == nil || !time.Now().Before(a.expires) {
		return nil, errLink
	}
	if err := s.fits(a, browser); err != nil {
		return nil, err
	}
	u := s.opts.Find(a.id.Upstream)
	if u == nil {
		s.endLocked(a)
		return nil, fmt.Errorf("the gateway has no upstream %s with sign-in any more", a.id.Upstream)
	}
	if s.ctx.Err() != nil {
		return nil, errors.New("the gateway is shutting down")
	}
	delete(s.links, link)
	delete(s.latest, a.id)
	if old := s.open[a.id]; old != nil {
		s.endLocked(old)
	}
	s.open[a.id] = a
	a.expires, a.browser = time.Now().Add(flowLife), sha256.Sum256([]byte(cookie))
	ctx, cancel := context.WithDeadline(s.ctx, a.expires)
	a.cancel = cancel
	s.wg.Go(func() {
		defer cancel()
		err := u.login(ctx, a)
		s.mu.Lock()
		s.endLocked(a)
		s.mu.Unlock()
		if err == nil {
			s.signedIn(a)
		}
		s.log(a, err)
		a.tell(event{err: err})
	})
	return a, nil
}

// tell gives the browser that waits an event, in place of one that was not taken.
func (a *attempt) tell(e event) {
	select {
	case <-a.events:
	default:
	}
	a.events <- e
}

func (s *Service) log(a *attempt, err error) {
	if s.opts.Logger == nil {
		return
	}
	if err != nil {
		s.opts.Logger.Warn("a sign-in has failed", "upstream", a.id.Upstream, "principal", a.name, "error", err)
		return
	}
	s.opts.Logger.Info("a principal has signed in", "upstream", a.id.Upstream, "principal", a.name)
}

// waiters are calls that wait for the same sign-in.
type waiters struct {
	n    int
	done chan struct{} // closed when the owner has signed in
}

// signedIn tells those who wait.
func (s *Service) signedIn(a *attempt) {
	s.mu.Lock()
	if w := s.waiting[a.id]; w != nil {
		close(w.done)
		delete(s.waiting, a.id)
	}
	s.mu.Unlock()
	if s.opts.OnChange != nil {
		s.opts.OnChange(a.id)
	}
	for _, notify := range a.notify { // they do not change: the link was opened
		s.wg.Go(func() { notify(s.ctx, s.linkOf(a)) })
	}
}

// wait returns a channel that is closed when the owner has signed in. stop is to be called.
func (s *Service) wait(id ID) (done <-chan struct{}, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[id]
	if w == nil {
		w = &waiters{done: make(chan struct{})}
		s.waiting[id] = w
	}
	w.n++
	return w.done, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.n--; w.n == 0 && s.waiting[id] == w {
			delete(s.waiting, id)
		}
	}
}

// login gets tokens for an attempt: it discovers the authorization server, registers there, and
// waits for the browser.
func (u *Upstream) login(ctx context.Context, a *attempt) error {
	s := u.service
	o := u.opts
	o.Store = s.opts.Store.Tokens(a.id, a.name, false)
	o.RedirectURL = s.callbackOf(a.id.Upstream)
	o.Visit = func(ctx context.Context, _ string, begin func(string) (string, error)) (*url.URL, error) {
		address, err := begin(o.RedirectURL)
		if err != nil {
			return nil, err
		}
		there, err := url.Parse(address)
		if err != nil {
			return nil, errors.New("the authorization endpoint is not a URL")
		}
		state := there.Query().Get("state")
		s.mu.Lock()
		a.state, s.states[state] = state, a
		s.mu.Unlock()
		a.tell(event{address: address})
		select {
		case back := <-a.back:
			return back, nil
		case <-ctx.Done():
			return nil, errors.New("the browser has not come back in time")
		}
	}
	c, err := mcpauth.New(u.url, &o)
	if err != nil {
		return err
	}
	return c.Login(ctx)
}

// callbackOf is where browsers come back to. Each upstream has its own, so that an authorization
// server cannot answer for that of another upstream (RFC 9700, section 4.4.2).
func (s *Service) callbackOf(upstream string) string { return s.opts.URL + CallbackPath + upstream }

// comeBack takes the browser that comes back to the callback of an upstream. Its state counts once,
// whatever is wrong.
func (s *Service) comeBack(upstream, state, browser, cookie string, address *url.URL) (*attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.states[state]
	if state == "" || a == nil {
		return nil, errors.New("this answer belongs to no sign-in: it was used before, it has expired, or the gateway was restarted. Call the tool again to begin another one")
	}
	delete(s.states, state)
	err := s.fits(a, browser)
	switch {
	case err != nil:
	case a.id.Upstream != upstream:
		err = errors.New("this answer belongs to a sign-in to another upstream")
	case sha256.Sum256([]byte(cookie)) != a.browser:
		err = errors.New("this sign-in began in another browser. Do not use a link that was sent to you")
	case !time.Now().Before(a.expires):
		err = errors.New("this sign-in has expired. Call the tool again to begin another one")
	}
	if err != nil {
		s.endLocked(a)
		return nil, err
	}
	a.back <- address
	return a, nil
}

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
