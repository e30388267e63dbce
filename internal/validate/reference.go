package validate

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// resolve finds the target of a reference.
func (c *compiler) resolve(ref *reference) error {
	res := ref.place.resource
	base, fragment, _ := strings.Cut(ref.to, "#")
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return fmt.Errorf("%s is no URI reference", quoted(ref.to))
	}
	if base != "" {
		uri, err := join(res.uri, base)
		if err != nil {
			return err
		}
		if res = c.resources[uri]; res == nil {
			return unsupported{fmt.Errorf("%s leads out of the schema; nothing is fetched: put the target under $defs and refer to it there", quoted(ref.to))}
		}
	}
	target, err := c.target(res, fragment, ref.place)
	if err != nil {
		return fmt.Errorf("%s: %w", quoted(ref.to), err)
	}
	co := ref.from.combines()
	name := fragment
	if ref.place.keyword == "$recursiveRef" {
		name = recursive
	}
	if ref.place.keyword != "$ref" && target.resource.dynamic[name] == target {
		co.dynamic = append(co.dynamic, dynamicRef{name, target})
		c.dynamic = true
		return nil
	}
	co.refs = append(co.refs, target)
	return nil
}

// target finds what a fragment names in a resource.
func (c *compiler) target(res *resource, fragment string, from *place) (*node, error) {
	if fragment != "" && fragment[0] != '/' {
		if n := res.anchors[fragment]; n != nil {
			return n, nil
		}
		return nil, errors.New("there is no such anchor")
	}
	at := res.at
	if fragment != "" {
		for step := range strings.SplitSeq(fragment[1:], "/") {
			step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
			var ok bool
			if at, ok = c.step(at, step); !ok {
				return nil, fmt.Errorf("there is no %s", quoted(step))
			}
			if n := c.nodes[at]; n != nil {
				res = n.resource
			}
		}
	}
	// A target that no keyword leads to is compiled now.
	return c.node(&place{at: at, resource: res, depth: from.depth, from: from, keyword: "#" + fragment})
}

// step goes from a value of the schema to one that it contains.
func (c *compiler) step(at int, name string) (int, bool) {
	inside, known := c.contents[at]
	if !known {
		inside = map[string]int{}
		switch c.doc[at] {
		case '{':
			members, _ := c.members(at)
			for _, m := range members {
				inside[m.name] = m.at
			}
		case '[':
			for i, item := range c.items(at) {
				inside[strconv.Itoa(i)] = item
			}
		}
		c.contents[at] = inside
	}
	at, ok := inside[name]
	return at, ok
}

// A loop is found by walking from each node to those that it applies to the
// same value.
const (
	walking = 1 + iota
	walked
)

// loops reports whether the schema refers to itself without going into the
// value.
func (c *compiler) loops() bool {
	state := map[*node]int{}
	var walk func(n *node) bool
	walk = func(n *node) bool {
		if n == nil || state[n] == walked {
			return true
		}
		if state[n] == walking {
			return false
		}
		state[n] = walking
		for _, next := range n.inPlace() {
			if !walk(next) {
				return false
			}
		}
		state[n] = walked
		return true
	}
	for _, n := range c.nodes {
		if !walk(n) {
			return true
		}
	}
	return false
}

// inPlace lists the nodes that a node applies to the same value.
func (n *node) inPlace() (out []*node) {
	if n.object != nil {
		for i := range n.object.needs {
			out = append(out, n.object.needs[i].node)
		}
	}
	if c := n.combined; c != nil {
		for _, nodes := range [][]*node{c.refs, c.all, c.any, c.one, {c.not, c.cond, c.then, c.els}} {
			out = append(out, nodes...)
		}
	}
	return out
}

// shorten lets a node that is but a reference be its target.
func (c *compiler) shorten(n *node) {
	target := n
	for co := target.combined; co != nil && target.plain() && len(co.refs) == 1 && (!c.dynamic || co.refs[0].resource == n.resource); co = target.combined {
		target = co.refs[0]
	}
	if target != n {
		n.alias = target
	}
}

// plain reports whether a node is but references.
func (n *node) plain() bool {
	c := n.combined
	return !n.never && n.unjudged == 0 && !n.open && n.types == anything && n.number == nil && n.text == nil && n.object == nil && n.array == nil && n.enum == nil &&
		c.dynamic == nil && c.all == nil && c.any == nil && c.one == nil && c.not == nil && c.cond == nil &&
		c.otherProperties == nil && c.otherItems == nil
}
