package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/farcall-dev/farcall/internal/edits"
)

// vocabulary warns of words in a policy that mean nothing in the model, once each.
type vocabulary struct {
	list         *problems
	path         string
	line, column int
	told         []string
}

func (v *vocabulary) warnf(hint, format string, args ...any) {
	m := fmt.Sprintf(format, args...)
	if slices.Contains(v.told, m) {
		return
	}
	v.told = append(v.told, m)
	*v.list = append(*v.list,
		Problem{Path: v.path, Message: m, Hint: hint, Warning: true, Line: v.line, Column: v.column})
}

// entityTypes are those of a variable, and those that it can be in.
func entityTypes(variable string) []string {
	switch variable {
	case "principal":
		return []string{
			typeUser, typeService, typeAgent, typeProcess, typeAnonymous, typeOther, typeRole,
			typeIssuer,
		}
	case "action":
		return []string{typeAction}
	case "resource":
		return []string{typeTool, typeResource, typePrompt, typeMethod, typeUpstream}
	}
	return slices.Concat(entityTypes("principal"), entityTypes("action"), entityTypes("resource"),
		[]string{typeJSON})
}

// attributes are those of a variable; nil when they are not known.
func attributes(variable string) []string {
	switch variable {
	case "principal":
		return []string{"id", "name", "kind", "issuer", "method", "roles", "scopes", "claims"}
	case "resource":
		return []string{"name", "upstream", "uri", "method", "call"}
	case "context":
		return []string{"arguments", "transport", "local", "remote", "time", "annotations"}
	case "context.annotations":
		return []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
	}
	return nil
}

func (v *vocabulary) policy(p *cedar.Policy) {
	tree := (*ast.Policy)(p.AST())
	v.scope("principal", tree.Principal)
	v.scope("action", tree.Action)
	v.scope("resource", tree.Resource)
	for _, c := range tree.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			v.node(n)
			return true
		})
	}
}

func (v *vocabulary) scope(variable string, n ast.IsScopeNode) {
	switch n := n.(type) {
	case ast.ScopeTypeEq:
		v.entity(variable, n.Entity)
	case ast.ScopeTypeIn:
		v.entity(variable, n.Entity)
	case ast.ScopeTypeInSet:
		for _, e := range n.Entities {
			v.entity(variable, e)
		}
	case ast.ScopeTypeIs:
		v.entityType(variable, n.Type)
	case ast.ScopeTypeIsIn:
		v.entityType(variable, n.Type)
		v.entity(variable, n.Entity)
	}
}

func (v *vocabulary) node(n ast.IsNode) {
	switch n := n.(type) {
	case ast.NodeValue:
		if e, ok := n.Value.(types.EntityUID); ok {
			v.entity("", e)
		}
	case ast.NodeTypeIs:
		v.entityType(variable(n.Left), n.EntityType)
	case ast.NodeTypeIsIn:
		v.entityType(variable(n.Left), n.EntityType)
	case ast.NodeTypeAccess:
		v.attribute(n.Arg, string(n.Value))
	case ast.NodeTypeHas:
		v.attribute(n.Arg, string(n.Value))
	}
}

// variable is the name of a variable, "context.annotations", or "".
func variable(n ast.IsNode) string {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		return string(n.Name)
	case ast.NodeTypeAccess:
		if isContext(n.Arg) && n.Value == "annotations" {
			return "context.annotations"
		}
	}
	return ""
}

func (v *vocabulary) attribute(of ast.IsNode, name string) {
	owner := variable(of)
	known := attributes(owner)
	switch {
	case owner == "action":
		v.warnf(`compare the action itself: action == Action::"tools/call"`,
			"an action has no attribute %q", show(name))
	case known != nil && !slices.Contains(known, name):
		v.warnf(nearest(name, known, "is it "), "%s has no attribute %q", owner, show(name))
	}
}

func (v *vocabulary) entityType(variable string, typ types.EntityType) {
	known := entityTypes(variable)
	if slices.Contains(known, string(typ)) {
		return
	}
	variable = cmp.Or(variable, "anything")
	v.warnf(nearest(string(typ), known, "is it "), "%s is never of the type %s", variable,
		show(string(typ)))
}

func (v *vocabulary) entity(variable string, e types.EntityUID) {
	v.entityType(variable, e.Type)
	id := string(e.ID)
	if e.Type != typeAction || id == groupRead || id == groupCall {
		return
	}
	known := slices.Concat(named, reads)
	switch {
	case slices.Contains(known, id):
	case id == "read" || id == "call" || id == "*":
		v.warnf(`the groups are Action::"any read" and Action::"any call"; without a condition, action `+
			`is every one`,
			"Action::%q is a method of that name, not a group", id)
	case strings.Contains(id, " "):
		v.warnf(nearest(id, append(known, groupRead, groupCall), "is it "),
			"no action is named %q: methods have no spaces", show(id))
	default:
		for _, k := range known {
			if edits.Distance(strings.ToLower(id), strings.ToLower(k)) <= 2 {
				v.warnf(fmt.Sprintf("is it %q", k), "Action::%q is no method of MCP, but almost", show(id))
				return
			}
		}
	}
}

// Names are the names that policies look up in the arguments of calls. A nil *Names means that no
// policy looks at arguments.
type Names struct {
	spellings map[string][]string // by the folded name
	longest   int                 // bytes of a folded name
}

// maxGrowth is how many times longer a name can become by folding, or shorter: the Kelvin sign has
// three bytes and folds to K.
const maxGrowth = 3

// Mistaken returns the name that policies look up and that a server which ignores case takes key
// for, although they differ; "" for none. It allocates only when key is long.
func (n *Names) Mistaken(key []byte) string {
	if n == nil || len(key) > maxGrowth*n.longest {
		return ""
	}
	var small [64]byte
	for _, name := range n.spellings[string(AppendFolded(small[:0], key))] {
		if name != string(key) {
			return name
		}
	}
	return ""
}

// add adds a name, and returns another spelling of it that is there already, or "".
func (n *Names) add(name string) (other string) {
	folded := AppendFolded(nil, []byte(name))
	list := n.spellings[string(folded)]
	if slices.Contains(list, name) {
		return ""
	}
	n.spellings[string(folded)] = append(list, name)
	n.longest = max(n.longest, len(folded))
	if len(list) > 0 {
		other = list[0]
	}
	return other
}

// collect finds the names that policies look up in arguments. It warns of those that differ in case
// only.
func (s *Set) collect(list *problems) {
	if !s.use.inContext("arguments") {
		return
	}
	s.names = &Names{spellings: map[string][]string{}}
	for _, c := range s.list {
		for _, name := range slices.Sorted(maps.Keys(c.use.members)) {
			other := s.names.add(string(name))
			if other == "" {
				continue
			}
			at := c.policy.Position()
			*list = append(*list, Problem{
				Path: at.Filename, Line: at.Line, Column: at.Column, Warning: true,
				Message: fmt.Sprintf(
					"policies look up both %s and %s, which servers may take for the same: calls with either "+
						"are refused", show(other), show(string(name))),
				Hint: "use one of them: calls with another spelling of it are refused anyway",
			})
		}
	}
}

// Names returns the names that policies look up in arguments, nil when none looks at them.
func (s *Set) Names() *Names {
	if s == nil {
		return nil
	}
	return s.names
}

// AppendFolded appends a name as readers that ignore case compare it: under the simple case folding
// of Unicode, as encoding/json and [strings.EqualFold] do. Two names fold to the same bytes exactly
// when they are equal under it.
func AppendFolded(dst, name []byte) []byte {
	for i := 0; i < len(name); {
		c := name[i]
		if c < utf8.RuneSelf {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(name[i:])
		dst = utf8.AppendRune(dst, folded(r))
		i += size
	}
	return dst
}

// folded is the smallest of the characters that fold to each other.
func folded(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}
