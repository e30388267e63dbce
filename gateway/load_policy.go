package gateway

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A PolicyTest is calls with the decisions that a guard is to make of them.
type PolicyTest struct {
	// Guard is the path of the configuration that has the guard.
	Guard string
	Cases []PolicyCase
}

// A PolicyCase is one call of a [PolicyTest], and what is expected.
type PolicyCase struct {
	Line, Column int // in the file
	Title        string
	// Principal is who calls, by its id or ISSUER|ID; "" is anonymous. Kind, Roles and Scopes are
	// those that the configuration has for it unless they are given, and Claims those of its token, as
	// JSON.
	Principal, Kind string
	Roles, Scopes   []string
	Claims          jsonrpc.Raw
	// Method and Name are what is called; Name may begin with its upstream, as in rules.
	Method, Name, Upstream string
	// Arguments are those of a tool or prompt, or the params of any other method, as JSON; nil for
	// none.
	Arguments, Annotations, Schema jsonrpc.Raw
	// Transport is "http" by default; Remote is the address of the caller, and Local whether it is on
	// this machine.
	Transport, Remote string
	Local             bool
	At                time.Time // zero: now
	Times             int       // how often the call is made; the last one counts. 1 by default
	// Expect is "allowed", "denied" or "limited". Policies are those that decided, when they are
	// given, and Reason is a part of the reason.
	Expect   string
	Policies []string
	Reason   string
}

// LoadPolicyTest reads a file of calls and expected decisions, in YAML or JSON. What is wrong in it
// is a *[ConfigError].
func LoadPolicyTest(path string) (*PolicyTest, error) {
	data, err := readBounded(path, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("gateway: cannot read the tests: %w", err)
	}
	t := &PolicyTest{}
	if _, err := parseAs(path, data, func(r *reader, n *node) *Config {
		r.policyTest(t, n)
		return &Config{}
	}); err != nil {
		return nil, err
	}
	return t, nil
}

func (r *reader) policyTest(t *PolicyTest, n *node) {
	r.spots[""] = n.at
	r.stopped = true // it is no configuration
	r.twice(n, "", map[*node]bool{})
	if own := n.get("guard"); n.get("tests") == nil &&
		(own != nil && own.kind == mapNode || n.get("upstreams") != nil || n.get("mcpServers") != nil) {
		file := filepath.Base(r.file)
		r.problemAt(n.at, "", "this is a configuration, and a file of calls is wanted",
			fmt.Sprintf("write one with guard: %s and tests: a list of calls (farcall policy test --help "+
				"shows one); farcall check %[1]s checks the configuration", file))
		return
	}
	r.fields(n, "", map[string]take{
		"guard": r.path(&t.Guard),
		"tests": r.items(func(n *node, path string) { t.Cases = append(t.Cases, r.policyCase(n, path)) }),
	})
	if n.kind == mapNode && n.get("guard") == nil {
		r.problemAt(n.at, "guard", "it is missing", "add guard: FILE, the configuration with the guard")
	}
	if n.kind == mapNode && len(t.Cases) == 0 {
		r.problemAt(n.at, "tests", "there are none", "add tests: with a list of calls")
	}
}

// isPolicyTest reports whether a file is one of calls, as LoadPolicyTest reads it.
func isPolicyTest(n *node) bool {
	g := n.get("guard")
	return n.get("tests") != nil && g != nil && g.kind == scalarNode
}

// expectations are what may be expected of a call.
var expectations = []string{"allowed", "denied", "limited"}

func (r *reader) policyCase(n *node, path string) PolicyCase {
	c := PolicyCase{Line: n.at.line, Column: n.at.column, Times: 1}
	r.fields(n, path, map[string]take{
		"title":     r.text(&c.Title),
		"principal": func(n *node, path string) { r.caller(&c, n, path) },
		"method":    r.text(&c.Method), "name": r.text(&c.Name), "upstream": r.text(&c.Upstream),
		"arguments": r.json(&c.Arguments), "annotations": r.json(&c.Annotations),
		"schema":    r.json(&c.Schema),
		"transport": r.text(&c.Transport), "remote": r.text(&c.Remote), "local": r.flag(&c.Local),
		"at": r.date(&c.At), "times": r.count(&c.Times),
		"expect": r.text(&c.Expect), "policies": r.oneOrMore(&c.Policies), "reason": r.text(&c.Reason),
	})
	switch {
	case n.kind != mapNode:
	case c.Method == "" && n.get("method") == nil:
		r.problemAt(n.at, path+".method", "it is missing",
			"write method: tools/call, or the method of another call")
	case c.Expect == "" && n.get("expect") == nil:
		r.problemAt(n.at, path+".expect", "it is missing", "write expect: allowed, denied or limited")
	case c.Expect != "" && !slices.Contains(expectations, c.Expect):
		r.problem(path+".expect", fmt.Sprintf("there is no decision %q", c.Expect),
			"write allowed, denied or limited")
	}
	return c
}

// caller reads a map, or the id alone.
func (r *reader) caller(c *PolicyCase, n *node, path string) {
	if n.kind == scalarNode {
		r.text(&c.Principal)(n, path)
		return
	}
	r.fields(n, path, map[string]take{
		"id": r.text(&c.Principal), "kind": r.text(&c.Kind), "roles": r.oneOrMore(&c.Roles),
		"scopes": r.oneOrMore(&c.Scopes), "claims": r.json(&c.Claims),
	})
}

// json reads any value as JSON.
func (r *reader) json(dst *jsonrpc.Raw) take {
	return func(n *node, _ string) { *dst = n.appendJSON(nil) }
}

// appendJSON appends a value as JSON. A number that only YAML has is a text.
func (n *node) appendJSON(dst []byte) []byte {
	switch n.kind {
	case scalarNode:
		if n.bare && jsonrpc.Valid([]byte(n.text)) == nil {
			return append(dst, n.text...)
		}
		return jsonrpc.AppendString(dst, n.text)
	case listNode:
		dst = append(dst, '[')
		for i, item := range n.list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst)
		}
		return append(dst, ']')
	case mapNode:
		dst = append(dst, '{')
		for i, m := range n.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.value.appendJSON(append(jsonrpc.AppendString(dst, m.key), ':'))
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

// rules reads what is allowed or denied: a list, or the one item there is. An item is
//
//	tools/call time/*                        a pattern, for everybody
//	{dev: [tools/call github/*, math/*]}     roles, and the calls of each
//	{roles: [dev], calls: [math/*], ...}     a rule
func (r *reader) rules(dst *[]guard.Rule) take {
	return func(n *node, path string) {
		list := []*node{n}
		if n.kind == listNode {
			list = n.list
		}
		for _, item := range list {
			r.rule(dst, item, path)
		}
	}
}

// rule reads an item. Paths have the number that the rule has among all.
func (r *reader) rule(dst *[]guard.Rule, n *node, list string) {
	var rule guard.Rule
	path := list + "[" + strconv.Itoa(len(*dst)) + "]"
	r.spots[path] = n.at
	calls := func(n *node, path string) { r.oneOrMore(&rule.Calls)(n, path) }
	table := map[string]take{
		"name": r.text(&rule.Name), "roles": r.oneOrMore(&rule.Roles),
		"principals": r.oneOrMore(&rule.Principals),
		"calls":      calls, "destructive": r.option(&rule.Destructive), "mode": r.text(&rule.Mode),
	}
	switch {
	case n.kind == scalarNode:
		r.spots[path+".calls"], r.spots[path+".calls[0]"] = n.at, n.at
		calls(n, path+".calls")
	case n.kind == nullNode:
		r.problemAt(n.at, path, "is empty", "remove it")
		return
	case n.kind != mapNode || slices.ContainsFunc(n.members, func(m member) bool {
		return table[m.key] != nil
	}):
		r.fields(n, path, table)
	default:
		r.byRole(dst, n, list)
		return
	}
	*dst = append(*dst, rule)
}

// byRole reads a map of roles and the calls of each.
func (r *reader) byRole(dst *[]guard.Rule, n *node, list string) {
	words := []string{"name", "roles", "principals", "calls", "destructive", "mode"}
	for _, m := range n.members {
		path := list + "[" + strconv.Itoa(len(*dst)) + "]"
		// A slip of the pen must not become a role: a rule that denies would deny nothing.
		if near := nearest(m.key, words); near != "" {
			r.problemAt(m.at, path, fmt.Sprintf("there is no key %q here", m.key),
				fmt.Sprintf("did you mean %s? A role of that name is written roles: [%s]", near, m.key))
			continue
		}
		rule := guard.Rule{Roles: []string{m.key}}
		r.spots[path], r.spots[path+".roles"], r.spots[path+".calls"] = m.at, m.at, m.value.at
		r.oneOrMore(&rule.Calls)(m.value, path+".calls")
		*dst = append(*dst, rule)
	}
}

// rate reads a map, or the limit alone.
func (r *reader) rate(n *node, path string) (rate guard.Rate) {
	r.mapOr("limit", n, path, map[string]take{
		"per": r.text(&rate.Per), "calls": r.oneOrMore(&rate.Calls), "each": r.flag(&rate.Each),
		"roles": r.oneOrMore(&rate.Roles),
		"limit": func(n *node, path string) {
			r.frequency(&rate, n, path)
		}, "burst": r.count(&rate.Burst),
	})
	if n.kind == mapNode && n.get("limit") == nil {
		r.problem(path, "it has no limit", "add limit: 10/s or 1000/day")
	}
	return rate
}

// frequency reads how many there may be in a time: 10/s.
func (r *reader) frequency(rate *guard.Rate, n *node, path string) {
	text, ok := r.value(n, path)
	if !ok {
		return
	}
	if rate.Limit, rate.Every, ok = parseFrequency(text); !ok {
		r.problemAt(n.at, path, fmt.Sprintf("%q is not a number of calls in a time", n.text),
			"write 10/s, 600/min, 1000/day or 100/15m")
	}
}

func parseFrequency(text string) (limit int, every time.Duration, ok bool) {
	number, unit, _ := strings.Cut(text, "/")
	limit, err := strconv.Atoi(strings.TrimSpace(number))
	if err != nil || limit < 1 || limit > 1<<30 {
		return 0, 0, false
	}
	switch unit = strings.TrimSpace(unit); unit {
	case "s", "sec", "second":
		every = time.Second
	case "m", "min", "minute":
		every = time.Minute
	case "h", "hour":
		every = time.Hour
	case "d", "day":
		every = 24 * time.Hour
	default:
		every, err = time.ParseDuration(unit)
	}
	return limit, every, err == nil && every > 0
}
