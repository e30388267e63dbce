package uritemplate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, test := range []struct{ template, uri, want string }{
		{
			"repo://{owner}/{repo}/contents{/path*}", "repo://o/r/contents/a/b",
			`owner="o" repo="r" path="a/b"["a" "b"]`,
		},
		{
			"repo://{owner}/{repo}/contents{/path*}", "repo://o/r/contents/a",
			`owner="o" repo="r" path="a"`,
		},
		{"repo://{owner}/{repo}/contents{/path*}", "repo://o/r/contents", `owner="o" repo="r"`},
		{
			"repo://{owner}/{repo}/contents{/path*}", "repo://o/r/contents/a%2Fb/c",
			`owner="o" repo="r" path="a/b/c"["a/b" "c"]`,
		},
		{"file:///{+path}", "file:///a/b/c.txt", `path="a/b/c.txt"`},
		{"x://h/{a,b}", "x://h/1,2", `a="1" b="2"`},
		{"x://h/{a}", "x://h/1,2", `a="1,2"["1" "2"]`},
		{"x://h/{a}", "x://h/1%2C2", `a="1,2"`},
		{"x://h{/a*}", "x://h/1/2/3", `a="1/2/3"["1" "2" "3"]`},
		{"x://h{/a,b*}", "x://h/1/2/3", `a="1" b="2/3"["2" "3"]`},
		{"x://h{/a}", "x://h/1/2", ``},
		{"x://h{.ext}", "x://h.tar", `ext="tar"`},
		{"x://h{;a,b}", "x://h;b=2;a", `a="" b="2"`},
		{"x://h{#at}", "x://h#a/b", `at="a/b"`},
		{"x://h{?q,r}", "x://h?q=1&r=2", `q="1" r="2"`},
		{"x://h{?q,r}", "x://h?r=2&q=1", `q="1" r="2"`},
		{"x://h{?q,r}", "x://h?r=2", `r="2"`},
		{"x://h{?q,r}", "x://h", `-`},
		{"x://h{?q}", "x://h?other=1", ``},
		{"x://h{?q}", "x://h?q=1&q=2", ``},
		{"x://h{?q*}", "x://h?q=1&q=2", `q="1,2"["1" "2"]`},
		{"x://h?f=1{&q}", "x://h?f=1&q=2", `q="2"`},
		{"x://h/{a:3}", "x://h/abc", `a="abc"`},
		{"x://h/{a:3}", "x://h/abcd", ``},
		{"x://h/{id}", "x://h/a%20b%2Fc", `id="a b/c"`},
		{"x://h/{id}", "x://h/日本", `id="日本"`},
		{"x://h/{id}", "x://h/%e6%97%a5", `id="日"`},
		{"weather://{city}/current", "weather://São Paulo/current", `city="São Paulo"`},
		{"weather://münchen/{x}", "weather://m%C3%BCnchen/1", `x="1"`},
		{"x://h/{a}", "x://h/100%", `a="100%"`},
		{"x://h/{a}", "x://h/1/2", ``},
		{"x://h", "x://H", ``},
	} {
		parsed, err := Parse(test.template)
		if err != nil {
			t.Errorf("%s: %v", test.template, err)
			continue
		}
		if got := show(parsed.Match(test.uri)); got != test.want {
			t.Errorf("%s of %s: %s, want %s", test.uri, test.template, got, test.want)
		}
	}
}

func show(values []Value, ok bool) string {
	switch {
	case !ok:
		return ""
	case len(values) == 0:
		return "-"
	}
	var all []string
	for _, v := range values {
		one := fmt.Sprintf("%s=%q", v.Name, v.Text)
		if len(v.List) != 1 {
			one += fmt.Sprintf("%q", v.List)
		}
		all = append(all, one)
	}
	return strings.Join(all, " ")
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{
		"a{", "a}", "a{}", "{a b}", "{a:0}", "{a:3*}", "{a:x}", "{+}",
		"{a,}", "{=a}",
	} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q is no template", text)
		}
	}
}

// What a template expands to, it matches with the same values.
func TestMatchReversesExpansion(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	operators := []string{"", "+", "#", ".", "/", ";", "?", "&"}
	for range 4_000 {
		template, uri := "x:/lit", "x:/lit"
		want := map[string][]string{}
		for i := range 1 + r.IntN(2) {
			operator := operators[r.IntN(len(operators))]
			name := fmt.Sprint("v", i)
			list := []string{word(r, operator)}
			explode := ""
			if r.IntN(2) == 0 {
				explode = "*"
				for r.IntN(2) == 0 {
					list = append(list, word(r, operator))
				}
			}
			template += fmt.Sprintf("{%s%s%s}!%d!", operator, name, explode, i)
			uri += fmt.Sprintf("%s!%d!", expand(operator, name, explode != "", list), i)
			want[name] = list
		}
		parsed, err := Parse(template)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := parsed.Match(uri)
		if !ok || len(got) != len(want) {
			t.Fatalf("%s of %s: %v %v, want %q", uri, template, got, ok, want)
		}
		for _, v := range got {
			if !slices.Equal(v.List, want[v.Name]) {
				t.Fatalf("%s of %s: %s is %q, want %q", uri, template, v.Name, v.List, want[v.Name])
			}
		}
	}
}

// expand expands an expression of one variable (RFC 6570, section 3.2.1).
func expand(operator, name string, explode bool, list []string) string {
	var o coder
	o.operator, _ = operatorOf((operator + " ")[0])
	var all []string
	for _, one := range list {
		all = append(all, o.encode(one))
	}
	switch {
	case o.named && explode:
		for i := range all {
			all[i] = name + "=" + all[i]
		}
		return o.first + strings.Join(all, o.sep)
	case o.named:
		return o.first + name + "=" + strings.Join(all, ",")
	case explode:
		return o.first + strings.Join(all, o.sep)
	}
	return o.first + strings.Join(all, ",")
}

type coder struct{ operator }

func (o coder) encode(text string) string {
	keep := ""
	if o.reserved {
		keep = ":/?#[]@!$&'()*+,;="
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		if isUnreserved(c) || strings.IndexByte(keep, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// word returns a value that is not empty, without what separates values where the
// operator does not encode it.
func word(r *rand.Rand, operator string) string {
	letters := []rune("ab 1-_~%é日😀\"<")
	switch operator {
	case "+", "#":
		letters = append(letters, []rune("/?&;=.")...)
	case ".": // a dot is not encoded, but separates
		letters = append(letters, []rune("/?#&;=,!:@")...)
	default:
		letters = append(letters, []rune("./?#&;=,!:@")...)
	}
	var b strings.Builder
	for range 1 + r.IntN(5) {
		b.WriteRune(letters[r.IntN(len(letters))])
	}
	return b.String()
}

func FuzzMatch(f *testing.F) {
	f.Add("x://h/{a}{?q,r*}{/p*}", "x://h/1?q=2&r=3")
	f.Add("{+a}{#b:2}", "a#b")
	f.Fuzz(func(t *testing.T, template, uri string) {
		parsed, err := Parse(template)
		if err != nil {
			return
		}
		if values, ok := parsed.Match(uri); ok &&
			len(values) > strings.Count(template, "{")+strings.Count(template, ",") {
			t.Errorf("%q of %q: %v", uri, template, values)
		}
	})
}

func TestHas(t *testing.T) {
	tmpl, err := Parse("repo://{owner}/x{/path*}{?q,at:3}")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"owner": true, "path": true, "q": true, "at": true,
		"": false, "repo": false, "path*": false,
	} {
		if got := tmpl.Has(name); got != want {
			t.Errorf("Has(%q) = %v, want %v", name, got, want)
		}
	}
}
