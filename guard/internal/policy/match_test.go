package policy

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, call string
		want          bool
	}{
		{"*", "", true},
		{"*", "tools/call a b", true},
		{"", "", true},
		{"", "a", false},
		{"math/add", "math/add", true},
		{"math/add", "math/ADD", false},
		{"math/*", "math/", true},
		{"math/*", "math/a/b", true},
		{"math/*", "maths/a", false},
		{"tools/call *", "tools/call", false},
		{"tools/call *", "tools/call github/x", true},
		{"tools/call github/*", "tools/call githubx/y", false},
		{"a?c", "abc", true},
		{"a?c", "aéc", true},
		{"a?c", "a😀c", true},
		{"a?c", "ac", false},
		{"a??c", "a😀c", false},
		{"*??", "😀", false},
		{"*?", "é", true},
		{"?*?", "é", false},
		{"**", "x", true},
		{"*a*b", "xxaxxbab", true},
		{"*a*b", "xxaxxba", false},
		{"a*", "a\n", true},
		{`a\*`, `a\b`, true},
		{`a.c`, `abc`, false},
	} {
		if got := Match(test.pattern, test.call); got != test.want {
			t.Errorf("Match(%q, %q) = %v", test.pattern, test.call, got)
		}
	}
}

func TestCallName(t *testing.T) {
	for _, test := range [][4]string{
		{"math/add", "", "", "math/add"},
		{"math/add", "github", "", "math/add"},
		{"tools/call", "", "add", "tools/call add"},
		{"tools/call", "github", "add", "tools/call github/add"},
		{"resources/read", "fs", "file:///a", "resources/read fs/file:///a"},
	} {
		if got := CallName(test[0], test[1], test[2]); got != test[3] {
			t.Errorf("%q: %q", test, got)
		}
	}
}

// word makes a string of a small alphabet, so that patterns often match.
func word(r *rand.Rand, alphabet string, most int) string {
	var b strings.Builder
	letters := []rune(alphabet)
	for range r.IntN(most + 1) {
		b.WriteRune(letters[r.IntN(len(letters))])
	}
	return b.String()
}

// asRegexp is another implementation of patterns.
func asRegexp(pattern string) *regexp.Regexp {
	e := regexp.QuoteMeta(pattern)
	e = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(e)
	return regexp.MustCompile(`(?s)\A` + e + `\z`)
}

// decided is what the engine says of a rule with one pattern.
func decided(t *testing.T, pattern string, q *Query) (allowed, ok bool) {
	t.Helper()
	s, problems := Compile(&Source{Rules: []Rule{{Calls: []string{pattern}}}})
	if hasErrors(problems) || callFault(q) != "" {
		return false, false
	}
	deny, _ := Compile(
		&Source{Rules: []Rule{{Calls: []string{"*"}}, {Deny: true, Calls: []string{pattern, "never"}}}})
	d := s.Decide(q)
	if deny.Decide(q).Allowed == d.Allowed {
		t.Errorf("%q on %+v: allow and deny disagree", pattern, q)
	}
	if e := s.Explain(q); e.Allowed != d.Allowed {
		t.Errorf("%q on %+v: Explain says %v", pattern, q, e)
	}
	return d.Allowed, true
}

func TestMatchIsTheEngine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	matched, total := 0, 0
	for range 12_000 {
		pattern := word(r, "ab*? /é", 6)
		q := &Query{Method: word(r, "ab/", 3), Upstream: word(r, "ab", 1), Name: word(r, "ab /é", 3)}
		call := CallName(q.Method, q.Upstream, q.Name)
		want := Match(pattern, call)
		if re := asRegexp(pattern).MatchString(call); re != want {
			t.Fatalf("Match(%q, %q) = %v, as a regular expression %v", pattern, call, want, re)
		}
		got, ok := decided(t, pattern, q)
		if !ok {
			continue
		}
		total++
		if got != want {
			t.Fatalf("Match(%q, %q) = %v, the engine says %v", pattern, call, want, got)
		}
		if want {
			matched++
		}
	}
	if total < 2000 || matched < 300 {
		t.Errorf("only %d of %d matched: the test proves little", matched, total)
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("tools/call *", "tools/call", "github", "x")
	f.Add("a?c", "aéc", "", "")
	f.Add(`"; permit(principal, action, resource); //*`, "m", "", `") || true || ("`)
	f.Add("*\\*\"?", "a\\b\"c", "", "\\")
	f.Fuzz(func(t *testing.T, pattern, method, upstream, name string) {
		if len(pattern) > 200 || len(method)+len(name) > 500 {
			return
		}
		call := CallName(method, upstream, name)
		got := Match(pattern, call)
		if utf8.ValidString(pattern) && utf8.ValidString(call) &&
			asRegexp(pattern).MatchString(call) != got {
			t.Errorf("Match(%q, %q) = %v", pattern, call, got)
		}
		if engine, ok := decided(t, pattern,
			&Query{Method: method, Upstream: upstream, Name: name}); ok && engine != got {
			t.Errorf("Match(%q, %q) = %v, the engine says %v", pattern, call, got, engine)
		}
	})
}

// all yields every word of an alphabet up to a length.
func all(alphabet string, most int, yield func(string)) {
	yield("")
	if most == 0 {
		return
	}
	for _, r := range alphabet {
		all(alphabet, most-1, func(rest string) { yield(string(r) + rest) })
	}
}

func TestContainment(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var words []string
	all("abc", 6, func(w string) { words = append(words, w) })
	claims, overlaps := 0, 0
	for range 1500 {
		p := word(r, "ab*?", 5)
		by := []string{word(r, "ab*?", 5), word(r, "ab**?", 4), word(r, "ab?*", 3)}[:1+r.IntN(3)]
		left := budget{1_000_000}
		claim := covered(p, by, &left)
		// No two words of these lengths tell less than all: six letters are more than any pattern needs
		// here.
		truth := true
		for _, w := range words {
			if Match(p, w) && !matchAny(by, w) {
				truth = false
				break
			}
		}
		if claim && !truth {
			t.Fatalf("covered(%q, %q), but it is not", p, by)
		}
		if !claim && truth && left.left > 0 {
			long := false // a counterexample may be longer than the words tried
			all("abc", 3, func(w string) {
				long = long || Match(p, "ccccccc"+w) || strings.Contains(p, "*")
			})
			if !long {
				t.Fatalf("%q is covered by %q, unnoticed", p, by)
			}
		}
		if claim {
			claims++
		}
		call, ok := overlap(p, by[0], &left)
		if ok != anyWord(words, p, by[0]) && (!ok || len(call) <= 6) {
			t.Fatalf("overlap(%q, %q) = %q, %v", p, by[0], call, ok)
		}
		if ok {
			overlaps++
			if !Match(p, call) || !Match(by[0], call) {
				t.Fatalf("overlap(%q, %q) = %q, which is not in both", p, by[0], call)
			}
		}
	}
	if claims < 100 || overlaps < 300 {
		t.Errorf("%d claims, %d overlaps: the test proves little", claims, overlaps)
	}
}

func anyWord(words []string, a, b string) bool {
	for _, w := range words {
		if Match(a, w) && Match(b, w) {
			return true
		}
	}
	return false
}

func TestContainmentExact(t *testing.T) {
	for _, test := range []struct {
		pattern string
		by      []string
		want    bool
	}{
		{"tools/call x", []string{"tools/call *"}, true},
		{"tools/call *", []string{"tools/call x*"}, false},
		{"?*", []string{"*?"}, true},
		{"*", []string{"?*"}, false},
		{"*", []string{"?*", ""}, true},
		{"a*", []string{"a", "a?", "a??*"}, true},
		{"a*", []string{"a", "a??*"}, false},
		{"*a*b*", []string{"*a*", "x"}, true},
		{"*a*", []string{"*a*b*"}, false},
		{"a*b", []string{"a*", "*b"}, true},
		{"x?z", []string{"xyz"}, false},
	} {
		if got := covered(test.pattern, test.by, &budget{100_000}); got != test.want {
			t.Errorf("covered(%q, %q) = %v", test.pattern, test.by, got)
		}
	}
	if covered("*a*a*a*a*b", []string{"*a*a*a*a*c"}, &budget{3}) {
		t.Error("without a budget nothing may be claimed")
	}
}
