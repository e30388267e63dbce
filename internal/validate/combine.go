package validate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

// combined judges what a node asks of the value at an offset by other nodes.
func (r *run) combined(n *node, i int) bool {
	ok := r.references(n.combined, i)
	if r.goesOn(ok) {
		ok = r.choices(n.combined, i) && ok
	}
	if r.goesOn(ok) {
		ok = r.unevaluated(n, i) && ok
	}
	return ok
}

// references judges what must fit without a choice: $ref and its like, allOf,
// and then or else.
func (r *run) references(c *combination, i int) bool {
	ok := r.every(c.refs, i)
	for k := range c.dynamic {
		if r.goesOn(ok) {
			_, good := r.check(r.resolve(&c.dynamic[k]), i)
			ok = ok && good
		}
	}
	if r.goesOn(ok) {
		ok = r.every(c.all, i) && ok
	}
	if c.cond == nil || !r.goesOn(ok) {
		return ok
	}
	return r.branch(c, i) && ok
}

func (r *run) every(nodes []*node, i int) bool {
	ok := true
	for _, n := range nodes {
		if _, good := r.check(n, i); !good {
			if ok = false; r.brief {
				return false
			}
		}
	}
	return ok
}

// choices judges anyOf, oneOf and not.
func (r *run) choices(c *combination, i int) bool {
	ok := c.any == nil || r.anyOf(c.any, i)
	if c.one != nil && r.goesOn(ok) {
		ok = r.oneOf(c.one, i) && ok
	}
	if c.not != nil && r.goesOn(ok) {
		switch r.try(c.not, i) {
		case yes:
			ok = r.fail("not", func() string { return `is what the schema excludes with "not"` })
		case maybe:
			r.unsure = true
		}
	}
	return ok
}

// branch judges then or else. When it cannot tell which of them counts, a value fails that fits
// neither.
func (r *run) branch(c *combination, i int) bool {
	n := c.els
	switch r.try(c.cond, i) {
	case yes:
		n = c.then
	case maybe:
		if r.unsure = true; n == nil || c.then == nil || r.try(n, i) != no {
			return true
		}
		if r.try(c.then, i) != no {
			return true
		}
	}
	if n == nil {
		return true
	}
	_, ok := r.check(n, i)
	return ok
}

// resolve finds the target of a dynamic reference.
func (r *run) resolve(d *dynamicRef) *node {
	for _, res := range r.scope {
		if n := res.dynamic[d.name]; n != nil {
			return n
		}
	}
	return d.start
}

func (r *run) anyOf(nodes []*node, i int) bool {
	perhaps := false
	for _, n := range nodes {
		switch r.try(n, i) {
		case yes:
			return true
		case maybe:
			perhaps = true
		}
	}
	if perhaps {
		r.unsure = true
		return true
	}
	return r.explain(nodes, "anyOf", i)
}

func (r *run) oneOf(nodes []*node, i int) bool {
	first, perhaps := -1, false
	for k, n := range nodes {
		f := r.try(n, i)
		perhaps = perhaps || f == maybe
		if f != yes {
			continue
		}
		if first >= 0 {
			return r.fail("oneOf", func() string {
				return fmt.Sprintf("fits alternatives %d and %d, must fit exactly one", first+1, k+1)
			})
		}
		first = k
	}
	if perhaps {
		r.unsure = true
		return true
	}
	return first >= 0 || r.explain(nodes, "oneOf", i)
}

// explain notes why a value fits none of the alternatives. When the type of the
// value, or what tells the alternatives apart, leaves one of them, its problems
// are what matters. It returns false.
func (r *run) explain(nodes []*node, keyword string, i int) bool {
	if r.quiet || r.err != nil {
		return false
	}
	kind := kindOf[r.value[i]]
	var want kinds
	var candidates []*node
	for _, n := range nodes {
		k := n.accepts(few)
		want |= k
		if k&kind != 0 || kind == number && k&integer != 0 {
			candidates = append(candidates, n)
		}
	}
	switch len(candidates) {
	case 0:
		return r.fail(keyword, func() string { return "got " + kind.names() + ", want " + want.names() })
	case 1:
		r.check(candidates[0], i)
		return false
	}
	if r.shallow {
		return r.fail(keyword, func() string {
			return fmt.Sprintf("fits none of %d alternatives", len(candidates))
		})
	}
	if values := choicesOf(candidates); values != nil {
		return r.fail(keyword, func() string { return r.excerpt(i) + " is not one of " + list(values) })
	}
	return r.compare(candidates, keyword, i)
}

// choicesOf returns the values that the nodes let through, nil when they say
// anything else.
func choicesOf(nodes []*node) (values [][]byte) {
	for _, n := range nodes {
		if n.alias != nil {
			n = n.alias
		}
		if n.enum == nil || n.combined != nil || n.text != nil || n.number != nil || n.object != nil ||
			n.array != nil {
			return nil
		}
		values = append(values, n.enum.order...)
	}
	return values
}

// excerpt repeats a value.
func (r *run) excerpt(i int) string {
	end, _ := scan.Value(r.value, i, -1)
	return clip(r.value[i:end])
}

// shown is how many alternatives a message goes into.
const shown = 4

// compare notes the problems of the only alternative that has no fixed value
// against it, or else the first of each.
func (r *run) compare(nodes []*node, keyword string, i int) bool {
	var (
		likely  []problem
		many    bool
		details []string
	)
	for k, n := range nodes[:min(len(nodes), 4*shown)] {
		sub := run{
			value: r.value, steps: r.steps, depth: r.depth, room: r.room, shallow: true,
			dynamic: r.dynamic, scope: r.scope,
		}
		sub.check(n, i)
		if r.steps = sub.steps; sub.err != nil {
			_, ok := r.abort(sub.err)
			return ok
		}
		if k < shown && len(sub.problems) > 0 {
			first := sub.problems[0]
			first.path = slices.Clone(first.path)
			details = append(details, fmt.Sprintf("; %d: %s", k+1, first.finish().Message))
		}
		if !slices.ContainsFunc(sub.problems, fixed) {
			many = likely != nil
			likely = sub.problems
		}
	}
	if likely != nil && !many {
		fit := min(len(likely), r.room-len(r.problems))
		r.problems = append(r.problems, likely[:fit]...)
		if fit < len(likely) {
			r.more, r.brief = true, true
		}
		return false
	}
	return r.fail(keyword, func() string {
		return fmt.Sprintf("fits none of %d alternatives", len(nodes)) + strings.Join(details, "")
	})
}

// fixed reports whether a problem is that of another value.
func fixed(p problem) bool { return p.keyword == "const" || p.keyword == "enum" }

// accepts returns the types that a node lets through at first sight; it follows
// so many references.
func (n *node) accepts(hops int) kinds {
	if n.alias != nil {
		n = n.alias
	}
	k := n.types
	if n.never {
		return 0
	}
	if n.enum != nil {
		k &= n.enum.accepted
	}
	if n.combined == nil || hops == 0 {
		return k
	}
	for _, target := range n.combined.refs {
		k &= target.accepts(hops - 1)
	}
	for _, target := range n.combined.all {
		k &= target.accepts(hops - 1)
	}
	return k
}
