package refs

import (
	"strings"
	"sync"
)

// A node is what the table says of one value.
type node struct {
	kind    kind
	members []member
	any     *node  // of an object's other members
	each    *node  // of an array's elements
	shape   *node  // has more members, and may have unless; nil: none
	unless  string // an object with this member holds no references
	revs    revisions
}

type member struct {
	name string
	node *node
}

var nothing = &node{}

// member returns the node of a member of an object, or nil.
func (n *node) member(name []byte) *node {
	for at := n; at != nil; at = at.shape {
		for i := range at.members {
			if string(name) == at.members[i].name {
				return at.members[i].node
			}
		}
	}
	if n.kind == kindArgument {
		return n
	}
	return n.any
}

// element returns the node of the elements of an array, or nil.
func (n *node) element() *node {
	if n.kind == kindArgument {
		return n
	}
	return n.each
}

// message is what the places of a table are found by.
type message struct {
	dir    direction
	part   Part
	method string
}

type index map[message]*node

// of returns the node of a part of a message, nil when it holds no reference.
func (x index) of(dir direction, part Part, method string) *node {
	if n := x[message{dir, part, method}]; n != nil {
		return n
	}
	return x[message{dir, part, "*"}]
}

// places is the table as it is used. It is made when it is needed first.
var places = sync.OnceValue(func() index { return compile(rowsOf(placesText)) })

func compile(rows []row) index {
	// The nodes of the shapes. An answer of elicitation has an action: its content is what a user has
	// entered, which is not content blocks.
	made := map[string]*node{"<answer>": {unless: "action"}}
	methods := map[string]bool{"*": true}
	for _, r := range rows {
		switch {
		case r.dirs != nil:
			methods[r.method] = true
		case made[r.method] == nil:
			made[r.method] = &node{}
		}
	}
	x := index{}
	for _, r := range rows {
		if r.dirs == nil {
			made[r.method].add(r, r.path, made)
			continue
		}
		part, path := partOf(r.path)
		for _, dir := range r.dirs {
			for method := range methods {
				if r.method != method && r.method != "*" {
					continue
				}
				key := message{dir, part, method}
				if x[key] == nil {
					x[key] = &node{}
				}
				x[key].add(r, path, made)
			}
		}
	}
	return x
}

// partOf cuts the part of the message from a path.
func partOf(path string) (Part, string) {
	for part, prefix := range [parts]string{
		Params: "params", Result: "result",
		ErrorData: "error.data",
	} {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			return Part(part), strings.TrimPrefix(rest, ".")
		}
	}
	panic("refs: the path " + path + " begins with no part of a message") //nolint:forbidigo // placesText is constant
}

// add adds the row to what is known below a node.
func (n *node) add(r row, path string, made map[string]*node) {
	if path == "" {
		n.become(r, made)
		return
	}
	name, rest := cutStep(path)
	step := strings.TrimSuffix(strings.TrimSuffix(name, "[]"), "[?]")
	sub := n.any
	if step != "*" {
		sub = n.own(step)
	}
	if sub == nil {
		sub = &node{}
		if step == "*" {
			n.any = sub
		} else {
			n.members = append(n.members, member{step, sub})
		}
	}
	switch {
	case strings.HasSuffix(name, "[?]"):
		sub.add(r, rest, made)
		sub.each = sub
	case strings.HasSuffix(name, "[]"):
		if sub.each == nil {
			sub.each = &node{}
		}
		sub.each.add(r, rest, made)
	default:
		sub.add(r, rest, made)
	}
}

func (n *node) own(name string) *node {
	for _, m := range n.members {
		if m.name == name {
			return m.node
		}
	}
	return nil
}

// become gives a node the kind of the row, or the places of its shape.
func (n *node) become(r row, made map[string]*node) {
	n.revs |= r.revs
	if shape := made[r.what]; shape != nil {
		n.shape = shape
		return
	}
	n.kind = kinds[r.what]
}

// cutStep cuts the first step from a path. A member with a name that has dots is in quotes.
func cutStep(path string) (step, rest string) {
	if quoted, ok := strings.CutPrefix(path, "'"); ok {
		name, behind, _ := strings.Cut(quoted, "'")
		brackets, rest := cutStep(behind)
		return name + brackets, rest
	}
	step, rest, _ = strings.Cut(path, ".")
	return step, rest
}
