package guard

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/guard/internal/replay"
	"github.com/farcall-dev/farcall/guard/internal/token"
	"github.com/farcall-dev/farcall/internal/accept"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/permit"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/levels"
	"github.com/farcall-dev/farcall/store"
)

// Options adjust a Guard. The zero value, and nil, mean the defaults.
type Options struct {
	// Nonces remembers what was used. Default: in Shared, or else in memory, of this process.
	Nonces NonceStore
	// Shared is what several processes with the same configuration share: the nonces of signatures and
	// of DPoP proofs, and the rates and quotas of Limits.Rates. Without a quorum of it signed requests
	// and calls of quotas are refused, and each process lets its share of a rate pass. Nil: they are
	// of this process. The guard does not close it.
	Shared store.Store
	// Nodes returns how many processes share it, for their share of a rate. Nil is 1.
	Nodes func() int
	// Secret, of 32 bytes or more, seals the nonces that clients put into DPoP proofs. Processes that
	// share a Store need the same one. Default: a random one.
	Secret []byte
	// HTTP fetches keys. Default: a client that reaches no private addresses from
	// public issuers.
	HTTP *http.Client
	// Authenticate is asked first, for your own ways: nil and no error means that it has nothing to
	// say. After 20 refusals an address gets 10 more attempts in a minute, and status 429 beyond them
	// whether a credential is right or wrong; a caller with an Authorization, Cookie or X-API-Key
	// header that was accepted within 8 hours is not held up.
	Authenticate func(*http.Request) (*Principal, error)
	// Schema returns the JSON Schema of a call's params (or of a tool's arguments), nil for none.
	// Annotations returns those of a tool, as JSON.
	Schema, Annotations func(ctx context.Context, method, name string) jsonrpc.Raw
	// Details is the role of those who learn why they were refused, and who get the details of errors
	// where farcall.Options.Details is set. Default: no caller learns why, and all get details.
	Details string
	// Budget has the memory for the bodies of signed requests. Default: that of the
	// process, see farcall.Budget.
	Budget *farcall.Budget
	// Logger takes what an operator should know. Default: nothing is logged.
	Logger *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Observer gets each decision about a call. Default none.
	Observer *observe.Observer
}

// A Conn is what is known of a connection that carries messages.
type Conn struct {
	// Transport names it: "stdio", "tcp", "unix", "ws".
	Transport string
	// Remote is the address of the other end; Local that it is on this machine.
	Remote string
	Local  bool
	// At is the address of this end. Nil: it has none, or a request began it.
	At net.Addr
	// TLS has its certificates. Nil: it is in the clear.
	TLS *tls.ConnectionState
	// Principal is who was found out to be there, by the handshake of a WebSocket.
	Principal *Principal
	// Close ends the connection, when its principal may not stay. Nil: it stays, and every call is
	// refused.
	Close func() error
}

// A Call is what is to be decided.
type Call struct {
	Method   string // "tools/call", "math/add"
	Upstream string // of a gateway; "" otherwise
	// Name is the tool, the URI or the prompt; "" when the method is all there is.
	Name   string
	Params jsonrpc.Raw
	// Arguments are what Schema is about: those of a tool, or the params.
	Arguments, Schema jsonrpc.Raw
	// Annotations are those of the tool, from a server that is trusted to say so.
	Annotations jsonrpc.Raw
	// Asked is where hooks leave what they have said of the call, for the audit; it is read when the
	// call has ended. Nil: none are asked.
	Asked *[]Asked
	// Modern numbers errors as MCP of the newest revision does, MCP as all others do.
	MCP, Modern bool
}

// Asked is what a hook has said of a call.
type Asked struct {
	Hook, Outcome string
	Took          time.Duration
}

// An Explanation says how a call was decided.
type Explanation struct {
	Allowed bool
	// Policies decided: names of rules, or ids of Cedar policies.
	Policies []string
	// Reason is a sentence for the operator.
	Reason string
	// Scopes are what the caller would also need.
	Scopes []string
	// Limits would count the call: one line for each.
	Limits []string
	// Limited: there was no room in a limit, which Reason names. Only Rehearse finds that out.
	Limited bool
	// Shadow says what a mode "shadow" changes; "" when it changes nothing. Allowed is what the guard
	// would decide without its own mode.
	Shadow string
	// Unjudged are the parts of the schema that cannot be judged and are left to the server.
	Unjudged []string
}

// A Problem is an error or a warning about a Config.
type Problem struct {
	Path    string // as in a configuration: policy.allow[0].calls
	Message string
	Hint    string
	Warning bool // it works all the same
}

// A Guard authenticates, decides, limits and writes down. Its methods may be called by any
// number of goroutines at once.
type Guard struct {
	opts   Options
	now    func() time.Time
	nonces NonceStore
	dpop   *token.Nonces
	state  atomic.Pointer[state]

	began          time.Time      // in whole seconds, as signatures have it
	failures       *limit.Limiter // credentials that were wrong, by address
	introspections *limit.Limiter // of tokens, by address
	guesses        guesses        // of Options.Authenticate
	outsiders      *limit.Limiter // refusals of those without credentials, together
	schemas        schemas
	shadowed       shadowed
	streams        activeStreams
	connections    atomic.Uint64 // that were identified, to number them

	mu      sync.Mutex // of Reload and Close
	closed  bool
	retired []retired
}

// New returns a guard. Its error tells everything that is wrong with the configuration.
func New(c *Config, o *Options) (*Guard, error) {
	g := &Guard{}
	g.streams.g = g
	g.opts = *cmp.Or(o, &Options{})
	if g.now = g.opts.Now; g.now == nil {
		g.now = time.Now
	}
	g.began = g.now().Truncate(time.Second)
	g.opts.Logger = cmp.Or(g.opts.Logger, slog.New(slog.DiscardHandler))
	g.opts.Logger = g.opts.Logger.With(levels.Key, "guard")
	switch {
	case g.opts.Nonces != nil:
		g.nonces = g.opts.Nonces
	case g.opts.Shared != nil:
		g.nonces = &claims{replay.New(cmp.Or(c.Replay.Memory, sharedNonces), g.now), g.opts.Shared}
	default:
		g.nonces = replay.New(cmp.Or(c.Replay.Memory, 1_000_000), g.now)
	}
	key := g.opts.Secret
	if len(key) == 0 {
		key = make([]byte, 32)
		_, _ = rand.Read(key) // it does not fail
	}
	var err error
	if g.dpop, err = token.NewNonces(key, nonceLife); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	g.failures = newFailures(g.now)
	g.guesses.init(g.now)
	g.introspections = newIntrospections(g.now)
	g.outsiders = newOutsiders(g.now)
	g.shadowed.lines = limit.New(
		&limit.Options{
			Rates: []limit.Rate{{Per: "all", Limit: 10, Burst: 100, Every: time.Second}},
			Now:   g.now,
		})
	s, err := g.compile(c, nil)
	if err != nil {
		return nil, err
	}
	g.state.Store(s)
	s.warnOfShadow()
	return g, nil
}

// nonceLife is how long a nonce for DPoP is good.
const nonceLife = 5 * time.Minute

// Reload puts another configuration in the place of this one. Nonces, buckets and keys that are in
// both stay, and so does the size of the memory of nonces. When it is not valid nothing changes.
func (g *Guard) Reload(c *Config) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errors.New("guard: it is closed")
	}
	old := g.state.Load()
	s, err := g.compile(c, old)
	if err != nil {
		return err
	}
	g.state.Store(s)
	s.warnOfShadow()
	g.streams.soon()
	return old.close(s)
}

// Close ends what runs in the background, and writes the audit out. Calls are refused
// afterwards where there is an audit.
func (g *Guard) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.streams.close()
	err := g.state.Load().close(nil)
	for _, r := range g.retired {
		err = errors.Join(err, r.log.Close())
	}
	return err
}

// Listener bounds the connections of l, as the configuration says now: a later Reload does not
// change that. What it does not say has a default: see Config.Limits.
func (g *Guard) Listener(l net.Listener) net.Listener {
	c := &g.state.Load().c.Limits
	return accept.Listen(l, &accept.Options{
		PerAddress: c.Connections, Total: c.Accepted, Rate: c.AcceptRate, Idle: c.Idle,
		OnRefuse: func(address string) {
			g.opts.Logger.Warn("a connection was refused: there are too many", "address", address)
		},
	})
}

// sharedNonces is the default bound of the nonces that one process remembers of those that several
// share: an owner that fills its share of it leaves room for others in the store, too.
const sharedNonces = 200_000

// claims remembers nonces in the store that several processes share. What this process has seen is
// refused without asking the store, and an owner has a share of what this process claims.
type claims struct {
	local *replay.Memory
	once  store.Once
}

// Use implements [NonceStore]. A nonce is new when the store says so, and at no other time: an
// error or an unknown outcome refuses the request.
func (c *claims) Use(
	ctx context.Context, by, nonce string, until time.Time,
) (fresh bool, err error) {
	if fresh, err = c.local.Use(ctx, by, nonce, until); err != nil || !fresh {
		return false, err
	}
	first, err := c.once.Claim(ctx, claimKey(nonce), until)
	switch {
	case errors.Is(err, store.ErrPast):
		return false, replay.ErrPast
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrFull):
		c.local.Forget(ctx, nonce) // nothing was claimed: the same request may come again
	}
	if err != nil {
		return false, fmt.Errorf("guard: the nonce cannot be claimed in the shared store: %w", err)
	}
	return first, nil
}

// Forget implements [NonceStore].
func (c *claims) Forget(ctx context.Context, nonce string) {
	if c.once.Release(ctx, claimKey(nonce)) == nil {
		c.local.Forget(ctx, nonce)
	}
}

func claimKey(nonce string) string { return "nonce " + nonce }

// remembered refuses what was made before the shared store began to remember: it may have been
// used, and forgotten. The store is asked after the claim was made: had it lost its claims before
// that, it would have begun later.
func (s *state) remembered(ctx context.Context, made time.Time) *refusal {
	if s.g.opts.Shared == nil || s.g.opts.Nonces != nil {
		return nil
	}
	since, err := s.g.opts.Shared.Since(ctx)
	if err != nil {
		return unavailable(err)
	}
	if made.Before(since) {
		return refuse(jsonrpc.Stale, fmt.Sprintf("the shared store began to remember nonces at %s, "+
			"and this was made before: make another one then", since.UTC().Format(time.RFC3339))).
			later(max(since.Sub(s.g.now()), time.Second))
	}
	return nil
}

// unavailable is the refusal of what cannot be remembered, and so could be used again.
func unavailable(err error) *refusal {
	return refuse(jsonrpc.Unavailable, err.Error()).later(time.Second)
}

// claim is once for what was made at a time.
func (s *state) claim(
	ctx context.Context, o owner.Key, nonce string, made time.Time,
) (*ticket, *refusal) {
	// It is refused for its age a moment before it is forgotten.
	t, refused := s.once(ctx, o, nonce, made.Add(s.past+time.Second))
	if refused == nil {
		refused = s.remembered(ctx, made)
	}
	if refused != nil {
		return nil, refused
	}
	return t, nil
}

// sharedLimits lets processes count rates and quotas together. Nil: this one counts for itself.
func (g *Guard) sharedLimits() *limit.Shared {
	if g.opts.Shared == nil {
		return nil
	}
	return &limit.Shared{Counter: g.opts.Shared, Nodes: g.opts.Nodes}
}

// Budget returns the part of b for the large frames of a connection: the share of
// its principal or, as long as no credentials are accepted, the part for
// unauthenticated connections. Nil is the budget of the process.
func (g *Guard) Budget(c *Conn, b *farcall.Budget) *farcall.Budget {
	return budget.By(b, func() (owner.Key, bool) {
		//nolint:forbidigo // the connection's own; what is looked up was verified before
		k, refused := g.state.Load().conn(context.Background(), c)
		if k == nil || refused != nil {
			return c.owner(), true
		}
		return owner.Or(k.principal.owner(), c.owner()), false
	})
}

// owner returns the owner that stands for an unauthenticated connection.
func (c *Conn) owner() owner.Key { return owner.Connection(fmt.Sprintf("%p", c), c.Remote) }

// body reads the body of a request with a signature that is that of k, and which may be
// read again. It holds its part of the budget until the request ends.
func (x *exchange) body(k *known) ([]byte, error) {
	if x.r.Body == nil || x.r.Body == http.NoBody {
		return nil, nil
	}
	most := cmp.Or(x.s.c.Limits.MaxBody, signedBody)
	of := budget.By(x.s.g.opts.Budget, func() (owner.Key, bool) { return k.principal.owner(), false })
	loan := budget.Lend(of)
	x.loan = &loan
	b, err := loan.ReadAll(nil, x.r.Body, x.r.ContentLength, int(most), budget.Body(x.w, x.r))
	switch {
	case errors.Is(err, budget.ErrTooLarge):
		return nil, errors.New(
			"it is too large to be signed: more than " + strconv.FormatInt(most, 10) + " bytes")
	case err != nil:
		return nil, err
	}
	x.r.Body = io.NopCloser(bytes.NewReader(b))
	return b, nil
}

// A hold is a subscription that was let in. It is ended when its caller may no longer have it: it
// is decided about again after each change of the configuration.
type hold struct {
	who     *session // who subscribed; http is nil
	tls     *tls.ConnectionState
	call    Call
	end     func(error) // with the error for the caller
	decided *state      // by which it was let in last
}

// holds returns the permit.Hold of the call c.
func (g *Guard) holds(c *Call) permit.Hold {
	return func(ctx context.Context, method string, params []byte, end func(error)) (release func()) {
		call := *c
		if method != "" {
			call = g.described(ctx, method, params)
		}
		return g.hold(ctx, &call, end)
	}
}

// hold has end called when the caller may no longer make the call c, until release is called.
func (g *Guard) hold(ctx context.Context, c *Call, end func(error)) (release func()) {
	who := sessionFrom(ctx)
	if who == nil {
		return func() {}
	}
	h := &hold{who: who, call: *c, end: end, decided: g.state.Load()}
	h.call.Params, h.call.Arguments = bytes.Clone(c.Params), bytes.Clone(c.Arguments)
	if who.http != nil {
		h.who, h.tls = who.apart(), who.http.r.TLS
	}
	return g.streams.hold(h)
}

// apart returns who, which came over HTTP, without the request, for what is there longer than that.
func (who *session) apart() *session {
	own := *who
	own.local, own.http, own.attempt = isLocal(who.http.r), nil, nil
	return &own
}

// again decides about a subscription again. err is for a caller that may no longer have it.
// Neither: it cannot be found out now.
func (h *hold) again(ctx context.Context, s *state) (ok bool, err error) {
	who := h.who
	var refused *refusal
	if who.at != nil {
		who, refused = who.at.session(ctx, s)
	} else if who.principal != nil {
		var k *known
		k, refused = s.again(ctx, &Conn{Principal: who.principal, TLS: h.tls})
		if refused == nil && k != nil {
			own := *who
			own.principal, own.subject = k.principal, k.subject
			who = &own
		}
	}
	if refused != nil && refused.status != http.StatusUnauthorized {
		return false, nil
	}
	if refused != nil {
		return false, s.refused(h.who, &h.call, denied, nil, refused)
	}
	now := s.g.now()
	d, refused := s.admit(who, &h.call, now)
	if refused == nil || refused.shadow {
		return true, nil
	}
	s.g.decided(ctx, who, denied, &d, now)
	return false, s.refused(who, &h.call, denied, d.Policies, refused)
}

// hold registers a subscription until release is called.
func (g *activeStreams) hold(h *hold) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holds == nil {
		g.holds = map[*hold]struct{}{}
	}
	g.holds[h] = struct{}{}
	if g.g.state.Load() != h.decided { // changed meanwhile
		g.wake(0)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.holds, h)
	}
}

// endHolds ends the subscriptions that a changed configuration no longer permits.
func (g *activeStreams) endHolds(ctx context.Context, s *state) {
	g.mu.Lock()
	var all []*hold
	for h := range g.holds {
		if h.decided != s {
			all = append(all, h)
		}
	}
	g.mu.Unlock()
	for _, h := range all {
		ok, err := h.again(ctx, s)
		g.mu.Lock()
		_, there := g.holds[h]
		if ok {
			h.decided = s
		}
		if err != nil {
			delete(g.holds, h)
		}
		g.mu.Unlock()
		if there && err != nil {
			h.end(err)
		}
	}
}
