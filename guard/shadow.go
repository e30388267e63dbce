package guard

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/farcall-dev/farcall/guard/internal/limit"
)

// The modes of a guard, of a rule, and in Cedar's language of a policy.
const (
	modeEnforce = "enforce" // the default
	modeShadow  = "shadow"  // nothing is enforced
)

func (f *finder) mode(path, mode string) {
	if mode != "" && mode != modeEnforce && mode != modeShadow {
		f.bad(path, fmt.Sprintf("there is no mode %q", mode), "write enforce (the default) or shadow")
	}
}

// shadow reports whether the whole guard is on trial.
func (s *state) shadow() bool { return s.c.Mode == modeShadow }

// warnOfShadow tells the operator, when a configuration begins to count, what it does not enforce.
func (s *state) warnOfShadow() {
	switch {
	case s.shadow():
		s.g.opts.Logger.Warn("SHADOW MODE: THE GUARD ENFORCES NOTHING BUT AUTHENTICATION; what it would refuse passes, and is logged and audited as \"would deny\"")
	case s.trial != nil:
		s.g.opts.Logger.Warn("SHADOW MODE: SOME POLICIES ARE NOT ENFORCED; what they would deny passes, and is logged and audited as \"would deny\"",
			"policies", s.trial.OnTrial())
	}
}

// shadowed counts the calls that passed although they would have been refused. Its methods may be
// called concurrently.
type shadowed struct {
	count atomic.Int64
	lines *limit.Limiter // of the log
	left  atomic.Int64   // that were not logged
}

// note counts a call, and logs it, up to 10 in a second.
func (x *shadowed) note(log *slog.Logger, who *session, c *Call, word string, r *refusal) {
	n := x.count.Add(1)
	if _, full := x.lines.Take(&limit.Caller{}, "log"); full != nil {
		x.left.Add(1)
		return
	}
	log.Warn("shadow mode: a call has passed that the guard "+word,
		"principal", who.principal.Name(), "call", c.name(), "reason", r.text+": "+r.reason, "total", n, "not_logged", x.left.Swap(0))
}

// WouldRefuse is how many calls have passed, because of a mode "shadow", that would have been
// refused.
func (g *Guard) WouldRefuse() int64 { return g.shadowed.count.Load() }
