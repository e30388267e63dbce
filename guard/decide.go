package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/guard/internal/policy"
	"github.com/farcall-dev/farcall/internal/audit"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// Begin decides whether a call of the principal in ctx may proceed, and counts it. done is to be called
// when it has ended, with its error; it may be called by any goroutine, once. A refusal is a *jsonrpc.Error.
//
// Every decision is written to the audit before the call proceeds. Where that cannot be, the
// call is refused.
func (g *Guard) Begin(ctx context.Context, c *Call) (done func(error), err error) {
	s, who, began := g.state.Load(), sessionFrom(ctx), g.now()
	decision, refused := s.admit(who, c, began)
	word := allowed
	switch {
	case refused == nil:
	case refused.shadow:
		word = wouldDeny
	default:
		return nil, s.refused(who, c, denied, decision.Policies, refused)
	}
	caller := who.limited()
	release, err := s.limiter.Take(&caller, c.name())
	if err != nil {
		r := refuse(rateLimited, err.Error())
		if full := (*limit.Exceeded)(nil); errors.As(err, &full) {
			r.reason, r.after = full.Which, full.RetryAfter
		}
		if !s.shadow() {
			who.attempt.limit()
			return nil, s.refused(who, c, limited, decision.Policies, r)
		}
		if release = func() {}; refused == nil {
			r.shadow, word, refused = true, wouldLimit, r
		}
	}
	if refused != nil {
		g.shadowed.note(g.opts.Logger, who, c, word, refused)
	}
	if s.log != nil {
		if err := s.record(who, c, word, decision.Policies, refused, g.now().Sub(began)); err != nil {
			release()
			who.attempt.limit()
			return nil, refuse(unavailable, err.Error()).wire(c, false)
		}
	}
	who.attempt.begin()
	if c.Method == spec.MethodSubscriptionsListen && who.http != nil { // its answer is a stream
		leave := g.guests.stream(who, who.http.r, who.http.w)
		return func(error) { leave(); release() }, nil
	}
	if s.c.Limits.Concurrent <= 0 && s.c.Limits.Total <= 0 { // it holds no place
		return nothing, nil
	}
	return func(error) { release() }, nil
}

func nothing(error) {}

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

// admit decides everything but whether there is room. A refusal that is marked as shadow is for the audit: the call may
// proceed.
func (s *state) admit(who *session, c *Call, now time.Time) (policy.Decision, *refusal) {
	if who == nil || who.principal == nil {
		return policy.Decision{}, refuse(unauthenticated, nobodyNamed)
	}
	if who.expired(now) { // a connection may outlive them
		return policy.Decision{}, refuse(unauthenticated, "the credentials have expired")
	}
	if refused := s.locked(who); refused != nil {
		return policy.Decision{}, refused
	}
	d, refused := s.judge(who, c, now)
	switch {
	case refused != nil:
		refused.shadow = s.shadow()
	case s.trial != nil:
		if onTrial, would := s.ask(s.trial, who, c, now); would != nil {
			would.shadow = true
			return onTrial, would
		}
	}
	return d, refused
}

// ask decides by policies whether a call may proceed, and whether its params are fit for that.
func (s *state) ask(set *policy.Set, who *session, c *Call, now time.Time) (policy.Decision, *refusal) {
	if err := s.check(set, c); err != nil {
		return policy.Decision{}, refuse(invalidParams(err), err.Error())
	}
	d := s.decide(set, who, c, now)
	if !d.Allowed {
		return d, refuse(permissionDenied, d.Reason)
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
		r := refuse(permissionDenied, "it needs the scopes "+strings.Join(lacks, ", "))
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
	if set.Empty() {
		return policy.Decision{Allowed: true, Reason: "there are no policies"}
	}
	q := query(who, c, isFromHere(set, who), now)
	d := set.Decide(&q)
	if !d.Allowed && !d.Local && len(d.Policies) == 0 && c.Upstream == "" && c.Name == "" && open(c.Method) {
		d = policy.Decision{Allowed: true, Reason: "it is open to everybody who was let in"}
	}
	return d
}

// isFromHere reports whether a call came from this machine. For a request that takes a look at all headers, which
// is taken only where a policy asks.
func isFromHere(set *policy.Set, who *session) bool {
	if who.http == nil {
		return who.local
	}
	return set.AsksLocal() && isLocal(who.http.r)
}

func query(who *session, c *Call, local bool, now time.Time) policy.Query {
	return policy.Query{
		Subject: who.subject, Method: c.Method, Upstream: c.Upstream, Name: c.Name, Arguments: c.Arguments, Annotations: c.Annotations,
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

// wanted are the scopes that a new token should have: those of the old one that mean something here, and those
// that it lacks, so that what worked goes on to.
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
	return s.params.check(b, look{names: names, fold: names != nil || s.looks(c), whole: len(b) == len(c.Arguments)})
}

// refused writes a refusal down and makes the answer of it.
func (s *state) refused(who *session, c *Call, decision string, policies []string, r *refusal) error {
	_ = s.record(who, c, decision, policies, r, 0) // it is refused already
	return r.wire(c, s.tells(who))
}

// tells reports whether a caller may know why it was refused.
func (s *state) tells(who *session) bool {
	role := s.g.opts.Details
	return role != "" && who != nil && who.principal.HasRole(role)
}

// record writes a decision to the audit.
func (s *state) record(who *session, c *Call, decision string, policies []string, r *refusal, took time.Duration) error {
	if s.log == nil {
		return nil
	}
	if who == nil || who.principal == nil {
		return s.recordStranger(who, c, decision, r)
	}
	return s.write(who, c, decision, policies, r, took)
}

func (s *state) write(who *session, c *Call, decision string, policies []string, r *refusal, took time.Duration) error {
	e := audit.Entry{
		Time: s.g.now(), Call: c.name(), Upstream: c.Upstream, Decision: decision, Policies: policies, Latency: took, Params: c.Params,
	}
	if who != nil {
		e.Address, e.Transport = who.remote, who.transport
		if p := who.principal; p != nil {
			e.Principal, e.Kind, e.Method, e.Issuer = p.ID, p.Kind, p.Method, p.Issuer
		}
	}
	if r != nil {
		e.Reason = r.text + ": " + r.reason
		if !r.shadow {
			e.Error = int(r.code(c))
		}
	}
	if err := s.log.Write(&e); err != nil {
		return fmt.Errorf("guard: the audit cannot be written: %w", err)
	}
	return nil
}

// Visible reports whether the principal in ctx may use something, for lists. Nothing is counted
// or written down.
func (g *Guard) Visible(ctx context.Context, c *Call) bool {
	s, who := g.state.Load(), sessionFrom(ctx)
	return who != nil && who.principal != nil && s.locked(who) == nil && (s.shadow() || s.decide(s.policy, who, c, g.now()).Allowed)
}
