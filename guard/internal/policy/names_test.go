package policy

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestAppendFolded: names fold to the same exactly when strings.EqualFold takes them for equal.
func TestAppendFolded(t *testing.T) {
	words := []string{
		"", "k", "K", "\u212a", "s", "S", "ſ", "ß", "ẞ", "ss", "σ", "ς", "Σ", "i", "I",
		"ı", "İ", "é", "É", "e\u0301", "path", "PATH", "pat\u0048", "a\x00", "\ufffd",
	}
	for _, a := range words {
		for _, b := range words {
			if got := string(AppendFolded(nil, []byte(a))) == string(AppendFolded(nil, []byte(b))); got !=
				strings.EqualFold(a, b) {
				t.Errorf("%q and %q: %v", a, b, got)
			}
		}
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		f := folded(r)
		if !strings.EqualFold(string(f), string(r)) ||
			utf8.RuneLen(r) > maxGrowth*max(utf8.RuneLen(f), 1) {
			t.Errorf("%U folds to %U", r, f)
		}
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		`permit(principal, action, resource);`: "nil",
		`permit(principal in Role::"a", action, resource) when { principal.id == "x" && ` +
			`context.local };`: "nil",
		`permit(principal, action, resource) when { ` +
			`context.arguments has a };`: "A",
		`permit(principal, action, resource) when { context.arguments has a.b && ` +
			`context.arguments.a.c == 1 };`: "A B C",
		`permit(principal, action, resource) when { context.arguments has "x y" && ` +
			`principal.claims.team == "a" && resource.name == "b" };`: "X Y",
		`permit(principal, action, resource) when { (if context.local then context else ` +
			`context).arguments.p == 1 };`: "ARGUMENTS P",
		`permit(principal, action, resource) when { context.arguments == {"mode": ` +
			`{"deep": 1}} };`: "DEEP MODE",
		`permit(principal, action, resource) when { [{"in": ` +
			`1}].contains(context.arguments.k) };`: "IN K",
		`permit(principal, action, resource) when { ` +
			`context == {} };`: "",
		`permit(principal, action, resource) when { context.annotations.readOnlyHint && ` +
			`context.arguments.n > 1 };`: "N",
	} {
		set, list := Compile(&Source{Cedar: []Text{{Text: text}}})
		if hasErrors(list) {
			t.Errorf("%s: %v", text, list)
		}
		got := "nil"
		if n := set.Names(); n != nil {
			var all []string
			for name := range n.spellings {
				all = append(all, name)
			}
			slices.Sort(all)
			got = strings.Join(all, " ")
		}
		if got != want {
			t.Errorf("%s: %q; want %q", text, got, want)
		}
	}
}

// TestNamesInTwoSpellings: policies cannot look up two names that servers take for one.
func TestNamesInTwoSpellings(t *testing.T) {
	set, list := Compile(
		&Source{Cedar: []Text{{
			Name: "p.cedar",
			Text: `permit(principal, action, resource) when { context.arguments has path };
forbid(principal, action, resource) when { context.arguments has Path };`,
		}}})
	if len(list) != 1 || !list[0].Warning || list[0].Line != 2 || list[0].Path != "p.cedar" ||
		!strings.Contains(list[0].Message, `both path and Path`) {
		t.Errorf("%+v", list)
	}
	for key, want := range map[string]string{
		"path": "Path", "Path": "path", "PATH": "path",
		"paths": "", "p": "", strings.Repeat("path", 100): "",
	} {
		if got := set.Names().Mistaken([]byte(key)); got != want {
			t.Errorf("%s: %q; want %q", key, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		set.Names().Mistaken([]byte("a name of some length"))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
