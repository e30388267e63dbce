package policy

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

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
	w.principal.Attributes = u.open(w.principal.Attributes, map[types.String]bool{"roles": u.Roles, "scopes": u.Scopes, "claims": u.Claims})
	return s.survey(u, eval.Env{
		Principal: r.Principal, Action: r.Action, Resource: r.Resource, Entities: w,
		Context: u.open(r.Context, map[types.String]bool{"arguments": u.Arguments, "annotations": u.Annotations, "local": u.Local}),
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
	if u.Roles && c.use.in || c.use.context { // the principal may be in any role, or the context is compared as a whole
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
	o, conditions := holds, tree.Conditions // one that is open may fail, whatever is after it, and then the policy denies
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
