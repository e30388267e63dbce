package guard

import (
	"strings"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/policy"
)

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
func (g *Guard) Reconsider(p *Principal, from *Conn, c *Call, past *Past) (x Explanation, decided bool) {
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
			Arguments: past.NoArguments, Annotations: past.NoAnnotations, Roles: past.NoRoles, Scopes: past.NoScopes, Claims: past.NoClaims, Local: past.NoLocal,
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
