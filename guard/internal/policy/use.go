package policy

import (
	"maps"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// uses is what policies look at: only that is built for a decision.
type uses struct {
	names   map[types.String]bool // attributes, of whatever
	members map[types.String]bool // those of names that may be looked up in arguments
	direct  map[types.String]bool // those of members that are looked up in the arguments themselves
	whole   bool                  // the arguments as a whole
	context bool                  // the context as a whole
	in      bool                  // parents

	transport, annotations bool // of the context: what decisions are remembered by
}

// of reports whether some policy may look at an attribute.
func (u *uses) of(name types.String) bool { return u.names[name] }

// inContext reports whether some policy may look at a member of the context.
func (u *uses) inContext(name types.String) bool { return u.context || u.names[name] }

// values reports whether decisions depend on what cannot be part of a key: claims, arguments, time
// and address.
func (u *uses) values() bool {
	return u.of("claims") || u.inContext("arguments") || u.inContext("time") || u.inContext("remote")
}

// inArguments returns whether some policy may look at a member of the arguments of a call, for each.
func (u *uses) inArguments(name []byte) bool {
	return u.whole || u.context || u.direct[types.String(name)]
}

// nothing returns uses that policies are added to.
func nothing() uses {
	return uses{names: map[types.String]bool{}, members: map[types.String]bool{}, direct: map[types.String]bool{}}
}

// look finds out what policies use. A name counts wherever it is used: there are many ways to
// get at a record.
func look(list []*compiled) uses {
	u := nothing()
	for _, c := range list {
		maps.Copy(u.names, c.use.names)
		maps.Copy(u.members, c.use.members)
		maps.Copy(u.direct, c.use.direct)
		u.whole, u.context, u.in = u.whole || c.use.whole, u.context || c.use.context, u.in || c.use.in
	}
	u.transport, u.annotations = u.inContext("transport"), u.inContext("annotations")
	return u
}

// usesOf finds out what one policy uses. It takes a while for a long one.
func usesOf(policy *cedar.Policy) uses {
	u := nothing()
	p := (*ast.Policy)(policy.AST())
	for _, scope := range []ast.IsScopeNode{p.Principal, p.Action, p.Resource} {
		switch scope.(type) {
		case ast.ScopeTypeIn, ast.ScopeTypeInSet, ast.ScopeTypeIsIn:
			u.in = true
		}
	}
	for _, cond := range p.Conditions {
		u.node(cond.Body)
	}
	return u
}

func (u *uses) node(n ast.IsNode) {
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeAccess:
			u.whole = u.whole || isArguments(n) // a look-up in them does not come here
			return u.name(n.Arg, n.Value)
		case ast.NodeTypeHas:
			return u.name(n.Arg, n.Value)
		case ast.NodeTypeRecord: // arguments may be compared with it
			for _, e := range n.Elements {
				u.members[e.Key] = true
			}
		case ast.NodeTypeIn, ast.NodeTypeIsIn:
			u.in = true
		case ast.NodeTypeVariable:
			u.context = u.context || n.Name == "context"
		}
		return true
	})
}

// name notes a name that is looked up in a node, and reports whether the node itself is to be
// looked at.
func (u *uses) name(in ast.IsNode, name types.String) bool {
	u.names[name] = true
	if ofArguments(in) {
		u.members[name] = true
	}
	if isArguments(in) {
		u.names["arguments"], u.direct[name] = true, true
		return false
	}
	return !isContext(in)
}

// isArguments reports whether a node is the arguments.
func isArguments(n ast.IsNode) bool {
	a, ok := n.(ast.NodeTypeAccess)
	return ok && a.Value == "arguments" && isContext(a.Arg)
}

// ofArguments reports whether a node may be the arguments, or in them.
func ofArguments(n ast.IsNode) bool {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		return false
	case ast.NodeTypeAccess:
		if isContext(n.Arg) {
			return n.Value == "arguments"
		}
		return ofArguments(n.Arg)
	}
	return true
}

func isContext(n ast.IsNode) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == "context"
}
