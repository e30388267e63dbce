package guard_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each attack that docs/security.md names is tried by a test that exists.
func TestAttacksAreTried(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(raw), "\n## Attacks\n")
	if !ok {
		t.Fatal("there is no section of attacks")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	name := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)\\w+)(?:/([^`]+))?`")
	sources := map[string]string{}
	rows := 0
	for line := range strings.Lines(section) {
		// of a row: "", attack, what stops it, tests, ""
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 5 || strings.HasPrefix(cells[1], "---") ||
			strings.TrimSpace(cells[1]) == "attack" || strings.HasPrefix(cells[1], " **") {
			continue
		}
		rows++
		tests := name.FindAllStringSubmatch(cells[3], -1)
		if len(tests) == 0 || strings.Count(cells[3], "`") != 2*len(tests) {
			t.Errorf("%s: no test, or not the name of one: %s", cells[1], cells[3])
		}
		for _, m := range tests {
			dir, test, sub := m[1], m[2], m[3]
			if dir == "farcall" {
				dir = "."
			}
			if _, read := sources[dir]; !read {
				sources[dir] = testsOf(t, dir)
			}
			if !strings.Contains(sources[dir], "\nfunc "+test+"(") {
				t.Errorf("%s: there is no %s in %s", cells[1], test, dir)
			}
			if sub = strings.ReplaceAll(sub, "_",
				" "); !strings.Contains(strings.ReplaceAll(sources[dir], "_", " "), sub) {
				t.Errorf("%s: there is no subtest %q in %s", cells[1], sub, dir)
			}
		}
	}
	if rows < 30 {
		t.Errorf("%d attacks", rows)
	}
}

// testsOf are the sources of the tests of a package.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(raw)
	}
	return all.String()
}
