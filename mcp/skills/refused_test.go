package skills

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/farcall-dev/farcall/mcp"
)

// TestRefused: Add says what is wrong and where, and offers nothing.
func TestRefused(t *testing.T) {
	good := "name: a\ndescription: x\n"
	many := fstest.MapFS{"a/SKILL.md": doc(good)}
	for i := range maxFiles {
		many[fmt.Sprintf("a/%d", i)] = &fstest.MapFile{}
	}
	for name, test := range map[string]struct {
		root fstest.MapFS
		want []string
	}{
		"no frontmatter": {
			fstest.MapFS{"a/SKILL.md": {Data: []byte("# A\n")}},
			[]string{`"a/SKILL.md"`, "must begin with frontmatter"},
		},
		"no end": {
			fstest.MapFS{"a/SKILL.md": {Data: []byte("---\n" + good)}},
			[]string{"has no end"},
		},
		"no YAML": {
			fstest.MapFS{"a/SKILL.md": doc("name: [")},
			[]string{"frontmatter: line 1", "no YAML"},
		},
		"a key twice": {
			fstest.MapFS{"a/SKILL.md": doc(good + "name: a")},
			[]string{`line 3: the key "name" is there twice`},
		},
		"no map": {fstest.MapFS{"a/SKILL.md": doc("- a")}, []string{"must be a map"}},
		"empty":  {fstest.MapFS{"a/SKILL.md": doc("")}, []string{"must be a map"}},
		"no name": {
			fstest.MapFS{"a/SKILL.md": doc("description: x")},
			[]string{"name must be a text (got nothing)"},
		},
		"a number": {
			fstest.MapFS{"1/SKILL.md": doc("name: 1\ndescription: x")},
			[]string{"name must be a text (got 1)"},
		},
		"upper case": {
			fstest.MapFS{"A/SKILL.md": doc("name: A\ndescription: x")},
			[]string{"1 to 64 of a-z", `got "A"`},
		},
		"two hyphens": {
			fstest.MapFS{"a--b/SKILL.md": doc("name: a--b\ndescription: x")},
			[]string{"single hyphens"},
		},
		"a long name": {
			fstest.MapFS{"a/SKILL.md": doc("name: " + strings.Repeat("a", 65) + "\ndescription: x")},
			[]string{"1 to 64"},
		},
		"a path": {
			fstest.MapFS{"a/SKILL.md": doc("name: ../b\ndescription: x")},
			[]string{"1 to 64 of a-z"},
		},
		"another name": {
			fstest.MapFS{"b/SKILL.md": doc(good)},
			[]string{`that of its folder, "b" (got "a")`},
		},
		"no description": {
			fstest.MapFS{"a/SKILL.md": doc("name: a\ndescription: ' '")},
			[]string{"1 to 1024 characters"},
		},
		"a long description": {
			fstest.MapFS{"a/SKILL.md": doc("name: a\ndescription: " + strings.Repeat("é", 1025))},
			[]string{"got 1025"},
		},
		"compatibility": {
			fstest.MapFS{"a/SKILL.md": doc(good + "compatibility: " + strings.Repeat("x", 501))},
			[]string{"at most 500"},
		},
		"large frontmatter": {
			fstest.MapFS{"a/SKILL.md": doc(good + "x: " + strings.Repeat("x", maxFrontmatter))},
			[]string{"65536 are allowed"},
		},
		"a bomb": {
			fstest.MapFS{"a/SKILL.md": doc(good + bomb())},
			[]string{"when its aliases are expanded"},
		},
		"too many files": {many, []string{"512 files", "split it"}},
		"a large file": {
			fstest.MapFS{"a/SKILL.md": doc(good), "a/b": {Data: make([]byte, maxBytes+1)}},
			[]string{`"a/b"`, "16777216 bytes"},
		},
		"large files": {
			fstest.MapFS{"a/SKILL.md": doc(good), "a/b": {Data: make([]byte, maxBytes)}},
			[]string{"16777216 bytes"},
		},
		"the root": {
			fstest.MapFS{"SKILL.md": doc(good)},
			[]string{"the root itself is a skill"},
		},
		"a socket": {
			fstest.MapFS{"a/SKILL.md": doc(good), "a/b": {Mode: os.ModeSocket}},
			[]string{`"a/b"`, "it is no file"},
		},
		"no text": {
			fstest.MapFS{"a/SKILL.md": doc(good), "a/\xff": {}},
			[]string{"rename it to one in UTF-8"},
		},
		"two mistakes": {
			fstest.MapFS{"a/SKILL.md": doc(""), "b/SKILL.md": doc(good)},
			[]string{`"a/SKILL.md"`, `"b/SKILL.md"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := mcp.NewServer("s", "1", nil)
			_, err := Add(s, test.root, nil)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
					t.Errorf("%.600v; want %q", err, want)
				}
			}
			if c := serve(t, s, nil); c.Server().Capabilities.Resources != nil ||
				c.Server().Capabilities.Extensions != nil {
				t.Error("something is offered")
			}
		})
	}
}

func bomb() string {
	var b strings.Builder
	b.WriteString("a: &a [x,x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c <= 'k'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", c, c,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	return b.String()
}
