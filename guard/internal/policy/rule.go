package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/farcall-dev/farcall/internal/glob"
)

// The types of entities, and the groups of actions.
const (
	typeAction, typeRole, typeIssuer, typeUpstream    = "Action", "Role", "Issuer", "Upstream"
	typeTool, typeResource, typePrompt, typeMethod    = "Tool", "Resource", "Prompt", "Method"
	typeUser, typeService, typeAgent, typeProcess     = "User", "Service", "Agent", "Process"
	typeAnonymous, typeOther, typeJSON                = "Anonymous", "Other", "Json"
	typePattern, anonymousName, groupRead, groupCall  = "Pattern", "anonymous", "any read", "any call"
	maxRules, maxPatterns, maxPattern, maxNamesOfRule = 2000, 1000, 1024, 10_000
)

// place is kind[i].
func place(kind string, i int) string { return kind + "[" + strconv.Itoa(i) + "]" }

// addRules compiles rules, those that deny first.
func (s *Set) addRules(rules []Rule, names map[string]string, list *problems) {
	if len(rules) > maxRules {
		list.errorf("allow", "write fewer, with patterns, or Cedar policies",
			"there are %d rules, at most %d will do", len(rules), maxRules)
		return
	}
	count := map[string]int{}
	var made []*compiled
	for i := range rules {
		r := &rules[i]
		c := &compiled{rule: r, forbid: r.Deny, shadow: r.Shadow}
		kind := "allow"
		if r.Deny {
			kind = "deny"
		}
		c.place = place(kind, count[kind])
		count[kind]++
		c.name = cmp.Or(r.Name, c.place)
		list.name(c.place, c.name, names)
		if list.rule(c.place, r) {
			c.policy = cedar.NewPolicyFromAST(s.compileRule(r))
			made = append(made, c)
		}
	}
	for _, forbid := range [...]bool{true, false} {
		for _, c := range made {
			if c.forbid == forbid {
				s.add(c)
			}
		}
	}
}

// compileRule writes a rule as a policy. Strings of the rule are values in its tree.
func (s *Set) compileRule(r *Rule) *ast.Policy {
	p := ast.Permit()
	if r.Deny {
		p = ast.Forbid()
	}
	var who []ast.Node
	if len(r.Roles) > 0 {
		who = append(who, oneOf(ast.Principal().Access("roles"), r.Roles, true))
	}
	if len(r.Principals) > 0 {
		who = append(who, oneOf(ast.Principal().Access("name"), r.Principals, false))
	}
	if len(who) > 0 {
		p.When(anyOf(who))
	}
	if !slices.Contains(r.Calls, "*") {
		p.When(anyOf(s.compileCalls(r.Calls)))
	}
	if r.Destructive != nil {
		hint := ast.Context().Access("annotations")
		harmless := anyOf([]ast.Node{
			ast.Not(ast.Resource().Is(typeTool)), hint.Access("readOnlyHint"),
			ast.Not(hint.Access("destructiveHint")),
		})
		if *r.Destructive {
			harmless = ast.Not(harmless)
		}
		p.When(harmless)
	}
	return p
}

// compileCalls has a node for each pattern, or for a number of them. Cedar's like does not know the
// question mark: resources are in an entity for each such pattern that they match.
func (s *Set) compileCalls(patterns []string) (nodes []ast.Node) {
	var exact []string
	for _, pattern := range patterns {
		switch {
		case strings.Contains(pattern, "?"):
			if !slices.Contains(s.asks, pattern) {
				s.asks = append(s.asks, pattern)
			}
			nodes = append(nodes,
				ast.Resource().In(ast.Value(types.NewEntityUID(typePattern, types.String(pattern)))))
		case strings.Contains(pattern, "*"):
			var parts []any
			for i, literal := range strings.Split(pattern, "*") {
				if i > 0 {
					parts = append(parts, types.Wildcard{})
				}
				parts = append(parts, literal)
			}
			nodes = append(nodes, ast.Resource().Access("call").Like(types.NewPattern(parts...)))
		default:
			exact = append(exact, pattern)
		}
	}
	if len(exact) > 0 {
		nodes = append(nodes, oneOf(ast.Resource().Access("call"), exact, false))
	}
	return nodes
}

// oneOf is: node is one of the words, or when it is a set, it has one of them.
func oneOf(node ast.Node, words []string, set bool) ast.Node {
	values := make([]ast.Node, len(words))
	for i, w := range words {
		values[i] = ast.String(types.String(w))
	}
	switch {
	case len(words) == 1 && set:
		return node.Contains(values[0])
	case len(words) == 1:
		return node.Equal(values[0])
	case set:
		return node.ContainsAny(ast.Set(values...))
	}
	return ast.Set(values...).Contains(node)
}

// anyOf is the nodes with or between them, as a tree that is not deep.
func anyOf(nodes []ast.Node) ast.Node {
	if len(nodes) == 1 {
		return nodes[0]
	}
	half := len(nodes) / 2
	return anyOf(nodes[:half]).Or(anyOf(nodes[half:]))
}

// Match reports whether a call, as [CallName] writes it, is one of a pattern. In a pattern * is any
// number of characters, slashes and spaces as well, and ? is one. All others stand for themselves.
func Match(pattern, call string) bool { return glob.Match(pattern, call) }

// CallName is how patterns see a call: METHOD, or METHOD NAME, or METHOD UPSTREAM/NAME.
func CallName(method, upstream, name string) string {
	switch {
	case name == "":
		return method
	case upstream == "":
		return method + " " + name
	}
	return method + " " + upstream + "/" + name
}

// kind is the type of the entity that a call is about.
func kind(method, name string) string {
	switch method {
	case "tools/call":
		return typeTool
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return typeResource
	case "prompts/get":
		return typePrompt
	case "completion/complete":
		switch {
		case name == "":
		case strings.Contains(name, "://"):
			return typeResource
		default:
			return typePrompt
		}
	}
	return typeMethod
}

// named are the methods that come with a name. A gateway gives calls of servers that speak no MCP
// as rpc UPSTREAM/METHOD, and changes of the gateway as gateway/admin CHANGE or gateway/admin
// UPSTREAM/CHANGE.
var named = []string{
	"gateway/admin", "rpc", "tools/call", "resources/read", "resources/subscribe",
	"resources/unsubscribe", "prompts/get", "completion/complete",
}

// reads are MCP's methods that only look.
var reads = []string{
	"completion/complete", "initialize", "ping", "prompts/get", "prompts/list", "resources/list",
	"resources/read", "resources/subscribe",
	"resources/templates/list", "resources/unsubscribe", "server/discover", "tasks/get", "tasks/list",
	"tasks/result", "tools/list",
}

func isRead(method string) bool {
	_, found := slices.BinarySearch(reads, method)
	return found
}

// callFault says why a call cannot be named without doubt. "" is none.
func callFault(q *Query) string {
	switch {
	case q.Method == "":
		return "the call has no method"
	case !plain(q.Method) || strings.Contains(q.Method, " "):
		return "the method has a space or a character that is not printed"
	case !plain(q.Upstream) || strings.ContainsAny(q.Upstream, "/ "):
		return "the upstream's name has a slash, a space or a character that is not printed"
	case !plain(q.Name):
		return "the name has a character that is not printed"
	case kind(q.Method, q.Name) == typeResource:
		if f := URIFault(q.Name); f != "" {
			return "the URI " + f
		}
	}
	return ""
}

// plain reports that s is UTF-8 without control characters.
func plain(s string) bool {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	return utf8.ValidString(s) && !strings.ContainsFunc(s, control)
}
