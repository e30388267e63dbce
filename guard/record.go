package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/guard/internal/policy"
	"github.com/farcall-dev/farcall/internal/audit"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// newRefusals returns what bounds the refusals of each owner.
func (c *Config) newRefusals(now func() time.Time) *limit.Limiter {
	rate := limit.Rate{Limit: 60, Every: time.Minute, Burst: 1000}
	if r := &c.Limits.Refusals; r.Limit > 0 {
		rate = limit.Rate{Limit: r.Limit, Every: r.Every, Burst: r.Burst}
	}
	return limit.New(&limit.Options{Rates: []limit.Rate{rate}, Now: now})
}

// newOutsiders returns what also bounds the refusals of callers without credentials: they can be
// many owners, and must not fill the audit together.
func newOutsiders(now func() time.Time) *limit.Limiter {
	return limit.New(&limit.Options{
		Rates: []limit.Rate{
			{Per: "address", Limit: 1, Burst: 100, Every: time.Second},
			{Per: "all", Limit: 2, Burst: 1000, Every: time.Second},
		}, Now: now,
	})
}

// refused records a refusal and makes the answer of it.
func (s *state) refused(
	who *session, c *Call, decision string, policies []string, r *refusal,
) error {
	r = s.recordRefusal(who, c, decision, policies, r)
	return r.wire(c, s.tells(who))
}

// tells reports whether a caller may know why it was refused.
func (s *state) tells(who *session) bool {
	role := s.g.opts.Details
	return role != "" && who != nil && who.principal.HasRole(role)
}

// recordRefusal draws a refusal from the rate of its owner and writes it. Beyond that rate it is
// counted only, and an authenticated or anonymous caller gets the time to wait.
func (s *state) recordRefusal(
	who *session, c *Call, decision string, policies []string, r *refusal,
) *refusal {
	caller := limit.Caller{}
	if who != nil {
		caller = limit.Caller{Owner: who.owner, Address: who.remote}
	}
	caller.Owner = owner.Or(caller.Owner, address(caller.Address))
	beyond := s.beyond(&caller, who != nil && who.principal != nil)
	if s.log != nil {
		e := s.entry(who, c, decision, policies)
		e.Reason, e.Error = r.text+": "+r.reason, int(r.code(c))
		s.log.Refuse(caller.Owner, &e, beyond != nil)
	}
	if beyond != nil && who != nil && who.principal != nil && r.kind != jsonrpc.RateLimited {
		r = refuse(jsonrpc.RateLimited, "too many refused calls; the last one: "+r.reason)
		r.after = beyond.RetryAfter
	}
	return r
}

// beyond takes a refusal from the rates that are for it, and returns the first that has no room.
func (s *state) beyond(c *limit.Caller, known bool) (full *limit.Exceeded) {
	if known {
		if _, err := s.refusals.Take(c, "refusal"); errors.As(err, &full) {
			return full
		}
	}
	if !c.Owner.Authenticated() {
		if _, err := s.g.outsiders.Take(c, "refusal"); errors.As(err, &full) {
			return full
		}
	}
	return nil
}

// passed writes the decision to let a call pass, which must not proceed when there is an error. r
// says why it would be refused if the guard were not in the shadow; nil: it is allowed.
func (s *state) passed(
	who *session, c *Call, decision string, policies []string, r *refusal, took time.Duration,
) (seq uint64, err error) {
	e := s.entry(who, c, decision, policies)
	if e.Latency = took; r != nil {
		e.Reason = r.text + ": " + r.reason
	}
	o := owner.Key{}
	if who != nil {
		o = who.owner
	}
	if o.IsZero() {
		o = address(e.Address)
	}
	if seq, err = s.log.Write(o, &e); err != nil {
		return 0, fmt.Errorf("guard: the audit cannot be written: %w", err)
	}
	return seq, nil
}

// passedPart is passed for a part of a call. The whole has the outcome.
func (s *state) passedPart(
	who *session, c *Call, decision string, policies []string, r *refusal,
) error {
	if s.log == nil {
		return nil
	}
	seq, err := s.passed(who, c, decision, policies, r, 0)
	if err == nil {
		s.log.End(&audit.Outcome{Of: seq, Status: "ok", Request: len(c.Params), Result: -1})
	}
	return err
}

// A record is the line of a call that was allowed and has no outcome yet.
type record struct {
	log  *audit.Log // nil: there is none
	seq  uint64
	at   time.Time
	now  func() time.Time
	size int // of the params
	tool bool

	asked *[]Asked
}

// open writes the decision to let a call pass, and returns what its outcome goes with.
func (s *state) open(
	who *session, c *Call, word string, d *policy.Decision, r *refusal, began time.Time,
) (record, error) {
	if s.log == nil {
		return record{}, nil
	}
	at := s.g.now()
	seq, err := s.passed(who, c, word, d.Policies, r, at.Sub(began))
	return record{
		log: s.log, seq: seq, at: at, now: s.g.now, size: len(c.Params),
		tool: c.Method == spec.MethodToolsCall, asked: c.Asked,
	}, err
}

// end writes the outcome.
func (r record) end(result jsonrpc.Raw, err error) {
	if r.log == nil {
		return
	}
	o := audit.Outcome{
		Of: r.seq, Status: "ok", Duration: r.now().Sub(r.at), Request: r.size,
		Result: len(result),
	}
	if result == nil {
		o.Result = -1
	}
	if err != nil {
		o.Status, o.Error = failure(err)
	} else if r.tool {
		o.IsError = string(scan.Member(result, "isError")) == "true"
		switch kind := scan.StringMember(result, "resultType"); kind {
		case "input_required", "task": // it goes on, with another request
			o.Status = kind
		}
	}
	if r.asked != nil {
		for _, a := range *r.asked {
			o.Hooks = append(o.Hooks, audit.Hook(a))
		}
	}
	r.log.End(&o)
}

// failure names what became of a call that failed.
func failure(err error) (status string, code int) {
	wire := (*jsonrpc.Error)(nil)
	switch {
	case errors.As(err, &wire) && wire.Code != jsonrpc.Cancelled:
		return "error", int(wire.Code)
	case wire != nil, errors.Is(err, context.Canceled):
		return "cancelled", int(jsonrpc.Cancelled)
	case errors.Is(err, context.DeadlineExceeded):
		return "error", int(jsonrpc.Timeout)
	}
	return "error", int(jsonrpc.InternalError)
}

func (s *state) entry(who *session, c *Call, decision string, policies []string) audit.Entry {
	e := audit.Entry{
		Time: s.g.now(), Call: c.name(), Upstream: c.Upstream, Decision: decision, Policies: policies,
		Params: c.Params,
	}
	if who != nil {
		e.Address, e.Transport = who.remote, who.transport
		if p := who.principal; p != nil {
			e.Principal, e.Kind, e.Method, e.Issuer = p.ID, p.Kind, p.Method, p.Issuer
			e.Roles, e.Scopes = noneNil(p.Roles), noneNil(p.Scopes)
		}
	}
	return e
}

// noneNil is words that the audit has even if there are none.
func noneNil(words []string) []string {
	if words == nil {
		return []string{}
	}
	return words
}

// openAudit opens the audit of a configuration, or goes on with that of the old state. Nil: there
// is none.
func (g *Guard) openAudit(c *Config, old *state) (*audit.Log, error) {
	a := &c.Audit
	if a.File == "" {
		return nil, nil //nolint:nilnil // no file, no log
	}
	if old != nil && old.log != nil && old.c.Audit.File == a.File && old.c.Audit.Key == a.Key {
		return old.log, nil // settle has it go on as c wants
	}
	for _, r := range g.retired {
		if r.file == a.File && r.key == a.Key && r.log.Resume() {
			return r.log, nil
		}
	}
	log, err := audit.Open(g.auditOptions(c))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("guard: %w; its directory must be there, and writable", err)
		}
		return nil, fmt.Errorf("guard: %w", err)
	}
	return log, nil
}

func (g *Guard) auditOptions(c *Config) *audit.Options {
	a := &c.Audit
	return &audit.Options{
		File: a.File, Key: []byte(a.Key), MaxSize: a.MaxSize, Keep: a.Keep, KeepFor: a.KeepFor,
		Rotate: a.OnFull == "rotate",
		Params: a.Params, Redact: a.Redact, Now: g.now,
		OnFault: func(err error) { g.opts.Logger.Error("audit", "error", err) },
	}
}

// retired is the audit of an earlier configuration, in which calls are that have not ended.
type retired struct {
	log       *audit.Log
	file, key string
}

// settleAudit ends the audit of an old state which the next one does not go on with: at once, or
// when the calls that are in it have ended.
func (g *Guard) settleAudit(old, next *state) error {
	switch {
	case old.log == nil:
		return nil
	case next != nil && old.log == next.log:
		next.log.Adjust(g.auditOptions(next.c))
		return nil
	case next != nil && !old.log.Retire():
		if !slices.ContainsFunc(g.retired, func(r retired) bool { return r.log == old.log }) {
			g.retired = append(g.retired, retired{old.log, old.c.Audit.File, old.c.Audit.Key})
		}
		return nil
	}
	if err := old.log.Close(); err != nil {
		return fmt.Errorf("guard: the audit: %w", err)
	}
	return nil
}

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
		s.g.opts.Logger.Warn(
			"SHADOW MODE: THE GUARD ENFORCES NOTHING BUT AUTHENTICATION; what it would refuse passes, and " +
				"is logged and audited as \"would deny\"")
	case s.trial != nil:
		s.g.opts.Logger.Warn(
			"SHADOW MODE: SOME POLICIES ARE NOT ENFORCED; what they would deny passes, and is logged and "+
				"audited as \"would deny\"",
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
		"principal", who.principal.Name(), "call", c.name(), "reason", r.text+": "+r.reason, "total", n,
		"not_logged", x.left.Swap(0))
}

// WouldRefuse is how many calls have passed, because of a mode "shadow", that would have been
// refused.
func (g *Guard) WouldRefuse() int64 { return g.shadowed.count.Load() }

// Ready returns why all calls are refused, in words for unauthenticated readers: the audit has no
// room. Nil: calls are decided about.
func (g *Guard) Ready() error {
	log := g.state.Load().log
	if log == nil {
		return nil
	}
	err := log.Ready()
	switch {
	case errors.Is(err, audit.ErrFull):
		return errors.New("calls are refused: the audit is full")
	case err != nil:
		return errors.New("calls are refused: the audit cannot be written")
	}
	return nil
}

// Readings yields what the guard measures when it is asked: the nonces that it remembers, unless
// Options.Nonces does, and what waits to be written to the audit. It is an iter.Seq; see
// Metrics.Read of package observe/metrics.
func (g *Guard) Readings(yield func(observe.Reading) bool) {
	if m, ok := g.nonces.(interface{ Len() int }); ok {
		if !yield(observe.Reading{Name: "farcall_nonces", Value: float64(m.Len())}) {
			return
		}
	}
	if log := g.state.Load().log; log != nil {
		yield(observe.Reading{Name: "farcall_audit_backlog_bytes", Value: float64(log.Backlog())})
	}
}
