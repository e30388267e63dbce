package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/race"
)

func TestSyntaxErrors(t *testing.T) {
	const good = "permit (principal, action, resource);\n"
	for _, test := range []struct {
		text         string
		line, column int
		message      string
	}{
		{good + "permit (princi, action, resource);", 2, 9, "found princi where principal must be"},
		{good + "\n  permit (principal, action, resource)\n", 4, 1, "found the end where ; must be"},
		{good + "permt (principal, action, resource);", 2, 7, "unexpected effect: permt"},
		{"// é\npermit (principal, action, resource) when { é };", 2, 47, "invalid primary"},
		{`permit (principal, action, resource) when { foo() };`, 1, 49, "`foo` is not a function"},
		{`permit (principal, action, resource) when { "a };`, 1, 45, "not terminated"},
		{
			good + good + `permit (principal, action, resource) when { principal.x == "\q" };`, 3, 60,
			"invalid char escape",
		},
		{
			good + `permit (principal, action, resource) when { 99999999999999999999 > 1 };`, 1, 0,
			"not valid Cedar",
		},
		{"\n" + strings.Repeat("(", maxNesting+1), 2, 0, "nested too deeply"},
		{strings.Repeat("- ", maxNesting+1), 1, 0, "nested too deeply"},
		{strings.Repeat(" ", maxText+1), 0, 0, "at most"},
		{
			good + "permit (principal, action, resource) when { context has a" +
				strings.Repeat(".a", maxDots+1) + "};", 2, 0, "nested too deeply",
		},
		{
			good + `permit (principal, action, resource) when { "` + strings.Repeat("a", maxOne) +
				`" == "" };`, 2, 0, "too long",
		},
		{strings.Repeat("permit (principal,action,resource);", maxPolicies+1), 0, 0, "at most"},
	} {
		s, problems := Compile(&Source{Cedar: []Text{{Name: "p.cedar", Text: test.text}}})
		if len(problems) != 1 || s.Empty() || s.Decide(&Query{Method: "m"}).Allowed {
			t.Errorf("%.80q: %+v", test.text, problems)
			continue
		}
		p := problems[0]
		if p.Warning || p.Path != "p.cedar" || p.Line != test.line || p.Column != test.column ||
			!strings.Contains(p.Message, test.message) {
			t.Errorf("%.80q: %+v", test.text, p)
		}
	}
	for _, text := range []string{
		`permit (principal, action, resource) when { "((((" == "\"))" }; // ` +
			strings.Repeat("([{!", 99),
	} {
		if _, problems := Compile(&Source{Cedar: []Text{{Text: text}}}); len(problems) > 0 {
			t.Errorf("%s: %+v", text, problems)
		}
	}
}

func TestVocabulary(t *testing.T) {
	for policy, want := range map[string]string{
		`permit (principal is Usr, ` +
			`action, resource);`: `principal is never of the type Usr|is it "User"`,
		`permit (principal == Tool::"x", ` +
			`action, resource);`: `principal is never of the type Tool`,
		`permit (principal, action, resource in ` +
			`Upstrea::"x");`: `resource is never of the type Upstrea|is it "Upstream"`,
		`permit (principal in Group::"x", ` +
			`action, resource);`: `principal is never of the type Group`,
		`permit (principal, action == ` +
			`Action::"tool/call", resource);`: `Action::"tool/call" is no method of MCP, but almost|is it ` +
			`"tools/call"`,
		`permit (principal, action == ` +
			`Action::"Tools/Call", resource);`: `almost|is it "tools/call"`,
		`permit (principal, action in ` +
			`[Action::"read"], resource);`: `is a method of that name, not a group|any read`,
		`permit (principal, action == Action::"tools/call ` +
			`x", resource);`: `methods have no spaces`,
		`permit (principal, action in ` +
			`Acton::"read", resource);`: `action is never of the type Acton|is it "Action"`,
		`permit (principal, action, resource) when { ` +
			`principal.role == "x" };`: `principal has no attribute "role"|is it "roles"`,
		`permit (principal, action, resource) when { resource ` +
			`has title };`: `resource has no attribute "title"`,
		`permit (principal, action, resource) when { ` +
			`context.argument.x == 1 };`: `context has no attribute "argument"|is it "arguments"`,
		`permit (principal, action, resource) when { ` +
			`context.annotations.destructive };`: `context.annotations has no attribute "destructive"|is ` +
			`it "destructiveHint"`,
		`permit (principal, action, resource) when { ` +
			`action.name == "x" };`: `an action has no attribute "name"|action == Action`,
		`permit (principal, action, resource) when { principal in [Rolle::"x", ` +
			`Role::"y"] };`: `anything is never of the type Rolle|is it "Role"`,
		`permit (principal, action, resource) when { resource is Tol in ` +
			`Upstream::"x" };`: `resource is never of the type Tol|is it "Tool"`,
		`permit (principal, action == Action::"math/add", resource) when { context.arguments.anything ` +
			`has x && principal.claims.what == Json::"null" };`: "",
		`permit (principal in Issuer::"i", action in [Action::"any call", Action::"tools/list"], ` +
			`resource is Tool in Upstream::"u");`: "",
		`forbid (principal, action, resource) when { ` +
			`context.local };`: `nothing is allowed`,
		`// nothing`: `there is no policy in it`,
	} {
		_, problems := Compile(&Source{Cedar: []Text{{Name: "v", Text: "\n" + policy}}})
		message, hint, _ := strings.Cut(want, "|")
		if want == "" {
			if len(problems) > 0 {
				t.Errorf("%s: %+v", policy, problems)
			}
			continue
		}
		if len(problems) != 1 || !problems[0].Warning ||
			!strings.Contains(problems[0].Message, message) || !strings.Contains(problems[0].Hint, hint) {
			t.Errorf("%s: %+v, want %s", policy, problems, want)
		}
	}
}

func TestPolicyNames(t *testing.T) {
	s, problems := Compile(&Source{
		Rules: []Rule{{Name: "same", Calls: []string{"a"}}},
		Cedar: []Text{
			{
				Name: "x.cedar",
				Text: "permit (principal, action, resource);permit (principal, action, resource);\n" +
					"@id(\"same\") permit (principal, action, resource);",
			}, {
				Text: "\npermit (principal, action, resource);",
			},
		},
	})
	want := []string{"same", "x.cedar:1", "x.cedar:1:38", "same", "cedar:2"}
	if d := s.Decide(&Query{Method: "a"}); !slices.Equal(d.Policies, want) {
		t.Errorf("%q, want %q", d.Policies, want)
	}
	if len(problems) != 1 ||
		!strings.Contains(problems[0].Message, `the name "same" is that of allow[0]`) {
		t.Errorf("%+v", problems)
	}
}

// What an operator writes may be wrong in any way, and takes no long time.
func TestHostileText(t *testing.T) {
	const head = "permit (principal, action, resource) when { "
	for name, text := range map[string]string{
		"ifs":      head + strings.Repeat("if true then 1 else ", maxOne/20),
		"ors":      head + strings.Repeat("true || ", maxOne/8-20) + "true };",
		"ands":     head + strings.Repeat("true && ", maxOne/8-20) + "true };",
		"sums":     head + strings.Repeat("1+", maxOne/2-60) + "1 == 1 };",
		"accesses": head + "context" + strings.Repeat(`["a"]`, maxOne/5-60) + " };",
		"methods":  head + "[]" + strings.Repeat(".isEmpty()", maxOne/10-60) + " };",
		"set":      head + "[" + strings.Repeat("1,", maxOne/2-60) + "1].contains(2) };",
		"unclosed": head + strings.Repeat("[{", 30),
		"likes": head + `"` + strings.Repeat("a", 1000) + `" like "` +
			strings.Repeat("*a", 14_000) + `b" };`,
		"whens": "permit (principal, action, resource) " + strings.Repeat("when{true}", maxOne/10-60) +
			";",
		"has": strings.Repeat(
			head+"true"+strings.Repeat(" && context has "+strings.Repeat("a.", maxDots-2)+"a", maxOne/48-9)+
				" };", maxText/maxOne),
		"bom":  "\ufeff" + head,
		"nul":  head + "\x00",
		"utf8": head + "\xff\xfe",
	} {
		t.Run(name, func(t *testing.T) {
			start, most := time.Now(), 10*time.Second
			if race.Enabled {
				most = time.Minute
			}
			s, problems := Compile(&Source{Cedar: []Text{{Text: text}}})
			s.Decide(&Query{Method: "m"})
			s.Explain(&Query{Method: "m"})
			if d := time.Since(start); d > most {
				t.Errorf("it took %v", d)
			} else {
				t.Logf("%v, %.200v", d, problems)
			}
		})
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`permit (principal, action, resource);`, "tools/call *", "dev", "math/*")
	f.Add(`@id("a") forbid (principal == User::"a", action in [Action::"x"], resource is Tool in `+
		`Upstream::"u") when { context has a.b && [1] like "x*" } unless { ip("::1").isLoopback() };`,
		"*", "", "a?")
	f.Add(`permit (principal, action, resource) when { {"a": if 1 < -9223372036854775808 then `+
		`principal.hasTag("x") else !!true}["a"] };`, "?", "*", "**")
	f.Add(`permit (principal, action, resource == ?resource);`, " a", "é", "tools/call")
	for _, h := range hostile {
		f.Add(h, h, h, h)
	}
	f.Fuzz(func(t *testing.T, text, pattern, word, other string) {
		if len(text)+len(pattern)+len(other) > 4000 {
			return
		}
		src := &Source{
			Rules: []Rule{
				{Name: word, Roles: []string{word}, Calls: []string{pattern, other}},
				{Deny: true, Principals: []string{word}, Calls: []string{other, pattern}},
				{Calls: []string{other}},
			},
			Local: []string{pattern},
			Cedar: []Text{{Name: word, Text: text}},
		}
		q := &Query{Subject: user(word, word), Method: "m", Name: other, Arguments: []byte(text)}
		s, problems := Compile(src)
		if d, e := s.Decide(q), s.Explain(q); d.Allowed != e.Allowed || hasErrors(problems) && d.Allowed {
			t.Errorf("%+v, %+v, %+v", d, e, problems)
		}
		for _, p := range problems {
			if p.Message == "" || p.Path == "" && word != "" {
				t.Errorf("%+v", p)
			}
		}
		rules, problems := Compile(&Source{Rules: src.Rules, Local: src.Local})
		if !hasErrors(problems) {
			rules.Explain(q)
		}
	})
}
