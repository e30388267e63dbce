package guard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"weak"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/guard/internal/policy"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// Begin decides whether a call of the principal in ctx may proceed, and counts it. done is to be
// called when it has ended, with its result, as far as it is known, or its error; it may be called
// by any goroutine, once. A refusal is a *jsonrpc.Error.
//
// Every decision is written to the audit before the call proceeds. Where that cannot be, the
// call is refused. What done is called with is written as its outcome.
func (g *Guard) Begin(
	ctx context.Context, c *Call,
) (done func(result jsonrpc.Raw, err error), err error) {
	if done, err = g.begin(ctx, c); done == nil && err == nil {
		done = nothing
	}
	return done, err
}

func nothing(jsonrpc.Raw, error) {}

// begin decides about a call. It returns nil when there is nothing to do in the end.
func (g *Guard) begin(
	ctx context.Context, c *Call,
) (done func(result jsonrpc.Raw, err error), err error) {
	s, who, began := g.state.Load(), sessionFrom(ctx), g.now()
	decision, refused := s.admit(who, c, began)
	word := allowed
	switch {
	case refused == nil:
	case refused.shadow:
		word = wouldDeny
	default:
		g.decided(ctx, who, denied, &decision, began)
		return nil, s.refused(who, c, denied, decision.Policies, refused)
	}
	caller := who.limitedFor(ctx, c)
	release, err := s.limiter.TakeShared(ctx, &caller, c.name())
	if err != nil {
		r := exceeds(err)
		if !s.shadow() {
			who.attempt.limit()
			g.decided(ctx, who, limited, &decision, began)
			return nil, s.refused(who, c, limited, decision.Policies, r)
		}
		if release = func() {}; refused == nil {
			r.shadow, word, refused = true, wouldLimit, r
		}
	}
	if refused != nil {
		g.shadowed.note(g.opts.Logger, who, c, word, refused)
	}
	g.decided(ctx, who, word, &decision, began)
	listens := c.Method == spec.MethodSubscriptionsListen && who.http != nil // its answer is a stream
	holds := s.c.Limits.Concurrent > 0 || s.c.Limits.Total > 0
	if s.log == nil && !listens && !holds {
		who.attempt.begin()
		return nil, nil //nolint:nilnil // nothing is to be ended
	}
	var leave func()
	if listens {
		var ok bool
		if leave, ok = g.streams.add(who, who.http.r, who.http.w); !ok {
			release()
			who.attempt.limit()
			return nil, s.refused(who, c, limited, decision.Policies, tooManyStreams())
		}
	}
	entry, err := s.open(who, c, word, &decision, refused, began)
	if err != nil {
		drop(leave, release)
		who.attempt.limit()
		return nil, refuse(jsonrpc.Unavailable, err.Error()).wire(c, false)
	}
	who.attempt.begin()
	return func(result jsonrpc.Raw, err error) { // all that it needs is in one piece of memory
		drop(leave, release)
		entry.end(result, err)
	}, nil
}

// Recheck decides again about a call that Begin has let pass, because its arguments have changed
// since. It counts nothing; a refusal, and in shadow mode what would be one, is written to the
// audit. The error is a *jsonrpc.Error.
func (g *Guard) Recheck(ctx context.Context, c *Call) error { return g.admitPart(ctx, c) }

// Refuse writes down that the caller of Begin refuses a call of the principal in ctx itself, for a
// reason that policies do not know, and returns the refusal, a *jsonrpc.Error. Shadow mode does not
// let such a call pass.
func (g *Guard) Refuse(ctx context.Context, c *Call, reason string) error {
	s, who := g.state.Load(), sessionFrom(ctx)
	g.decided(ctx, who, denied, &policy.Decision{}, g.now())
	return s.refused(who, c, denied, nil, refuse(jsonrpc.PermissionDenied, reason))
}

// decided tells the observer of a decision.
func (g *Guard) decided(
	ctx context.Context, who *session, outcome string, d *policy.Decision, began time.Time,
) {
	if g.opts.Observer == nil {
		return
	}
	if c := observe.From(ctx); c != nil {
		c.Decision = outcome
		if who != nil && who.principal != nil {
			c.Principal = who.principal.Name()
		}
	}
	if g.opts.Observer.Decide == nil {
		return
	}
	told := observe.Decision{Outcome: outcome, Took: g.now().Sub(began)}
	if len(d.Policies) > 0 {
		told.Policy = d.Policies[0]
	}
	g.opts.Observer.Decide(told)
}

// exceeds is the refusal of a call for which there is no room.
func exceeds(err error) *refusal {
	r := refuse(jsonrpc.RateLimited, err.Error())
	if full := (*limit.Exceeded)(nil); errors.As(err, &full) {
		r.reason, r.after = full.Which, full.RetryAfter
	}
	return r
}

// drop gives back what a call holds: a stream, nil if it has none, and its place.
func drop(leave, release func()) {
	if leave != nil {
		leave()
	}
	release()
}

// The decisions, as the audit has them. Calls that were shadowed have passed.
const (
	allowed    = "allowed"
	denied     = "denied"
	limited    = "limited"
	wouldDeny  = "would deny"
	wouldLimit = "would limit"
)

// limited is who calls, for the limits.
func (w *session) limited() limit.Caller {
	return limit.Caller{Owner: w.owner, Address: w.remote, Roles: w.principal.Roles}
}

// limitedFor is limited for a call. The owner of a call of an anonymous caller over HTTP is its
// session, if the handler of the transport has issued one at this address, or else the address. The
// sessions of an address have a bound together, so that opening more wins nothing beyond it. What
// opens a session counts for the address.
func (w *session) limitedFor(ctx context.Context, c *Call) limit.Caller {
	caller := w.limited()
	if w.http == nil || w.owner.Authenticated() || c.Method == spec.MethodInitialize {
		return caller
	}
	if o := owner.SessionFrom(ctx); o.Group() == w.owner {
		caller.Owner = o
	}
	return caller
}

// admit decides everything but whether there is room. A refusal that is marked as shadow is for the
// audit: the call may proceed.
func (s *state) admit(who *session, c *Call, now time.Time) (policy.Decision, *refusal) {
	if who == nil || who.principal == nil {
		return policy.Decision{}, refuse(jsonrpc.Unauthenticated, noCredentials)
	}
	if who.expired(now) { // a connection may outlive them
		return policy.Decision{}, refuse(jsonrpc.Unauthenticated, "the credentials have expired")
	}
	if refused := s.locked(who); refused != nil {
		return policy.Decision{}, refused
	}
	d, refused := s.judge(who, c, now)
	switch {
	case refused != nil:
		refused.shadow = s.shadow() && !mustBeGranted(c.Method)
	case s.trial != nil:
		if onTrial, would := s.ask(s.trial, who, c, now); would != nil {
			would.shadow = true
			return onTrial, would
		}
	}
	return d, refused
}

// ask decides by policies whether a call may proceed, and whether its params are fit for that.
func (s *state) ask(
	set *policy.Set, who *session, c *Call, now time.Time,
) (policy.Decision, *refusal) {
	if err := s.check(set, c); err != nil {
		return policy.Decision{}, invalid(err, err.Error())
	}
	d := s.decide(set, who, c, now)
	if !d.Allowed {
		return d, refuse(jsonrpc.PermissionDenied, d.Reason)
	}
	return d, nil
}

// judge is admit for a principal that is known, without regard to shadows.
func (s *state) judge(who *session, c *Call, now time.Time) (policy.Decision, *refusal) {
	d, refused := s.ask(s.policy, who, c, now)
	if refused != nil {
		return d, refused
	}
	if lacks := s.lacks(who.principal, c); len(lacks) > 0 {
		r := refuse(jsonrpc.PermissionDenied, "it needs the scopes "+strings.Join(lacks, ", "))
		r.scopes = s.wanted(who.principal, lacks)
		if who.http != nil && !s.shadow() {
			who.http.lacks.Store(&r.scopes)
		}
		return d, r
	}
	return d, s.fits(c)
}

// decide asks the policies. What is open needs no rule that allows it, but one may deny it.
func (s *state) decide(set *policy.Set, who *session, c *Call, now time.Time) policy.Decision {
	switch {
	case set.Empty() && mustBeGranted(c.Method):
		return policy.Decision{
			Reason: "there are no policies, and " + c.Method + " needs one that allows it",
		}
	case set.Empty():
		return policy.Decision{Allowed: true, Reason: "there are no policies"}
	}
	q := query(who, c, isFromHere(set, who), now)
	return opened(set.Decide(&q), c)
}

// A standing is what Visible depends on beside the call.
type standing struct {
	state     weak.Pointer[state]
	subject   weak.Pointer[policy.Subject]
	transport string
	local     bool
}

// Standing returns what the answers of Visible depend on, beside the call: they are the same for
// equal values. It is nil where they depend on more, such as the time or claims.
func (g *Guard) Standing(ctx context.Context) any {
	s, who := g.state.Load(), sessionFrom(ctx)
	if who == nil || who.subject == nil || !s.policy.Remembers() || s.locked(who) != nil {
		return nil
	}
	return standing{weak.Make(s), weak.Make(who.subject), who.transport, isFromHere(s.policy, who)}
}

// opened is a decision with what needs no rule.
func opened(d policy.Decision, c *Call) policy.Decision {
	if !d.Allowed && !d.Local && len(d.Policies) == 0 && c.Upstream == "" && c.Name == "" &&
		open(c.Method) {
		d = policy.Decision{Allowed: true, Reason: "it is open to everybody who was let in"}
	}
	return d
}

// isFromHere reports whether a call came from this machine. For a request that takes a look at all
// headers, which is taken only where a policy asks.
func isFromHere(set *policy.Set, who *session) bool {
	if who.http == nil {
		return who.local
	}
	return set.AsksLocal() && isLocal(who.http.r)
}

func query(who *session, c *Call, local bool, now time.Time) policy.Query {
	return policy.Query{
		Subject: who.subject, Method: c.Method, Upstream: c.Upstream, Name: c.Name,
		Arguments: c.Arguments, Annotations: c.Annotations,
		Transport: who.transport, Remote: who.remote, Local: local, Now: now,
	}
}

// lacks are the scopes that a call needs and the principal does not have.
func (s *state) lacks(p *Principal, c *Call) (scopes []string) {
	if len(s.scopes) == 0 {
		return nil
	}
	name := c.name()
	for _, rule := range s.scopes {
		if !policy.Match(rule.pattern, name) {
			continue
		}
		for _, scope := range rule.scopes {
			if !p.HasScope(scope) && !slices.Contains(scopes, scope) {
				scopes = append(scopes, scope)
			}
		}
	}
	return scopes
}

// wanted are the scopes that a new token should have: those of the old one that mean something
// here, and those that it lacks, so that what worked goes on to.
func (s *state) wanted(p *Principal, lacks []string) []string {
	list := slices.Clone(lacks)
	for _, rule := range s.scopes {
		for _, scope := range rule.scopes {
			if p.HasScope(scope) && !slices.Contains(list, scope) {
				list = append(list, scope)
			}
		}
	}
	slices.Sort(list)
	return list
}

// check returns what is wrong with the params of a call, whatever they mean.
func (s *state) check(set *policy.Set, c *Call) error {
	b := c.Params
	if len(b) == 0 {
		b = c.Arguments
	}
	names := set.Names()
	return s.params.check(b,
		look{names: names, fold: names != nil || s.looks(c), whole: len(b) == len(c.Arguments)})
}

// Visible reports whether the principal in ctx may use something, for lists. Nothing is counted
// or written down.
func (g *Guard) Visible(ctx context.Context, c *Call) bool {
	s, who := g.state.Load(), sessionFrom(ctx)
	if who == nil || who.principal == nil || s.locked(who) != nil {
		return false
	}
	return s.shadow() && !mustBeGranted(c.Method) || s.decide(s.policy, who, c, g.now()).Allowed
}

// A Past is when a call was made that is decided again, and what is not known of it.
type Past struct {
	At time.Time
	// NoArguments: the arguments are not known, or not all of them. NoLocal: whether the caller was on
	// this machine.
	NoArguments, NoAnnotations, NoRoles, NoScopes, NoClaims, NoLocal bool
}

// Reconsider decides a call of the past again, by policies, scopes and the shape of its params;
// schemas and limits are left out. decided is false when what is not known could change the
// decision.
func (g *Guard) Reconsider(
	p *Principal, from *Conn, c *Call, past *Past,
) (x Explanation, decided bool) {
	s, who := g.state.Load(), caller(p, from)
	if refused := s.locked(who); refused != nil {
		return Explanation{Reason: refused.reason}, true
	}
	if !past.NoArguments {
		if err := s.check(s.policy, c); err != nil {
			return Explanation{Reason: invalidText(err)}, true
		}
	}
	x = Explanation{Allowed: true, Reason: "there are no policies"}
	if !s.policy.Empty() {
		q := query(who, c, isFromHere(s.policy, who), past.At)
		d, decided := s.policy.Consider(&q, &policy.Unknown{
			Arguments: past.NoArguments, Annotations: past.NoAnnotations, Roles: past.NoRoles,
			Scopes: past.NoScopes, Claims: past.NoClaims, Local: past.NoLocal,
		})
		if !decided {
			return Explanation{}, false
		}
		d = opened(d, c)
		x = Explanation{Allowed: d.Allowed, Policies: d.Policies, Reason: d.Reason}
	}
	if lacks := s.lacks(p, c); x.Allowed && len(lacks) > 0 {
		if past.NoScopes {
			return Explanation{}, false
		}
		x.Allowed, x.Scopes, x.Reason = false, lacks, "it needs the scopes "+strings.Join(lacks, ", ")
	}
	return x, true
}

// Explain says what would become of a call of p, and why. It counts nothing. The call comes as from
// says; nil: over HTTP, and not from this machine. Without Arguments none are checked against the
// schema.
func (g *Guard) Explain(p *Principal, from *Conn, c *Call) Explanation {
	s, who, now := g.state.Load(), caller(p, from), g.now()
	if refused := s.locked(who); refused != nil {
		return Explanation{Reason: refused.reason}
	}
	x := s.explain(who, c, now)
	x.Unjudged = s.unjudged(c)
	if !x.Allowed && s.shadow() {
		x.Shadow = "the call passes all the same: the guard is in shadow mode"
	}
	if x.Allowed && s.trial != nil {
		if d, would := s.ask(s.trial, who, c, now); would != nil {
			x.Shadow = "policies in shadow mode would deny it: " +
				or(strings.Join(d.Policies, ", "), would.reason)
		}
	}
	return x
}

// Rehearse is Explain for a call that counts for the rates, and has ended at once. Nothing is
// written down.
func (g *Guard) Rehearse(p *Principal, from *Conn, c *Call) Explanation {
	x := g.Explain(p, from, c)
	if !x.Allowed {
		return x
	}
	who := caller(p, from).limited()
	release, err := g.state.Load().limiter.Take(&who, c.name())
	if err == nil {
		release()
		return x
	}
	x.Allowed, x.Limited, x.Reason = false, true, err.Error()
	if full := (*limit.Exceeded)(nil); errors.As(err, &full) {
		x.Reason = full.Which
	}
	return x
}

// caller is the session of a principal that is asked about.
func caller(p *Principal, from *Conn) *session {
	k := knownAs(p)
	who := &session{principal: p, subject: k.subject, owner: k.owner, transport: "http"}
	if from != nil {
		who.transport, who.remote, who.local = or(from.Transport, "http"), host(from.Remote), from.Local
	}
	if who.owner.IsZero() {
		who.owner = address(who.remote)
	}
	return who
}

func (s *state) explain(who *session, c *Call, now time.Time) (x Explanation) {
	if err := s.check(s.policy, c); err != nil {
		x.Reason = invalidText(err)
		return x
	}
	caller := who.limited()
	q, d := query(who, c, isFromHere(s.policy, who), now), s.decide(s.policy, who, c, now)
	x.Allowed, x.Policies, x.Reason, x.Limits = d.Allowed, d.Policies, d.Reason,
		s.limiter.Explain(&caller, c.name())
	if !d.Allowed {
		if whole := s.policy.Explain(&q); !whole.Allowed {
			x.Policies, x.Reason = whole.Policies, whole.Reason
		}
		return x
	}
	if len(d.Policies) > 0 {
		x.Reason = s.policy.Explain(&q).Reason
	}
	if x.Scopes = s.lacks(who.principal, c); len(x.Scopes) > 0 {
		x.Allowed, x.Reason = false, "it needs the scopes "+strings.Join(x.Scopes, ", ")
		return x
	}
	if len(c.Arguments) > 0 {
		if refused := s.fits(c); refused != nil {
			x.Allowed, x.Reason = false, refused.text
			if refused.kind == jsonrpc.SchemaNotSupported {
				x.Reason += ": " + refused.reason
			}
		}
	}
	return x
}
