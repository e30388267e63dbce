package policy

import (
	"hash/maphash"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
)

// verdict is a decision and how it came about.
type verdict struct {
	Decision
	outcome
	world   *world
	request cedar.Request
}

// outcome is what policies say of a call.
type outcome struct {
	permits  []*compiled // that hold
	forbids  []*compiled
	failed   []*compiled // that could not be evaluated
	failures []string    // why, for each
}

// and is what both say, in the order of the list.
func (o *outcome) and(p *outcome) outcome {
	var both outcome
	both.permits, _ = merge(o.permits, p.permits, nil, nil)
	both.forbids, _ = merge(o.forbids, p.forbids, nil, nil)
	both.failed, both.failures = merge(o.failed, p.failed, o.failures, p.failures)
	return both
}

// merge puts two lists into one, and texts with them, one for each, if there are any.
func merge(a, b []*compiled, textA, textB []string) (list []*compiled, texts []string) {
	switch {
	case len(b) == 0:
		return a, textA
	case len(a) == 0:
		return b, textB
	}
	for len(a)+len(b) > 0 {
		from, text := &a, &textA
		if len(a) == 0 || len(b) > 0 && b[0].at < a[0].at {
			from, text = &b, &textB
		}
		list, *from = append(list, (*from)[0]), (*from)[1:]
		if len(*text) > 0 {
			texts, *text = append(texts, (*text)[0]), (*text)[1:]
		}
	}
	return list, texts
}

// Decide decides a call. Its reason is short. Decisions are remembered as long as no policy looks
// at claims, arguments, the time or the address.
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

// Remembers reports whether decisions are remembered: they depend on the subject and the call
// alone.
func (s *Set) Remembers() bool { return s != nil && s.cache != nil }

func withSubject(q *Query) *Query {
	if q.Subject != nil {
		return q
	}
	c := *q
	c.Subject = &Subject{ID: anonymousName, Name: anonymousName, Kind: anonymousName, Method: "none"}
	return &c
}

// asked is the policies that may be for a caller.
type asked struct {
	list    []*compiled
	subject *Subject // nil: all
}

// All implements cedar.PolicyIterator, in order. Rules that are for others are not asked: it would
// take the engine much longer to find that out.
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
	if i := slices.IndexFunc(s.local, func(p string) bool { return Match(p, call) }); i >= 0 &&
		!q.Local {
		v.Local, v.Policies = true, []string{place("local", i)}
		v.Reason = "denied: " + place("local", i) + " is for callers on this machine only"
		return v
	}
	if len(s.list) == 0 {
		v.Allowed, v.Reason = true, "allowed: there is no policy but that of local calls"
		return v
	}
	if err := s.outcomeOf(v, q, call); err != nil {
		v.Reason = "denied: " + err.Error()
		return v
	}
	v.judge()
	if v.Reason == "" {
		v.Reason = "denied: no policy allows " + show(call) + " for " + show(q.Subject.Name)
	}
	return v
}

// outcomeOf asks all policies, or remembers what those have said with a word that does not depend
// on the call's arguments and the like.
func (s *Set) outcomeOf(v *verdict, q *Query, call string) (err error) {
	if s.said == nil {
		if v.world, v.request, err = s.request(q, call, &s.use); err == nil {
			v.outcome = s.ask(s.list, v, q.Subject)
		}
		return err
	}
	h := s.said.hash(q, &s.steadyUse)
	steady, known := s.said.get(h, q, &s.steadyUse)
	u := &s.movingUse
	if !known {
		u = &s.use
	}
	if v.world, v.request, err = s.request(q, call, u); err != nil {
		return err
	}
	if !known {
		steady = s.ask(s.steady, v, q.Subject)
		s.said.put(h, q, &s.steadyUse, steady)
	}
	moving := s.ask(s.moving, v, q.Subject)
	v.outcome = steady.and(&moving)
	return nil
}

// ask runs the engine.
func (s *Set) ask(list []*compiled, v *verdict, p *Subject) (o outcome) {
	_, found := cedar.Authorize(&asked{list, p}, v.world, v.request)
	for _, r := range found.Reasons {
		if c := s.byID[r.PolicyID]; c.forbid {
			o.forbids = append(o.forbids, c)
		} else {
			o.permits = append(o.permits, c)
		}
	}
	for _, e := range found.Errors {
		o.failed = append(o.failed, s.byID[e.PolicyID])
		o.failures = append(o.failures, failure(e.Message))
	}
	return o
}

// judge says what follows. It leaves the reason to decide when no policy says anything.
func (v *verdict) judge() {
	broken := slices.IndexFunc(v.failed, func(c *compiled) bool { return c.forbid })
	switch {
	case len(v.forbids) > 0:
		v.Policies = names(v.forbids)
		v.Reason = "denied by " + strings.Join(v.Policies, ", ")
	case broken >= 0:
		v.Policies = names(v.failed[broken : broken+1])
		v.Reason = "denied: " + v.Policies[0] + " forbids something, and cannot be evaluated: " +
			v.failures[broken]
	case len(v.permits) > 0:
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

// failure is the message of an error of evaluation. Those that quote a value, which may be an
// argument's, do without.
func failure(message string) string {
	for _, safe := range []string{
		"type error: ", "integer overflow", "function does not exist",
		"wrong number of arguments",
	} {
		if strings.HasPrefix(message, safe) {
			return show(message)
		}
	}
	for _, safe := range []string{
		"does not have the attribute", "does not have the tag",
		"does not exist",
	} {
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

// Decisions are remembered up to a number, and of calls that are not long.
const (
	cacheEntries = 10_000
	cacheShards  = 16
	cacheLength  = 1024
)

// A cache remembers decisions, or what they need, by who calls and what. Entries are compared in
// full: the hash only finds them.
type cache[V any] struct {
	seed   maphash.Seed
	room   int // of a shard
	shards [cacheShards]shard[V]
}

type shard[V any] struct {
	mu      sync.RWMutex
	entries map[uint64]*entry[V]
}

type entry[V any] struct {
	subject                Subject // without claims
	method, upstream, name string
	transport, annotations string
	local                  bool
	value                  V
}

func newCache[V any](size int) *cache[V] {
	c := &cache[V]{seed: maphash.MakeSeed(), room: size / cacheShards}
	for i := range c.shards {
		c.shards[i].entries = map[uint64]*entry[V]{}
	}
	return c
}

// hash is over what a decision can depend on.
func (c *cache[V]) hash(q *Query, u *uses) uint64 {
	h := q.Subject.digest()
	for _, s := range [...]string{q.Method, q.Upstream, q.Name} {
		h = (h ^ maphash.String(c.seed, s)) * 0x9e3779b97f4a7c15
	}
	if u.transport {
		h = (h ^ maphash.String(c.seed, q.Transport)) * 0x9e3779b97f4a7c15
	}
	if u.annotations {
		h = (h ^ maphash.Bytes(c.seed, q.Annotations)) * 0x9e3779b97f4a7c15
	}
	if q.Local {
		h++
	}
	return h ^ h>>32
}

// subjectSeed is that of the hashes of subjects, which outlive a cache.
var subjectSeed = maphash.MakeSeed()

// digest is a hash of everything but the claims. It is computed once: a subject calls again and
// again.
func (p *Subject) digest() uint64 {
	if h := p.hash.Load(); h != 0 {
		return h
	}
	h := uint64(1)
	for _, s := range [...]string{p.ID, p.Name, p.Kind, p.Method, p.Issuer} {
		h = (h ^ maphash.String(subjectSeed, s)) * 0x9e3779b97f4a7c15
	}
	for _, s := range p.Roles {
		h = (h ^ maphash.String(subjectSeed, s)) * 0x9e3779b97f4a7c15
	}
	for _, s := range p.Scopes {
		h = (h ^ maphash.String(subjectSeed, s)) * 0xc2b2ae3d27d4eb4f
	}
	p.hash.Store(h)
	return h
}

func (e *entry[V]) is(q *Query, u *uses) bool {
	p, k := q.Subject, &e.subject
	return e.method == q.Method && e.name == q.Name && e.upstream == q.Upstream &&
		e.local == q.Local &&
		p.Name == k.Name && p.ID == k.ID && p.Kind == k.Kind && p.Method == k.Method &&
		p.Issuer == k.Issuer &&
		slices.Equal(p.Roles, k.Roles) && slices.Equal(p.Scopes, k.Scopes) &&
		(!u.transport || e.transport == q.Transport) &&
		(!u.annotations || e.annotations == string(q.Annotations))
}

// get returns what is known of a query.
func (c *cache[V]) get(h uint64, q *Query, u *uses) (v V, ok bool) {
	s := &c.shards[h%cacheShards]
	s.mu.RLock()
	e := s.entries[h]
	s.mu.RUnlock()
	if e == nil || !e.is(q, u) {
		return v, false
	}
	return e.value, true
}

// put remembers what is known of a query; any other makes room for it. Strings are copied: those of
// a call are often parts of its message.
func (c *cache[V]) put(h uint64, q *Query, u *uses, v V) {
	if len(q.Method)+len(q.Upstream)+len(q.Name)+len(q.Annotations) > cacheLength {
		return
	}
	p := q.Subject
	e := &entry[V]{
		subject: Subject{
			ID: strings.Clone(p.ID), Name: strings.Clone(p.Name), Kind: strings.Clone(p.Kind),
			Method: strings.Clone(p.Method),
			Issuer: strings.Clone(p.Issuer), Roles: slices.Clone(p.Roles), Scopes: slices.Clone(p.Scopes),
		},
		method: strings.Clone(q.Method), upstream: strings.Clone(q.Upstream), name: strings.Clone(q.Name),
		local: q.Local, value: v,
	}
	if u.transport {
		e.transport = strings.Clone(q.Transport)
	}
	if u.annotations {
		e.annotations = string(q.Annotations)
	}
	s := &c.shards[h%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.entries[h]; !found && len(s.entries) >= c.room {
		for old := range s.entries {
			delete(s.entries, old)
			break
		}
	}
	s.entries[h] = e
}
