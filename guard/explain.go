package guard

import "strings"

// Explain says what would become of a call of p, and why. It counts nothing. The call comes as from says;
// nil: over HTTP, and not from this machine. Without Arguments none are held against the schema.
func (g *Guard) Explain(p *Principal, from *Conn, c *Call) Explanation {
	s := g.state.Load()
	k := knownAs(p)
	who := &session{principal: p, subject: k.subject, owner: k.owner, transport: "http"}
	if from != nil {
		who.transport, who.remote, who.local = or(from.Transport, "http"), host(from.Remote), from.Local
	}
	if who.owner.IsZero() {
		who.owner = address(who.remote)
	}
	now, caller := g.now(), who.limited()
	x := Explanation{Unjudged: s.unjudged(c)}
	if refused := s.locked(who); refused != nil {
		x.Reason = refused.reason
		return x
	}
	if err := s.check(c); err != nil {
		x.Reason = invalidParams(err).text
		return x
	}
	q, d := query(who, c, s.local(who), now), s.decide(who, c, now)
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
	if x.Scopes = s.lacks(p, c); len(x.Scopes) > 0 {
		x.Allowed, x.Reason = false, "it needs the scopes "+strings.Join(x.Scopes, ", ")
		return x
	}
	if len(c.Arguments) > 0 {
		if refused := s.fits(c); refused != nil {
			x.Allowed, x.Reason = false, refused.text
			if refused.condition == unjudged {
				x.Reason += ": " + refused.reason
			}
		}
	}
	return x
}
