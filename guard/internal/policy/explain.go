package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// maxNearest bounds what an explanation lists.
const maxNearest = 3

// Explain decides a call as Decide does, and says in words how it came to that. It takes longer.
func (s *Set) Explain(q *Query) Decision {
	q = withSubject(q)
	v := s.decide(q)
	if v.world == nil {
		return v.Decision // nothing was asked
	}
	call := CallName(q.Method, q.Upstream, q.Name)
	if w, r, err := s.request(q, call, &s.use); err == nil { // more may be asked than was
		v.world, v.request = w, r
	}
	var b strings.Builder
	who := describe(q.Subject)
	call = show(call)
	switch {
	case v.Allowed:
		b.WriteString("allowed: " + because(v.permits, q.Subject) + " allows " + call + " for " + who)
	case len(v.forbids) > 0:
		b.WriteString("denied: " + because(v.forbids, q.Subject) + " denies " + call + " for " + who)
		if permits := s.permits(v); len(permits) > 0 {
			b.WriteString("; " + labels(permits) + " would allow it, but what denies counts first")
		}
	case len(v.Policies) > 0:
		b.WriteString(v.Reason)
	default:
		b.WriteString("denied: no policy allows " + call + " for " + who)
		if near := s.near(q, v); len(near) > 0 {
			b.WriteString("; nearest: " + strings.Join(near, "; "))
		}
	}
	for i, c := range v.failed {
		if !c.forbid {
			b.WriteString("; " + c.label() + " could not be evaluated and allows nothing: " + v.failures[i])
		}
	}
	v.Reason = b.String()
	return v.Decision
}

// permits are the policies that would allow what others deny.
func (s *Set) permits(v *verdict) (list []*compiled) {
	all := slices.DeleteFunc(slices.Clone(s.list), func(c *compiled) bool { return c.forbid })
	_, found := cedar.Authorize(&asked{list: all}, v.world, v.request)
	for _, r := range found.Reasons {
		list = append(list, s.byID[r.PolicyID])
	}
	return list
}

// describe is alice (roles dev, ops).
func describe(p *Subject) string {
	name := show(p.Name)
	if p.Kind != "user" && p.Kind != p.Name && p.Kind != "" {
		name = show(p.Kind) + " " + name
	}
	if len(p.Roles) == 0 {
		return name + " (no roles)"
	}
	return name + " (roles " + show(strings.Join(p.Roles, ", ")) + ")"
}

func labels(list []*compiled) string {
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c.label()
	}
	return strings.Join(out, ", ")
}

// because names policies, and by which role or name the first concerns the caller.
func because(list []*compiled, p *Subject) string {
	text := labels(list)
	r := list[0].rule
	if r == nil || len(list) > 1 {
		return text
	}
	for _, role := range r.Roles {
		if slices.Contains(p.Roles, role) {
			return text + ", by the role " + show(role) + ","
		}
	}
	return text
}

// near says what would have been needed.
func (s *Set) near(q *Query, v *verdict) (near []string) {
	call := CallName(q.Method, q.Upstream, q.Name)
	for _, c := range s.list {
		if c.forbid || len(near) == maxNearest || slices.Contains(v.failed, c) {
			continue
		}
		if c.rule != nil {
			if !matchAny(c.rule.Calls, call) {
				continue
			}
			if concerns(c.rule, q.Subject) {
				near = append(near,
					"rule "+c.label()+" is not for this tool, by what it says of harm (destructive)")
			} else {
				near = append(near, "rule "+c.label()+" needs "+needs(c.rule))
			}
			continue
		}
		tree := *c.policy.AST()
		if len(tree.Conditions) == 0 {
			continue
		}
		tree.Conditions = nil
		scope := &asked{list: []*compiled{{id: c.id, policy: cedar.NewPolicyFromAST(&tree)}}}
		if ok, _ := cedar.Authorize(scope, v.world, v.request); ok {
			near = append(near,
				"policy "+c.label()+" is for it, but what it says after when or unless does not hold")
		}
	}
	if len(near) == 0 {
		near = s.others(q)
	}
	return near
}

// concerns reports whether a rule is for a caller, as the compiled one does.
func concerns(r *Rule, p *Subject) bool {
	return len(r.Roles)+len(r.Principals) == 0 || slices.Contains(r.Principals, p.Name) ||
		slices.ContainsFunc(r.Roles, func(role string) bool { return slices.Contains(p.Roles, role) })
}

// needs is role ops or dev, or the principal ci.
func needs(r *Rule) string {
	var parts []string
	if len(r.Roles) > 0 {
		parts = append(parts, "role "+show(strings.Join(r.Roles[:min(len(r.Roles), maxNearest)], " or ")))
	}
	if len(r.Principals) > 0 {
		parts = append(parts,
			"principal "+show(strings.Join(r.Principals[:min(len(r.Principals), maxNearest)], " or ")))
	}
	return strings.Join(parts, ", or ")
}

// others says which calls the caller's rules are for.
func (s *Set) others(q *Query) (near []string) {
	for _, c := range s.list {
		if c.rule != nil && !c.forbid && concerns(c.rule, q.Subject) && len(near) < maxNearest {
			near = append(near,
				"rule "+c.label()+" allows "+
					show(strings.Join(c.rule.Calls[:min(len(c.rule.Calls), maxNearest)], ", ")))
		}
	}
	return near
}
