package policy

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

// A Rule allows calls, or denies them.
type Rule struct {
	// Name is what explanations call it. Default: its place, allow[2] or deny[0].
	Name string
	Deny bool
	// Shadow takes the rule on trial: see [Set.Enforced].
	Shadow bool
	// Roles and Principals name the callers that it is for: one of either, compared exactly with the
	// roles and the Name of a Subject. Both empty: everybody.
	Roles, Principals []string
	// Calls are patterns of calls: see [Match].
	Calls []string
	// Destructive false takes of tools only those that say they are harmless, by readOnlyHint or
	// destructiveHint false; true takes only the others. Calls of no tool are not concerned by false,
	// and not taken by true.
	Destructive *bool
}

// A Text is policies in Cedar's language, and the name of what they come from.
type Text struct{ Name, Text string }

// A Source is what a [Set] is compiled from.
type Source struct {
	Rules []Rule
	// Local are patterns of calls that only callers on this machine may make. They count before
	// everything else.
	Local []string
	Cedar []Text
}

// A Problem is an error or a warning about a [Source].
type Problem struct {
	// Path is allow[0].calls[1], deny[0] or local[2], counting rules of either kind on their own, or
	// the name of a Text.
	Path, Message, Hint string
	Warning             bool // it works all the same
	// Line and Column are those in a Text, from 1; 0 elsewhere.
	Line, Column int
}

// A Subject is who calls. A Set keeps none. It must not change once it was used.
type Subject struct {
	// Name is ID, or ISSUER|ID.
	ID, Name, Kind, Method, Issuer string
	Roles, Scopes                  []string
	Claims                         map[string]any

	hash atomic.Uint64 // digest; 0: it is not computed yet
}

// A Query is a call that is to be decided.
type Query struct {
	// Subject nil is an anonymous one without roles.
	Subject *Subject
	// Name is the tool, the URI or the prompt; "" when the method is all there is.
	Method, Upstream, Name string
	// Arguments and Annotations are JSON, or nil.
	Arguments, Annotations []byte
	// Remote is an address, with or without a port.
	Transport, Remote string
	Local             bool // the caller is on this machine
	Now               time.Time
}

// A Decision is what became of a [Query]. It must not be changed.
type Decision struct {
	Allowed bool
	// Policies decided: names of rules, or ids of Cedar policies.
	Policies []string
	// Reason is a sentence for the operator. It has names, but no values of arguments or claims.
	Reason string
	// Local: it was refused because only callers on this machine may.
	Local bool
}

// A Set is compiled policies. Its methods may be called by any number of goroutines at once. A nil
// Set denies everything.
type Set struct {
	broken  bool
	list    []*compiled
	byID    map[types.PolicyID]*compiled
	local   []string
	asks    []string // the patterns with a question mark
	use     uses
	names   *Names       // nil: no policy looks at arguments
	read    types.Entity // Action::… is one of these two, with its own id
	call    types.Entity
	cache   *cache[Decision]     // nil: a decision depends on more than can be a key
	callers *cache[types.Entity] // nil: those have claims

	// Where a decision depends on more than can be a key, what the policies say that do not look at it
	// is remembered all the same, and only the others are asked each time.
	steady, moving []*compiled
	steadyUse      uses
	movingUse      uses
	said           *cache[outcome]
}

// compiled is one policy.
type compiled struct {
	id     types.PolicyID // its place in the list
	name   string
	alone  []string // its name
	forbid bool
	shadow bool // on trial
	policy *cedar.Policy
	rule   *Rule  // nil for one in Cedar's language
	place  string // of the rule: allow[0]
	at     int    // in the list
	use    uses
}

// split tells the policies apart with a word that can be remembered.
func (s *Set) split() {
	for _, c := range s.list {
		if c.use.values() {
			s.moving = append(s.moving, c)
		} else {
			s.steady = append(s.steady, c)
		}
	}
	s.steadyUse, s.movingUse, s.said = look(s.steady), look(s.moving), newCache[outcome](cacheEntries)
}

// Empty reports that there is neither a policy nor a pattern of local calls: everything is allowed.
func (s *Set) Empty() bool {
	return s != nil && !s.broken && len(s.list) == 0 && len(s.local) == 0
}

// AsksLocal reports whether a decision may depend on Query.Local.
func (s *Set) AsksLocal() bool { return len(s.local) > 0 || s.use.inContext("local") }

// Compile compiles policies. When one of the problems is no warning, the set denies
// everything. The time it takes is bounded: what is too large is a problem.
func Compile(src *Source) (*Set, []Problem) {
	var list problems
	s := &Set{
		byID: map[types.PolicyID]*compiled{},
		read: types.Entity{Parents: types.NewEntityUIDSet(types.NewEntityUID(typeAction, groupRead))},
		call: types.Entity{Parents: types.NewEntityUIDSet(types.NewEntityUID(typeAction, groupCall))},
	}
	src = cmp.Or(src, &Source{})
	names := map[string]string{}
	s.local = append(s.local, src.Local...)
	for i, pattern := range src.Local {
		list.pattern(place("local", i), pattern)
	}
	s.addRules(src.Rules, names, &list)
	for i := range src.Cedar {
		s.addText(&src.Cedar[i], names, &list)
	}
	s.broken = hasErrors(list)
	s.finish(&list)
	if !s.broken {
		s.check(src, &list)
	}
	return s, list
}

// OnTrial returns the names of the policies that Enforced leaves out.
func (s *Set) OnTrial() (names []string) {
	for _, c := range s.list {
		if c.shadow {
			names = append(names, c.name)
		}
	}
	return names
}

// finish prepares what decisions need of the list.
func (s *Set) finish(list *problems) {
	s.use = look(s.list)
	if !s.use.values() {
		s.cache = newCache[Decision](cacheEntries)
	} else {
		s.split()
	}
	if !s.use.of("claims") {
		s.callers = newCache[types.Entity](cacheEntries)
	}
	s.collect(list)
}

// Enforced returns the set without the policies on trial: rules with Shadow, and policies in
// Cedar's language with the annotation @mode("shadow"). It is s itself when there are none. A call
// that it allows and s does not is one that these policies would deny.
func (s *Set) Enforced() *Set {
	if !slices.ContainsFunc(s.list, func(c *compiled) bool { return c.shadow }) {
		return s
	}
	e := &Set{
		broken: s.broken, byID: map[types.PolicyID]*compiled{}, local: s.local, asks: s.asks,
		read: s.read, call: s.call,
	}
	for _, c := range s.list {
		if !c.shadow {
			enforced := *c
			enforced.at = len(e.list)
			e.list = append(e.list, &enforced)
			e.byID[c.id] = &enforced
		}
	}
	e.finish(new(problems)) // they are in those of s
	return e
}

func (s *Set) add(c *compiled) {
	c.id = types.PolicyID(place("", len(s.list)))
	c.alone = []string{c.name}
	c.at = len(s.list)
	c.use = usesOf(c.policy)
	s.list = append(s.list, c)
	s.byID[c.id] = c
}

// Unknown says what is not known of a [Query].
type Unknown struct {
	Arguments, Annotations       bool
	Roles, Scopes, Claims, Local bool
}

// An opinion is the result of one policy for a query that is known in part.
type opinion uint8

const (
	silent opinion = iota // it does not hold
	holds
	fails // it cannot be evaluated
	open  // that depends on what is not known
)

// Consider decides a query that is known in part: decided is false when what is not
// known could change the decision.
func (s *Set) Consider(q *Query, u *Unknown) (d Decision, decided bool) {
	if *u == (Unknown{}) {
		return s.Decide(q), true
	}
	q = withSubject(q)
	known := *q
	if u.Arguments {
		known.Arguments = nil
	}
	call := CallName(q.Method, q.Upstream, q.Name)
	forHere := s != nil && slices.ContainsFunc(s.local, func(p string) bool { return Match(p, call) })
	switch {
	case forHere && u.Local:
		return Decision{}, false
	case s == nil || s.broken || len(s.list) == 0, callFault(q) != "", forHere && !q.Local:
		return s.decide(&known).Decision, true // no policy is asked
	}
	w, r, err := s.request(&known, call, &s.use)
	if err != nil {
		return Decision{Reason: "denied: " + err.Error()}, true
	}
	w.principal.Attributes = u.open(w.principal.Attributes,
		map[types.String]bool{"roles": u.Roles, "scopes": u.Scopes, "claims": u.Claims})
	return s.survey(u, eval.Env{
		Principal: r.Principal, Action: r.Action, Resource: r.Resource, Entities: w,
		Context: u.open(r.Context,
			map[types.String]bool{"arguments": u.Arguments, "annotations": u.Annotations, "local": u.Local}),
	}, "denied: no policy allows "+show(call)+" for "+show(q.Subject.Name))
}

// survey asks all policies, and judges what they say. none is the reason when no policy says
// anything.
func (s *Set) survey(u *Unknown, env eval.Env, none string) (d Decision, decided bool) {
	v := &verdict{}
	var permits, forbids bool // there is one that is open
	for _, c := range s.list {
		switch u.opinion(c, env) {
		case silent:
		case fails:
			v.failed, v.failures = append(v.failed, c), append(v.failures, "it looks at what is not there")
		case holds:
			if c.forbid {
				v.forbids = append(v.forbids, c)
			} else {
				v.permits = append(v.permits, c)
			}
		case open:
			permits, forbids = permits || !c.forbid, forbids || c.forbid
		}
	}
	v.judge()
	switch {
	case !v.Allowed && v.Reason != "": // a policy denies it, whatever the others say
	case v.Allowed && forbids, !v.Allowed && permits:
		return Decision{}, false
	case !v.Allowed:
		v.Reason = none
	}
	return v.Decision, true
}

// open replaces the members of a record that are not known.
func (u *Unknown) open(r types.Record, names map[types.String]bool) types.Record {
	m := r.Map()
	if m == nil {
		m = types.RecordMap{}
	}
	for name, unknown := range names {
		if unknown {
			m[name] = eval.Variable(name)
		}
	}
	return types.NewRecord(m)
}

// opinion asks one policy.
func (u *Unknown) opinion(c *compiled, env eval.Env) opinion {
	tree := *(*ast.Policy)(c.policy.AST())
	if u.Roles && c.use.in || c.use.context {
		// the principal may be in any role, or the context is compared as a whole
		if tree.Conditions = nil; u.Roles {
			tree.Principal = ast.ScopeTypeAll{}
		}
		if _, kept := eval.PartialPolicy(env, &tree); kept {
			return open
		}
		return silent
	}
	if !c.forbid {
		return opinionOf(env, &tree)
	}
	// one that is open may fail, whatever is after it, and then the policy denies
	o, conditions := holds, tree.Conditions
	for i := 0; o == holds && i <= len(conditions); i++ {
		tree.Conditions = conditions[:i]
		o = opinionOf(env, &tree)
	}
	return o
}

// opinionOf is that of a policy as the engine has it.
func opinionOf(env eval.Env, p *ast.Policy) opinion {
	rest, kept := eval.PartialPolicy(env, p)
	switch {
	case !kept:
		return silent
	case len(rest.Conditions) == 0:
		return holds
	}
	if _, failed := eval.ToPartialError(rest.Conditions[0].Body); failed {
		return fails
	}
	return open
}
