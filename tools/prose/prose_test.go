package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPatterns runs each pattern on its own examples, in each kind of text that it holds for.
func TestPatterns(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range patterns {
		p := &patterns[i]
		if seen[p.name] || p.suggest == "" || p.bad == "" || p.good == "" {
			t.Errorf("%q: its name is used twice, or it lacks a suggestion or an example", p.name)
		}
		seen[p.name] = true
		for text, want := range map[string]bool{p.bad: true, p.good: false} {
			sources := map[string]string{}
			if p.in&comment != 0 {
				sources["comment.go"] = "package a\n\n// " + text + "\nvar _ = 1\n"
			}
			if p.in&literal != 0 {
				sources["literal.go"] = "package a\n\nvar _ = `" + text + "`\n"
			}
			if p.in&page != 0 {
				sources["page.md"] = "# A page\n\n" + text + "\n"
				sources["script.txtar"] = "exec farcall\nstdout '" + text + "'\n"
				sources["script.sh"] = "# " + text + "\n"
			}
			for file, src := range sources {
				found, err := find(file, []byte(src))
				if err != nil {
					t.Fatal(err)
				}
				got := slices.ContainsFunc(found, func(f *finding) bool { return f.pattern == p })
				if got != want {
					t.Errorf("%s: %s: %q: found %t, want %t", p.name, file, text, got, want)
				}
			}
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]int{
		"package a\n\nfunc hurriedDial() {}\n":                            1,
		"package a\n\ntype laneContext struct{ lateGhost bool }\n":        2,
		"package a\n\nfunc f(inFlight int) { planes := 1; _ = planes }\n": 0,
		"package a\n\nfunc f() { stranger := 1; _ = stranger }\n":         1,
		"package a\n\nconst HTTPLane = 1\n":                               1,
	} {
		found, err := find("a.go", []byte(src))
		if err != nil || len(found) != want {
			t.Errorf("%q: %d findings, want %d (%v)", src, len(found), want, err)
		}
	}
}

// TestLines finds what is split over two lines, and reports the line on which it begins.
func TestLines(t *testing.T) {
	t.Parallel()
	found, err := find("a.go", []byte("package a\n\n// A call\n// of\n// which we know.\nvar _ = 1\n"))
	if err != nil || len(found) != 1 || found[0].line != 4 {
		t.Fatalf("%v, %v", found, err)
	}
	if got := found[0].String(); !strings.HasPrefix(got,
		`a.go:4: of which in "A call of which we know.": write `) {
		t.Errorf("%s", got)
	}
	if _, err := find("a.go", []byte("not Go")); err == nil {
		t.Error("not Go: no error")
	}
}

func TestLongLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 21)
	for text, want := range map[string]int{
		"a\n" + long:                         1,
		strings.Repeat("é", 100):             0,
		"| " + long:                          0,
		"```\n" + long + "\n```\n" + long:    1,
		"see https://example.com/" + long:    0,
		long[:100] + "\n" + long[:101] + "x": 1,
	} {
		if got := longLines([]byte(text), true); len(got) != want {
			t.Errorf("%q: lines %v, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int{
		"// " + long:                              1,
		"//\t" + long:                             0,
		"// https://example.com/ " + long:         0,
		"x = \"https://example.com/\" // " + long: 1,
		"// Output:\n// a\n// " + long:            0,
		"// Output:\n// a\n\n// " + long:          1,
		"x = 1 //nolint:errcheck // " + long:      0,
		"x = \"" + long + "\"":                    1,
		"x = `" + long + "`":                      1,
		"x = `" + long + "\n" + long + "`\n":      0,
		"x = `a\nb` + \"\" +\n\"" + long + "\"":   1,
	} {
		if got := longLines([]byte(text), false); len(got) != want {
			t.Errorf("%q: lines %v, want %d", text, got, want)
		}
	}
}

func TestExceptions(t *testing.T) {
	t.Parallel()
	all, err := readExceptions("# FILE\n\na/*.go | whose | whose key | the words of RFC 9421\n")
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	for src, want := range map[string]bool{
		"// a client whose key":  true,
		"// a client whose name": false,
	} {
		found, err := find("a/b.go", []byte("package a\n\n"+src+"\nvar _ = 1\n"))
		if err != nil || len(found) != 1 || all[0].covers(found[0]) != want {
			t.Errorf("%q: %v, %v", src, found, err)
		}
	}
	for _, bad := range []string{"a.go | whose | x", "a.go | whose | x | ", "a | b | c | d | e"} {
		if _, err := readExceptions(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("tools/prose/exceptions.txt", "a/a.md | whose | whose is | a quotation\n")
	write("a/a.md", "Ask whose is this.\n")
	write("out/c.md", "whoever\n")
	if ok, err := run(root, &options{}); !ok || err != nil {
		t.Error(ok, err)
	}
	write("a/b.md", strings.Repeat("word ", 21)+"\n")
	if ok, err := run(root, &options{}); ok || err != nil {
		t.Error("a long line:", ok, err)
	}
	write("a/b.md", "Plain.\n")
	write("a/a.md", "Plain.\n")
	if ok, err := run(root, &options{}); ok || err != nil {
		t.Error("an exception that excepts nothing:", ok, err)
	}
	write("tools/prose/exceptions.txt", "")
	write("c/c.md", "whoever\n")
	if ok, err := run(root, &options{dirs: []string{"a/..."}, counts: true}); ok || err != nil {
		t.Error("a finding:", ok, err)
	}
}

// TestHeads compares what patterns match with whether their beginnings let them be tried.
func TestHeads(t *testing.T) {
	known := 0
	for i := range patterns {
		p := &patterns[i]
		if headsOf()[p] != nil {
			known++
		}
		for j := range patterns {
			for _, text := range []string{
				patterns[j].bad, patterns[j].good,
				strings.ToUpper(patterns[j].bad),
			} {
				if p.match.MatchString(text) && !p.mayMatch(beginnings(text)) {
					t.Errorf("%s matches in %q and is not tried: %q", p.name, text, headsOf()[p])
				}
			}
		}
	}
	if known*10 < len(patterns)*8 {
		t.Errorf("the beginnings of %d of %d patterns are known", known, len(patterns))
	}
}
