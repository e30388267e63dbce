package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/edits"
)

// What comparing rules may take: about a second at the very most.
const (
	checkSteps = 2_000_000
	checkPairs = 400 // rules that are compared with each other
)

// checker compares rules with each other.
type checker struct {
	rules []*compiled
	left  budget
	dead  map[string]bool // patterns that can never count, by their place
	list  *problems
}

// check warns of what is compiled, but is not what one may think.
func (s *Set) check(src *Source, list *problems) {
	if len(s.list) == 0 {
		return
	}
	if !slices.ContainsFunc(s.list, func(c *compiled) bool { return !c.forbid }) {
		list.warnf(s.list[0].place, `add a rule that allows the rest: calls: ["*"]`,
			"nothing is allowed: policies only deny")
	}
	k := &checker{left: budget{checkSteps}, dead: map[string]bool{}, list: list}
	cedarPermits := false
	for _, c := range s.list {
		if c.rule != nil {
			k.rules = append(k.rules, c)
		} else if !c.forbid {
			cedarPermits = true
		}
	}
	if len(k.rules) > checkPairs {
		list.warnf("allow", "write fewer, with patterns",
			"there are more than %d rules: they were not compared with each other", checkPairs)
		return
	}
	for i := range k.rules {
		k.useless(i)
	}
	for _, c := range k.rules {
		if !c.forbid {
			k.conflicts(c)
		}
	}
	if !cedarPermits {
		k.local(src.Local)
	}
	if k.left.left <= 0 {
		list.warnf("allow", "", "the rules are too many or too long to be compared in full")
	}
}

// wider reports whether a rule is for everybody and everything that another is for, but for calls.
func (k *checker) wider(a, b *Rule) bool {
	k.left.pay(1 + len(a.Roles)*len(b.Roles) + len(a.Principals)*len(b.Principals))
	if a.Destructive != nil && (b.Destructive == nil || *a.Destructive != *b.Destructive) {
		return false
	}
	if len(a.Roles)+len(a.Principals) == 0 {
		return true
	}
	if len(b.Roles)+len(b.Principals) == 0 {
		return false
	}
	return within(b.Roles, a.Roles) && within(b.Principals, a.Principals)
}

func within(a, b []string) bool {
	return !slices.ContainsFunc(a, func(w string) bool { return !slices.Contains(b, w) })
}

// meet reports whether a caller may be meant by both rules, as far as their words tell.
func (k *checker) meet(a, b *Rule) bool {
	k.left.pay(1 + len(a.Roles)*len(b.Roles) + len(a.Principals)*len(b.Principals))
	if a.Destructive != nil && b.Destructive != nil && *a.Destructive != *b.Destructive {
		return false
	}
	if len(a.Roles)+len(a.Principals) == 0 || len(b.Roles)+len(b.Principals) == 0 {
		return true
	}
	common := func(x, y []string) bool {
		return slices.ContainsFunc(x, func(w string) bool { return slices.Contains(y, w) })
	}
	return common(a.Roles, b.Roles) || common(a.Principals, b.Principals)
}

// useless warns of patterns of a rule that change nothing: a rule that denies takes them away, or
// another of the same kind has them already.
func (k *checker) useless(i int) {
	c := k.rules[i]
	denied := make([]string, len(c.rule.Calls)) // who makes it so
	same := make([]string, len(c.rule.Calls))
	for j, pattern := range c.rule.Calls {
		if k.left.left <= 0 {
			return
		}
		if !c.forbid {
			denied[j] = k.takenAway(c, pattern)
			k.dead[c.place+place("", j)] = denied[j] != ""
		}
		if denied[j] == "" {
			same[j] = k.alreadyThere(i, j)
		}
	}
	k.report(c, denied, "the rule can never count: %s", "the pattern can never count: %s",
		"remove it, or narrow what denies")
	k.report(c, same, "the rule has no effect: %s", "the pattern has no effect: %s", "remove it")
}

func (k *checker) report(c *compiled, why []string, whole, part, hint string) {
	if !slices.Contains(why, "") {
		k.list.warnf(c.place, hint, whole, strings.Join(slices.Compact(slices.Clone(why)), ", and "))
		return
	}
	for j, w := range why {
		if w != "" {
			k.list.warnf(c.place+"."+place("calls", j), hint, part, w)
		}
	}
}

// takenAway says which rules deny all of a pattern that c allows.
func (k *checker) takenAway(c *compiled, pattern string) string {
	var by, together []string
	var places []string
	for _, d := range k.rules {
		if !d.forbid || k.left.left <= 0 || !k.wider(d.rule, c.rule) {
			continue
		}
		if covered(pattern, d.rule.Calls, &k.left) {
			return d.label() + " denies it"
		}
		k.left.pay(len(d.rule.Calls))
		by = slices.DeleteFunc(slices.Clone(d.rule.Calls), func(p string) bool {
			return apart(p, pattern)
		})
		if len(by) > 0 {
			together = append(together, by...)
			places = append(places, d.label())
		}
	}
	if len(places) > 1 && covered(pattern, together, &k.left) {
		return strings.Join(places, " and ") + " deny it together"
	}
	return ""
}

// alreadyThere says which rule of the same kind has all of a pattern. Of two that are the same the
// later is reported.
func (k *checker) alreadyThere(i, j int) string {
	c := k.rules[i]
	pattern := c.rule.Calls[j]
	for n, other := range k.rules {
		if other.forbid != c.forbid || k.left.left <= 0 || !k.wider(other.rule, c.rule) {
			continue
		}
		for m, p := range other.rule.Calls {
			if n == i && m == j || k.left.left <= 0 || !covered(pattern, []string{p}, &k.left) {
				continue
			}
			later := n > i || n == i && m > j
			if later && k.wider(c.rule, other.rule) && covered(p, []string{pattern}, &k.left) {
				continue // the same: the other is reported
			}
			word := " allows it already"
			if c.forbid {
				word = " denies it already"
			}
			if n == i {
				return other.place + "." + place("calls", m) + word
			}
			return other.label() + word
		}
	}
	return ""
}

func (c *compiled) label() string {
	if c.place == "" || c.place == c.name {
		return show(c.name)
	}
	return c.place + " (" + show(c.name) + ")"
}

// conflicts warns of rules that deny a part of what c allows and are not just exceptions from it.
func (k *checker) conflicts(c *compiled) {
	for _, d := range k.rules {
		if !d.forbid || k.left.left <= 0 || !k.meet(c.rule, d.rule) {
			continue
		}
		exception := k.wider(c.rule, d.rule)
		example, found := "", false
		for _, deny := range d.rule.Calls {
			for j, allow := range c.rule.Calls {
				if found || k.dead[c.place+place("", j)] {
					continue // useless has told
				}
				example, found = overlap(allow, deny, &k.left)
			}
			exception = exception && covered(deny, c.rule.Calls, &k.left)
		}
		if found && !exception && k.left.left > 0 {
			k.list.warnf(c.place, "make sure that this is meant",
				"conflict: %s wins over %s, for %q as an example", d.label(), c.label(),
				show(sample(example, c.rule, d.rule)))
		}
	}
}

// sample makes a call that reads better of one that is as short as can be.
func sample(call string, a, b *Rule) string {
	for _, more := range []string{call + "x", call + "/x"} {
		if strings.HasSuffix(call, " ") && matchAny(a.Calls, more) && matchAny(b.Calls, more) {
			return more
		}
	}
	return call
}

func matchAny(patterns []string, call string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, call) })
}

// local warns of patterns of local calls that no rule allows anyhow.
func (k *checker) local(patterns []string) {
	for i, pattern := range patterns {
		if !slices.ContainsFunc(k.rules, func(c *compiled) bool {
			return !c.forbid && slices.ContainsFunc(c.rule.Calls, func(p string) bool {
				_, ok := overlap(p, pattern, &k.left)
				return ok || k.left.left <= 0
			})
		}) {
			k.list.warnf(place("local", i), "add a rule that allows it, or remove it",
				"no rule allows what %q matches: local callers may not either", show(pattern))
		}
	}
}

type problems []Problem

func (l *problems) errorf(path, hint, format string, args ...any) {
	*l = append(*l, Problem{Path: path, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

func (l *problems) warnf(path, hint, format string, args ...any) {
	*l = append(*l,
		Problem{Path: path, Hint: hint, Message: fmt.Sprintf(format, args...), Warning: true})
}

func hasErrors(l []Problem) bool {
	return slices.ContainsFunc(l, func(p Problem) bool { return !p.Warning })
}

// name warns of a name that is not the only one of its kind.
func (l *problems) name(path, name string, seen map[string]string) {
	if other, found := seen[name]; found {
		l.warnf(path, "give each its own: explanations and the audit name it",
			"the name %q is that of %s as well", show(name), other)
		return
	}
	seen[name] = path
}

// rule checks a rule on its own, and reports whether it can be compiled.
func (l *problems) rule(path string, r *Rule) bool {
	before := len(*l)
	switch {
	case len(r.Calls) == 0:
		l.errorf(path, `write calls: ["*"] if it is for all`, "the rule has no calls")
	case len(r.Calls) > maxPatterns:
		l.errorf(path+".calls", "write fewer, with * in them",
			"the rule has %d patterns, at most %d will do", len(r.Calls), maxPatterns)
	case len(r.Roles)+len(r.Principals) > maxNamesOfRule:
		l.errorf(path, "give those it is for a role",
			"the rule has %d roles and principals, at most %d will do", len(r.Roles)+len(r.Principals),
			maxNamesOfRule)
	default:
		for i, pattern := range r.Calls {
			l.pattern(path+"."+place("calls", i), pattern)
		}
		l.words(path, "roles", r.Roles)
		l.words(path, "principals", r.Principals)
	}
	if r.Deny && r.Destructive != nil && !*r.Destructive {
		l.warnf(path+".destructive", "write destructive: true to deny the tools that may do harm",
			"the rule denies only what says that it is harmless")
	}
	return !hasErrors((*l)[before:])
}

func (l *problems) words(path, field string, words []string) {
	seen := make(map[string]bool, len(words))
	for i, w := range words {
		at := path + "." + place(field, i)
		switch {
		case w == "":
			l.errorf(at, "leave it out", "an empty name")
		case !utf8.ValidString(w):
			l.errorf(at, "write it in UTF-8", "the name is not UTF-8")
		case strings.Contains(w, "*"):
			l.errorf(at, "name each, or write a Cedar policy with like",
				"%s are names, not patterns: %q is for no caller", field, show(w))
		case seen[w]:
			l.warnf(at, "leave it out", "%q is there twice", show(w))
		}
		seen[w] = true
	}
}

// pattern checks a pattern on its own.
func (l *problems) pattern(path, pattern string) {
	method, name, spaced := strings.Cut(pattern, " ")
	switch {
	case pattern == "":
		l.errorf(path, `write "*" for every call`, "an empty pattern matches nothing")
	case len(pattern) > maxPattern:
		l.errorf(path, "shorten it with *", "the pattern has %d bytes, at most %d will do", len(pattern),
			maxPattern)
	case !plain(pattern):
		l.errorf(path, "no call has such a character",
			"the pattern has a character that is not printed, or is not UTF-8")
	case strings.TrimSpace(pattern) != pattern:
		l.errorf(path, fmt.Sprintf("write %q", strings.TrimSpace(pattern)),
			"the pattern %q begins or ends with a space", show(pattern))
	case slices.Contains(named, pattern) && pattern != "completion/complete":
		l.errorf(path, fmt.Sprintf("write %q for all of them", pattern+" *"),
			"%s needs a name after it", pattern)
	case spaced && strings.HasPrefix(name, " "):
		l.errorf(path, fmt.Sprintf("write %q", method+" "+strings.TrimLeft(name, " ")),
			"the pattern %q has more than one space after the method", show(pattern))
	case spaced && !strings.ContainsAny(method, "*?") && !slices.Contains(named, method):
		l.warnf(path, nearest(method, named, "write "),
			"no call of %s has a name after it: the pattern matches nothing", show(method))
	case spaced && strings.HasPrefix(method, "resources/") &&
		slices.ContainsFunc([]byte(name), func(c byte) bool { return c > 0x7f }):
		l.warnf(path, "write it percent-encoded",
			"a URI has only ASCII characters: the pattern %q matches none", show(pattern))
	}
}

// nearest is a hint that names the word that is most like w, or "".
func nearest(w string, words []string, before string) string {
	best, at := len(w)/3+2, ""
	for _, other := range words {
		if d := edits.Distance(strings.ToLower(w), strings.ToLower(other)); d < best {
			best, at = d, other
		}
	}
	if at == "" {
		return ""
	}
	return before + fmt.Sprintf("%q", at)
}
