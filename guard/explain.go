package guard

import (
	"errors"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/jsonrpc"
)

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
			x.Shadow = "policies in shadow mode would deny it: " + or(strings.Join(d.Policies, ", "), would.reason)
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
	x.Allowed, x.Policies, x.Reason, x.Limits = d.Allowed, d.Policies, d.Reason, s.limiter.Explain(&caller, c.name())
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
