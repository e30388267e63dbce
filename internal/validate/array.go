package validate

import (
	"fmt"

	"github.com/farcall-dev/farcall/internal/scan"
)

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
		ok = r.fail("minItems", func() string { return fmt.Sprintf("has %s, the minimum is %d", count(items, "item"), a.min) })
	}
	if a.max >= 0 && items > a.max {
		ok = r.fail("maxItems", func() string { return fmt.Sprintf("has %s, the maximum is %d", count(items, "item"), a.max) })
	}
	c := a.contains
	if c != nil && (matches < c.min || c.max >= 0 && matches+perhaps > c.max) {
		r.unsure = r.unsure || perhaps > 0
	}
	if c != nil && matches+perhaps < c.min {
		ok = r.fail("contains", func() string {
			return fmt.Sprintf("%s fit what the array must contain, the minimum is %d", count(matches, "item"), c.min)
		})
	}
	if c != nil && c.max >= 0 && matches > c.max {
		ok = r.fail("maxContains", func() string {
			return fmt.Sprintf("%s fit what the array must contain, the maximum is %d", count(matches, "item"), c.max)
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
