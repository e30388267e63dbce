package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRuleProblems(t *testing.T) {
	yes, no := true, false
	dev := []string{"dev"}
	allow := func(calls ...string) Rule { return Rule{Roles: dev, Calls: calls} }
	deny := func(calls ...string) Rule { return Rule{Deny: true, Calls: calls} }
	for name, test := range map[string]struct {
		rules []Rule
		local []string
		want  []string // "!" before an error; PATH: a part of the message or hint
	}{
		"fine": {
			rules: []Rule{
				allow("math/*", "tools/call github/*", "completion/complete x"),
				{Deny: true, Roles: dev, Calls: []string{"math/rm"}},
			}, local: []string{"math/x"},
		},
		"no calls": {rules: []Rule{{Roles: dev}}, want: []string{"!allow[0]: no calls"}},
		"empty pattern": {
			rules: []Rule{allow("")},
			want:  []string{"!allow[0].calls[0]: empty pattern"},
		},
		"only tools/call": {
			rules: []Rule{allow("a", "tools/call")},
			want:  []string{`!allow[0].calls[1]: write "tools/call *"`},
		},
		"space at the end": {
			rules: []Rule{allow("tools/call ")},
			want:  []string{`!allow[0].calls[0]: write "tools/call"`},
		},
		"two spaces": {
			rules: []Rule{allow("tools/call  x")},
			want:  []string{`!allow[0].calls[0]: write "tools/call x"`},
		},
		"control": {
			rules: []Rule{allow("a\nb")},
			want:  []string{"!allow[0].calls[0]: not printed"},
		},
		"not UTF-8": {
			rules: []Rule{allow("a\xff")},
			want:  []string{"!allow[0].calls[0]: not UTF-8"},
		},
		"long": {
			rules: []Rule{allow(strings.Repeat("a", maxPattern+1))},
			want:  []string{"!allow[0].calls[0]: at most"},
		},
		"method with name": {
			rules: []Rule{allow("Tools/Call x", "zzz y")},
			want:  []string{`allow[0].calls[0]: write "tools/call"`, "allow[0].calls[1]: matches nothing"},
		},
		"URI not encoded": {
			rules: []Rule{allow("resources/read file:///é*")},
			want:  []string{"allow[0].calls[0]: percent-encoded"},
		},
		"role pattern": {
			rules: []Rule{{Roles: []string{"dev*", "", "a", "a"}, Calls: []string{"a"}}},
			want: []string{
				"!allow[0].roles[0]: not patterns", "!allow[0].roles[1]: empty name",
				"allow[0].roles[3]: twice",
			},
		},
		"many calls": {
			rules: []Rule{{Calls: make([]string, maxPatterns+1)}},
			want:  []string{"!allow[0].calls: at most"},
		},
		"many roles": {
			rules: []Rule{{Roles: make([]string, maxNamesOfRule+1), Calls: []string{"*"}}},
			want:  []string{"!allow[0]: at most"},
		},
		"many rules": {rules: make([]Rule, maxRules+1), want: []string{"!allow: at most"}},
		"same name": {
			rules: []Rule{{Name: "x", Calls: []string{"a"}}, {Name: "x", Calls: []string{"b"}}},
			want:  []string{`allow[1]: the name "x"`},
		},
		"only deny": {rules: []Rule{deny("a")}, want: []string{"deny[0]: nothing is allowed"}},
		"never counts": {
			rules: []Rule{allow("a/b", "a/c"), deny("a/*")},
			want:  []string{"allow[0]: the rule can never count: deny[0] denies it"},
		},
		"partly never": {
			rules: []Rule{allow("a/b", "c"), deny("a/*")},
			want:  []string{"allow[0].calls[0]: the pattern can never count: deny[0] denies it"},
		},
		"never, together": {
			rules: []Rule{allow("a?*"), deny("a?"), deny("a??*")},
			want:  []string{"allow[0]: the rule can never count: deny[0] and deny[1] deny it together"},
		},
		"denied to others": {
			rules: []Rule{allow("a/b"), {Deny: true, Roles: []string{"ops"}, Calls: []string{"a/*"}}},
		},
		"duplicate": {
			rules: []Rule{allow("a", "b"), allow("a")},
			want:  []string{"allow[1]: the rule has no effect: allow[0] allows it already"},
		},
		"shadowed": {
			rules: []Rule{
				{Roles: dev, Calls: []string{"math/add"}}, {Name: "all", Calls: []string{"math/*"}},
			}, want: []string{"allow[0]: the rule has no effect: allow[1] (all) allows it already"},
		},
		"in itself": {
			rules: []Rule{allow("a*", "ab", "ab")},
			want: []string{
				"allow[0].calls[1]: allow[0].calls[0] allows it already",
				"allow[0].calls[2]: allow[0].calls[0] allows it already",
			},
		},
		"wider by role": {
			rules: []Rule{allow("a"), {Roles: []string{"dev", "ops"}, Calls: []string{"a"}}},
			want:  []string{"allow[0]: allow[1] allows it already"},
		},
		"harmless is less": {
			rules: []Rule{{Calls: []string{"tools/call *"}, Destructive: &no}, allow("tools/call x")},
		},
		"deny harmless": {
			rules: []Rule{
				allow("*"), {Deny: true, Roles: dev, Calls: []string{"tools/call x"}, Destructive: &no},
			}, want: []string{"deny[0].destructive: destructive: true"},
		},
		"apart by harm": {
			rules: []Rule{
				{Calls: []string{"tools/call *"}, Destructive: &no},
				{Deny: true, Calls: []string{"tools/call *"}, Destructive: &yes},
			},
		},
		"deny twice": {
			rules: []Rule{
				allow("*"),
				{Deny: true, Roles: dev, Calls: []string{"a"}},
				{Deny: true, Roles: dev, Calls: []string{"a"}},
			},
			want: []string{"deny[1]: deny[0] denies it already"},
		},
		"conflict": {
			rules: []Rule{{Calls: []string{"tools/call github/*"}}, deny("tools/call *delete*")},
			want: []string{
				`allow[0]: conflict: deny[0] wins over allow[0], for "tools/call github/delete"`,
			},
		},
		"exception": {
			rules: []Rule{{Calls: []string{"tools/call *"}}, deny("tools/call *delete*")},
		},
		"conflict of role": {
			rules: []Rule{{Name: "admins", Roles: []string{"admin"}, Calls: []string{"*"}}, deny("rm")},
			want:  []string{`allow[0]: conflict: deny[0] wins over allow[0] (admins), for "rm"`},
		},
		"local without a name": {
			rules: []Rule{allow("a/*")}, local: []string{"b/*", "?/x", "tools/call"},
			want: []string{"!local[2]: needs a name"},
		},
		"local not used": {
			rules: []Rule{allow("a/*")}, local: []string{"b/*", "?/x"},
			want: []string{"local[0]: no rule allows"},
		},
		"local pattern": {local: []string{""}, want: []string{"!local[0]: empty pattern"}},
	} {
		s, problems := Compile(&Source{Rules: test.rules, Local: test.local})
		if len(problems) != len(test.want) {
			t.Errorf("%s: %+v, want %q", name, problems, test.want)
			continue
		}
		for i, p := range problems {
			path, words, _ := strings.Cut(strings.TrimPrefix(test.want[i], "!"), ": ")
			isError := strings.HasPrefix(test.want[i], "!")
			if p.Path != path || p.Warning == isError || !strings.Contains(p.Message+"; "+p.Hint, words) {
				t.Errorf("%s: %+v, want %s", name, p, test.want[i])
			}
			if isError && s.Decide(&Query{Method: "a", Subject: user("a", "dev"), Local: true}).Allowed {
				t.Errorf("%s: a set with errors allows", name)
			}
		}
	}
	// Where Cedar may allow it, there is no warning about local calls.
	if _, problems := Compile(
		&Source{
			Local: []string{"x"}, Rules: []Rule{allow("a")},
			Cedar: []Text{{Text: "permit (principal, action, resource);"}},
		}); len(problems) > 0 {
		t.Errorf("%+v", problems)
	}
}

// Comparing takes bounded time, and says so when it gives up.
func TestCheckIsBounded(t *testing.T) {
	var rules []Rule
	for i := range checkPairs {
		r := Rule{Deny: i%2 == 0}
		for j := range 30 {
			r.Calls = append(r.Calls, strings.Repeat("*a?b", 20)+fmt.Sprint(i, "*", j))
		}
		rules = append(rules, r)
	}
	start := time.Now()
	_, problems := Compile(&Source{Rules: rules})
	if d := time.Since(start); d > 20*time.Second || hasErrors(problems) ||
		!strings.Contains(problems[len(problems)-1].Message, "in full") {
		t.Errorf("%v: %+v", d, problems[len(problems)-1])
	} else {
		t.Log(d)
	}
	for range 2 {
		rules = append(rules, Rule{Calls: []string{"x"}})
	}
	if _, problems := Compile(&Source{Rules: rules}); len(problems) != 1 ||
		!strings.Contains(problems[0].Message, "not compared") {
		t.Errorf("%d problems", len(problems))
	}
}
