package gateway

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/guard"
)

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
		"name": r.text(&rule.Name), "roles": r.oneOrMore(&rule.Roles), "principals": r.oneOrMore(&rule.Principals),
		"calls": calls, "destructive": r.option(&rule.Destructive), "mode": r.text(&rule.Mode),
	}
	switch {
	case n.kind == scalarNode:
		r.spots[path+".calls"], r.spots[path+".calls[0]"] = n.at, n.at
		calls(n, path+".calls")
	case n.kind == nullNode:
		r.problemAt(n.at, path, "is empty", "remove it")
		return
	case n.kind != mapNode || slices.ContainsFunc(n.members, func(m member) bool { return table[m.key] != nil }):
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
			r.problemAt(m.at, path, fmt.Sprintf("there is no key %q here", m.key), fmt.Sprintf("did you mean %s? A role of that name is written roles: [%s]", near, m.key))
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
	if n.kind == scalarNode {
		r.spots[path+".limit"] = n.at
		r.frequency(&rate, n, path+".limit")
		return rate
	}
	r.fields(n, path, map[string]take{
		"per": r.text(&rate.Per), "calls": r.oneOrMore(&rate.Calls), "each": r.flag(&rate.Each), "roles": r.oneOrMore(&rate.Roles),
		"limit": func(n *node, path string) { r.frequency(&rate, n, path) }, "burst": r.count(&rate.Burst),
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
		r.problemAt(n.at, path, fmt.Sprintf("%q is not a number of calls in a time", n.text), "write 10/s, 600/min, 1000/day or 100/15m")
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
