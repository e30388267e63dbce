package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

type problems []Problem

func (l *problems) errorf(path, hint, format string, args ...any) {
	*l = append(*l, Problem{Path: path, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

func (l *problems) warnf(path, hint, format string, args ...any) {
	*l = append(*l, Problem{Path: path, Hint: hint, Message: fmt.Sprintf(format, args...), Warning: true})
}

func hasErrors(l []Problem) bool {
	return slices.ContainsFunc(l, func(p Problem) bool { return !p.Warning })
}

// name warns of a name that is not the only one of its kind.
func (l *problems) name(path, name string, seen map[string]string) {
	if other, found := seen[name]; found {
		l.warnf(path, "give each its own: explanations and the audit name it", "the name %q is that of %s as well", show(name), other)
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
		l.errorf(path+".calls", "write fewer, with * in them", "the rule has %d patterns, at most %d will do", len(r.Calls), maxPatterns)
	case len(r.Roles)+len(r.Principals) > maxNamesOfRule:
		l.errorf(path, "give those it is for a role", "the rule has %d roles and principals, at most %d will do", len(r.Roles)+len(r.Principals), maxNamesOfRule)
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
			l.errorf(at, "name each, or write a Cedar policy with like", "%s are names, not patterns: %q is for no caller", field, show(w))
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
		l.errorf(path, "shorten it with *", "the pattern has %d bytes, at most %d will do", len(pattern), maxPattern)
	case !plain(pattern):
		l.errorf(path, "no call has such a character", "the pattern has a character that is not printed, or is not UTF-8")
	case strings.TrimSpace(pattern) != pattern:
		l.errorf(path, fmt.Sprintf("write %q", strings.TrimSpace(pattern)), "the pattern %q begins or ends with a space", show(pattern))
	case slices.Contains(named, pattern) && pattern != "completion/complete":
		l.errorf(path, fmt.Sprintf("write %q for all of them", pattern+" *"), "%s needs a name after it", pattern)
	case spaced && strings.HasPrefix(name, " "):
		l.errorf(path, fmt.Sprintf("write %q", method+" "+strings.TrimLeft(name, " ")), "the pattern %q has more than one space after the method", show(pattern))
	case spaced && !strings.ContainsAny(method, "*?") && !slices.Contains(named, method):
		l.warnf(path, nearest(method, named, "write "), "no call of %s has a name after it: the pattern matches nothing", show(method))
	case spaced && strings.HasPrefix(method, "resources/") && slices.ContainsFunc([]byte(name), func(c byte) bool { return c > 0x7f }):
		l.warnf(path, "write it percent-encoded", "a URI has only ASCII characters: the pattern %q matches none", show(pattern))
	}
}

// nearest is a hint that names the word that is most like w, or "".
func nearest(w string, words []string, before string) string {
	best, at := len(w)/3+2, ""
	for _, other := range words {
		if d := distance(w, other); d < best {
			best, at = d, other
		}
	}
	if at == "" {
		return ""
	}
	return before + fmt.Sprintf("%q", at)
}

// distance is that of Levenshtein, without regard to capitals, between the beginnings of two words.
func distance(a, b string) int {
	const most = 64
	a, b = strings.ToLower(a[:min(len(a), most)]), strings.ToLower(b[:min(len(b), most)])
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost++
			}
			corner = row[j+1]
			row[j+1] = min(cost, corner+1, row[j]+1)
		}
	}
	return row[len(b)]
}
