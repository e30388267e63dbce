package validate

import (
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
)

// unevaluated judges what no other keyword has looked at.
func (r *run) unevaluated(n *node, i int) bool {
	switch c := n.combined; {
	case c.otherProperties != nil && r.value[i] == '{':
		return r.unevaluatedProperties(n, i)
	case c.otherItems != nil && r.value[i] == '[':
		return r.unevaluatedItems(n, i)
	}
	return true
}

// applied lists the nodes that the value at an offset fits and that look into
// it: n and, through what it combines, others. Each must fit already, but for
// the alternatives, which are tried again.
func (r *run) applied(nodes []*node, n *node, i int) []*node {
	if n.alias != nil {
		n = n.alias
	}
	if r.dynamic && n.resource != r.scope[len(r.scope)-1] {
		r.scope = append(r.scope, n.resource)
		defer func() { r.scope = r.scope[:len(r.scope)-1] }()
	}
	if r.steps--; r.steps < 0 {
		r.abort(ErrTooComplex)
		return nodes
	}
	nodes = append(nodes, n)
	if n.object != nil && r.value[i] == '{' {
		for k := range n.object.needs {
			d := &n.object.needs[k]
			if d.node != nil && r.hasMember(i, n.object.props[d.property].name) {
				nodes = r.applied(nodes, d.node, i)
			}
		}
	}
	c := n.combined
	if c == nil {
		return nodes
	}
	for _, target := range c.refs {
		nodes = r.applied(nodes, target, i)
	}
	for k := range c.dynamic {
		nodes = r.applied(nodes, r.resolve(&c.dynamic[k]), i)
	}
	for _, target := range c.all {
		nodes = r.applied(nodes, target, i)
	}
	nodes = r.appliedWhere(nodes, c.any, i)
	nodes = r.appliedWhere(nodes, c.one, i)
	if c.cond == nil {
		return nodes
	}
	f := r.try(c.cond, i)
	if f == maybe { // either may count
		r.unsure = true
		return r.appliedWhere(nodes, []*node{c.cond, c.then, c.els}, i)
	}
	branch := c.els
	if f == yes {
		nodes, branch = r.applied(nodes, c.cond, i), c.then
	}
	if branch != nil {
		nodes = r.applied(nodes, branch, i)
	}
	return nodes
}

func (r *run) appliedWhere(nodes, alternatives []*node, i int) []*node {
	for _, n := range alternatives {
		if n != nil && r.may(n, i) {
			nodes = r.applied(nodes, n, i)
		}
	}
	return nodes
}

// each goes through the members of the object at an offset: the name, where the
// value is and where it ends. The object is valid.
func (r *run) each(i int, yield func(name []byte, at, end int) bool) {
	b := r.value
	for {
		i = scan.Space(b, i+1)
		if b[i] != '"' {
			return
		}
		keyEnd, _, _ := scan.String(b, i)
		at, _ := scan.Colon(b, keyEnd)
		end, _ := scan.Value(b, at, -1)
		if _, ok := r.spend(0, 32+end-i); !ok || !yield(scan.Unquote(b[i:keyEnd]), at, end) {
			return
		}
		if i = scan.Space(b, end); b[i] != ',' {
			return
		}
	}
}

func (r *run) hasMember(i int, name string) (found bool) {
	r.each(i, func(key []byte, _, _ int) bool {
		found = string(key) == name
		return !found
	})
	return found
}

// unevaluatedProperties judges the members that no other keyword has looked at.
func (r *run) unevaluatedProperties(n *node, i int) bool {
	c := n.combined
	nodes := r.applied(nil, n, i)
	ok := true
	r.each(i, func(name []byte, at, _ int) bool {
		if slices.ContainsFunc(nodes, func(by *node) bool { return r.knows(by, by == n, name) }) {
			return true
		}
		if c.otherProperties.never {
			r.failUnknown(n.object, "unevaluatedProperties", name)
			ok = false
		} else if _, good := r.inside(c.otherProperties, at, name); !good {
			ok = false
		}
		return ok || !r.brief
	})
	return ok && r.err == nil
}

// knows reports whether a node has judged the member of that name.
func (r *run) knows(n *node, self bool, name []byte) bool {
	if !self && n.combined != nil && n.combined.otherProperties != nil {
		return true
	}
	if n.open {
		r.unsure = true
		return true
	}
	o := n.object
	if o == nil {
		return false
	}
	if o.extra != nil {
		return true
	}
	if k := o.lookup(name, 0); k >= 0 && o.props[k].node != nil {
		return true
	}
	return slices.ContainsFunc(o.patterns, func(p patternProperty) bool {
		return r.match(p.pattern, name)
	})
}

// unevaluatedItems judges the items that no other keyword has looked at.
func (r *run) unevaluatedItems(n *node, i int) bool {
	var (
		judged int // items at the front
		search []*node
	)
	for _, by := range r.applied(nil, n, i) {
		if r.knowsItems(by, by == n) {
			return true
		}
		a := by.array
		if a == nil {
			continue
		}
		judged = max(judged, len(a.prefix))
		if a.contains != nil && a.contains.evaluates {
			search = append(search, a.contains.node)
		}
	}
	ok := true
	for index := 0; ; index++ {
		if i = scan.Space(r.value, i+1); index == 0 && r.value[i] == ']' {
			return ok
		}
		end, _ := scan.Value(r.value, i, -1)
		if _, good := r.spend(0, 32+end-i); !good {
			return false
		}
		if index >= judged && !r.fitsOne(search, i) && !r.otherItem(n.combined.otherItems, i, index) {
			if ok = false; r.brief {
				return false
			}
		}
		if i = scan.Space(r.value, end); r.value[i] != ',' {
			return ok
		}
	}
}

// knowsItems reports whether a node has judged all items.
func (r *run) knowsItems(n *node, self bool) bool {
	if n.open {
		r.unsure = true
		return true
	}
	return n.array != nil && n.array.items != nil ||
		!self && n.combined != nil && n.combined.otherItems != nil
}

func (r *run) fitsOne(nodes []*node, i int) bool {
	return slices.ContainsFunc(nodes, func(n *node) bool { return r.may(n, i) })
}

func (r *run) otherItem(n *node, i, index int) bool {
	since := len(r.problems)
	_, ok := r.check(n, i)
	r.within(since, token{index: index})
	return ok
}
