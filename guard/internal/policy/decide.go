package policy

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// verdict is a decision and how it came about.
type verdict struct {
	Decision
	world    *world
	request  cedar.Request
	permits  []*compiled // that hold
	forbids  []*compiled
	failed   []*compiled // that could not be evaluated
	failures []string    // why, for each
}

// Decide decides a call. Its reason is short. Decisions are remembered as long as no policy looks at claims, arguments,
// the time or the address.
func (s *Set) Decide(q *Query) Decision {
	q = withSubject(q)
	if s == nil || s.cache == nil {
		return s.decide(q).Decision
	}
	h := s.cache.hash(q, &s.use)
	if d, ok := s.cache.get(h, q, &s.use); ok {
		return d
	}
	d := s.decide(q).Decision
	s.cache.put(h, q, &s.use, d)
	return d
}

func withSubject(q *Query) *Query {
	if q.Subject != nil {
		return q
	}
	c := *q
	c.Subject = &Subject{ID: anonymousName, Name: anonymousName, Kind: anonymousName, Method: "none"}
	return &c
}

// asked is the policies that may be for somebody.
type asked struct {
	list    []*compiled
	subject *Subject // nil: all
}

// All implements cedar.PolicyIterator, in order. Rules that are for others are not asked: it would take the
// engine much longer to find that out.
func (a *asked) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, c := range a.list {
			if c.rule != nil && a.subject != nil && !concerns(c.rule, a.subject) {
				continue
			}
			if !yield(c.id, c.policy) {
				return
			}
		}
	}
}

// decide asks every policy.
func (s *Set) decide(q *Query) *verdict {
	v := &verdict{}
	switch {
	case s == nil:
		v.Reason = "denied: there are no policies to ask"
		return v
	case s.broken:
		v.Reason = "denied: the policies have errors; see farcall check"
		return v
	case s.Empty():
		v.Allowed, v.Reason = true, "allowed: there is no policy"
		return v
	}
	if f := callFault(q); f != "" {
		v.Reason = "denied: " + f
		return v
	}
	call := CallName(q.Method, q.Upstream, q.Name)
	if i := slices.IndexFunc(s.local, func(p string) bool { return Match(p, call) }); i >= 0 && !q.Local {
		v.Local, v.Policies = true, []string{place("local", i)}
		v.Reason = "denied: " + place("local", i) + " is for callers on this machine only"
		return v
	}
	if len(s.list) == 0 {
		v.Allowed, v.Reason = true, "allowed: there is no policy but that of local calls"
		return v
	}
	var err error
	if v.world, v.request, err = s.request(q, call); err != nil {
		v.Reason = "denied: " + err.Error()
		return v
	}
	s.authorize(v, q.Subject)
	if v.Reason == "" {
		v.Reason = "denied: no policy allows " + show(call) + " for " + show(q.Subject.Name)
	}
	return v
}

// authorize runs the engine and judges what it found. It leaves the reason to decide when no policy says anything.
func (s *Set) authorize(v *verdict, p *Subject) {
	ok, found := cedar.Authorize(&asked{s.list, p}, v.world, v.request)
	for _, r := range found.Reasons {
		if c := s.byID[r.PolicyID]; c.forbid {
			v.forbids = append(v.forbids, c)
		} else {
			v.permits = append(v.permits, c)
		}
	}
	broken := -1
	for _, e := range found.Errors {
		c := s.byID[e.PolicyID]
		if c.forbid && broken < 0 {
			broken = len(v.failed)
		}
		v.failed = append(v.failed, c)
		v.failures = append(v.failures, failure(e.Message))
	}
	switch {
	case len(v.forbids) > 0:
		v.Policies = names(v.forbids)
		v.Reason = "denied by " + strings.Join(v.Policies, ", ")
	case broken >= 0:
		v.Policies = names(v.failed[broken : broken+1])
		v.Reason = "denied: " + v.Policies[0] + " forbids something, and cannot be evaluated: " + v.failures[broken]
	case bool(ok):
		v.Allowed, v.Policies = true, names(v.permits)
		v.Reason = "allowed by " + strings.Join(v.Policies, ", ")
	}
}

func names(list []*compiled) []string {
	if len(list) == 1 {
		return list[0].alone
	}
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c.name
	}
	return out
}

// failure is the message of an error of evaluation. Those that quote a value, which may be an argument's, do without.
func failure(message string) string {
	for _, safe := range []string{"type error: ", "integer overflow", "function does not exist", "wrong number of arguments"} {
		if strings.HasPrefix(message, safe) {
			return show(message)
		}
	}
	for _, safe := range []string{"does not have the attribute", "does not have the tag", "does not exist"} {
		if before, after, found := strings.Cut(message, safe); found {
			if strings.HasPrefix(before, "record") {
				before = ""
			}
			return show(before + safe + after)
		}
	}
	return "a value is not what a function takes"
}

// maxShown bounds what explanations quote.
const maxShown = 200

// show writes a name so that it can be in a line of a log.
func show(s string) string {
	short := s
	if len(short) > maxShown {
		short = strings.ToValidUTF8(short[:maxShown], "") + "…"
	}
	for _, r := range short {
		if !strconv.IsPrint(r) {
			return strconv.Quote(short)
		}
	}
	return short
}
