package validate

import (
	"fmt"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
)

// presence remembers which properties an object has.
type presence struct {
	low  uint64
	rest []uint64
}

func (p *presence) add(k int) {
	if k < 64 {
		p.low |= 1 << k
		return
	}
	for len(p.rest) < k>>6 {
		p.rest = append(p.rest, 0)
	}
	p.rest[k>>6-1] |= 1 << (k & 63)
}

func (p *presence) has(k int) bool {
	if k < 64 {
		return p.low>>k&1 == 1
	}
	k -= 64
	return k>>6 < len(p.rest) && p.rest[k>>6]>>(k&63)&1 == 1
}

// object judges the object at an offset.
func (r *run) object(o *objectRules, i int) (int, bool) {
	var (
		start   = i
		present presence
		members int
		guess   int
		ok      = true
	)
	for c := byte(','); c == ','; members++ {
		i = scan.Space(r.value, i+1)
		if members == 0 && i < len(r.value) && r.value[i] == '}' {
			break
		}
		end, good := r.member(o, &present, &guess, i)
		if !good {
			if ok = false; r.brief {
				return end, false
			}
		}
		if i = scan.Space(r.value, end); i >= len(r.value) {
			return r.invalid(i, scan.End)
		}
		if c = r.value[i]; c != ',' && c != '}' {
			return r.invalid(i, scan.NoComma)
		}
	}
	for _, k := range o.required {
		if !present.has(k) {
			name := o.props[k].name
			ok = r.failMember("required", name, false, func() string {
				return "missing property " + quoted(name)
			})
		}
	}
	if members < o.min {
		ok = r.fail("minProperties", func() string {
			return fmt.Sprintf("has %s, the minimum is %d", count(members, "member"), o.min)
		})
	}
	if o.max >= 0 && members > o.max {
		ok = r.fail("maxProperties", func() string {
			return fmt.Sprintf("has %s, the maximum is %d", count(members, "member"), o.max)
		})
	}
	if o.needs != nil {
		ok = r.dependencies(o, &present, start) && ok
	}
	return i + 1, ok
}

// member judges the member with a name that is at an offset, and returns its end.
func (r *run) member(o *objectRules, present *presence, guess *int, i int) (end int, ok bool) {
	if i >= len(r.value) || r.value[i] != '"' {
		return r.invalid(i, scan.NoKey)
	}
	keyEnd, escaped, f := scan.String(r.value, i)
	if f != scan.OK {
		return r.invalid(keyEnd, f)
	}
	at, f := scan.Colon(r.value, keyEnd)
	if f != scan.OK {
		return r.invalid(at, f)
	}
	name := r.value[i+1 : keyEnd-1]
	if escaped {
		name = scan.Unquote(r.value[i:keyEnd])
	}
	ok = true
	r.unsure = r.unsure || o.open
	if o.names != nil {
		if since := len(r.problems); !r.nameFits(o.names, i) {
			if ok = false; r.brief {
				return 0, false
			}
			r.within(since, token{string(name), -1})
		}
	}
	k := o.lookup(name, *guess)
	if k >= 0 {
		*guess = k + 1
		if r.nulls && o.absent(k, r.value[at:]) {
			end, good := r.skip(at)
			return end, good && ok
		}
		present.add(k)
		if child := o.props[k].node; child != nil && o.patterns == nil {
			end, good := r.inside(child, at, name)
			return end, good && ok
		}
	}
	end, good := r.otherMember(o, k, name, at)
	return end, good && ok
}

// absent reports whether a value that begins p stands for the absence of a property: see
// Limits.OptionalNulls.
func (o *objectRules) absent(k int, p []byte) bool {
	if len(p) == 0 || p[0] != 'n' || slices.Contains(o.required, k) {
		return false
	}
	n := o.props[k].node
	if n != nil && n.alias != nil {
		n = n.alias
	}
	return n != nil && !n.never && n.types&null == 0
}

// nameFits judges a member's name as a value.
func (r *run) nameFits(n *node, i int) bool {
	since := len(r.problems)
	_, ok := r.check(n, i)
	for j := since; j < len(r.problems); j++ {
		r.problems[j].detail = "the name: " + r.problems[j].detail
		r.problems[j].keyword = "propertyNames"
	}
	return ok
}

// otherMember judges the value of a member that is no plain property: the
// schema has patterns, or does not know the name.
func (r *run) otherMember(o *objectRules, k int, name []byte, at int) (end int, ok bool) {
	known := false
	ok = true
	judge := func(n *node) bool {
		e, good := r.inside(n, at, name)
		known, end, ok = true, e, ok && good
		return good || !r.brief
	}
	if k >= 0 && o.props[k].node != nil && !judge(o.props[k].node) {
		return 0, false
	}
	for i := range o.patterns {
		p := &o.patterns[i]
		if r.match(p.pattern, name) && !judge(p.node) {
			return 0, false
		}
	}
	switch {
	case known:
		return end, ok
	case o.extra == nil || o.open:
		return r.skip(at)
	case o.extra.never:
		r.failUnknown(o, "additionalProperties", name)
		return r.skipFailed(at)
	default:
		return r.inside(o.extra, at, name)
	}
}

func (r *run) failUnknown(o *objectRules, keyword string, name []byte) {
	if r.quiet {
		return
	}
	r.failMember(keyword, string(name), true, func() string {
		var allowed []string
		if o != nil {
			for i := range o.props {
				if n := o.props[i].node; n != nil && !n.never {
					allowed = append(allowed, o.props[i].name)
				}
			}
		}
		if len(allowed) == 0 {
			return "unknown property " + quoted(string(name))
		}
		return "unknown property " + quoted(string(name)) + "; allowed: " + list(allowed)
	})
}

// inside judges the value of a member.
func (r *run) inside(n *node, i int, name []byte) (int, bool) {
	since := len(r.problems)
	end, ok := r.check(n, i)
	if !ok && !r.quiet {
		r.within(since, token{string(name), -1})
	}
	return end, ok
}

// dependencies judges what follows from the presence of properties.
func (r *run) dependencies(o *objectRules, present *presence, start int) bool {
	ok := true
	for i := range o.needs {
		d := &o.needs[i]
		if !present.has(d.property) {
			continue
		}
		for _, k := range d.required {
			if !present.has(k) {
				name := o.props[k].name
				ok = r.failMember(d.keyword, name, false, func() string {
					return fmt.Sprintf("missing property %s, which %s needs", quoted(name),
						quoted(o.props[d.property].name))
				})
			}
		}
		if d.node != nil {
			if _, good := r.check(d.node, start); !good {
				ok = false
			}
		}
		if !ok && r.brief {
			return false
		}
	}
	return ok
}

// array judges the array at an offset.
func (r *run) array(a *arrayRules, i int) (int, bool) {
	var (
		items, matches, perhaps int
		ok                      = true
		seen                    map[string]int
	)
	if a.unique {
		seen = map[string]int{}
	}
	for c := byte(','); c == ','; items++ {
		i = scan.Space(r.value, i+1)
		if items == 0 && i < len(r.value) && r.value[i] == ']' {
			break
		}
		if a.contains != nil {
			switch r.try(a.contains.node, i) {
			case yes:
				matches++
			case maybe:
				perhaps++
			}
		}
		end, good := r.item(a, i, items)
		if seen != nil && r.goesOn(good) {
			good = r.distinct(seen, r.value[i:end], items) && good
		}
		if ok = ok && good; !r.goesOn(ok) {
			return end, false
		}
		if i = scan.Space(r.value, end); i >= len(r.value) {
			return r.invalid(i, scan.End)
		}
		if c = r.value[i]; c != ',' && c != ']' {
			return r.invalid(i, scan.NoComma)
		}
	}
	return i + 1, r.numbers(a, items, matches, perhaps) && ok
}

// numbers judges how many items an array has, and how many match contains, or may.
func (r *run) numbers(a *arrayRules, items, matches, perhaps int) bool {
	ok := true
	if items < a.min {
		ok = r.fail("minItems", func() string {
			return fmt.Sprintf("has %s, the minimum is %d", count(items, "item"), a.min)
		})
	}
	if a.max >= 0 && items > a.max {
		ok = r.fail("maxItems", func() string {
			return fmt.Sprintf("has %s, the maximum is %d", count(items, "item"), a.max)
		})
	}
	c := a.contains
	if c != nil && (matches < c.min || c.max >= 0 && matches+perhaps > c.max) {
		r.unsure = r.unsure || perhaps > 0
	}
	if c != nil && matches+perhaps < c.min {
		ok = r.fail("contains", func() string {
			return fmt.Sprintf("%s fit what the array must contain, the minimum is %d",
				count(matches, "item"), c.min)
		})
	}
	if c != nil && c.max >= 0 && matches > c.max {
		ok = r.fail("maxContains", func() string {
			return fmt.Sprintf("%s fit what the array must contain, the maximum is %d",
				count(matches, "item"), c.max)
		})
	}
	return ok
}

// item judges one element and returns its end.
func (r *run) item(a *arrayRules, i, index int) (end int, ok bool) {
	n := a.items
	if index < len(a.prefix) {
		n = a.prefix[index]
	}
	if a.open {
		return r.skip(i)
	}
	if n == nil {
		return r.skip(i)
	}
	since := len(r.problems)
	end, ok = r.check(n, i)
	if !ok {
		r.within(since, token{index: index})
	}
	return end, ok
}

// distinct reports whether an element differs from those before it.
func (r *run) distinct(seen map[string]int, raw []byte, index int) bool {
	if _, ok := r.spend(0, 4*len(raw)); !ok {
		return false
	}
	key := string(AppendCanonical(nil, raw))
	first, known := seen[key]
	if known {
		return r.fail("uniqueItems", func() string {
			return fmt.Sprintf("items %d and %d are equal, each must be different", first, index)
		})
	}
	seen[key] = index
	return true
}
