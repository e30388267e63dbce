package skills

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

func doc(frontmatter string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("---\n" + frontmatter + "\n---\nText\n")}
}

// No link is followed, wherever it leads, in a directory of the system.
func TestLinks(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, link := range map[string][2]string{
		"out":         {secret, "a/link"},
		"a directory": {filepath.Dir(secret), "a/link"},
		"inside":      {"SKILL.md", "a/link"},
		"SKILL.md":    {secret, "b/SKILL.md"},
		"a skill":     {"a", "b"},
		"to nowhere":  {"nowhere", "a/link"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, sub := range []string{"a", "b"} {
				if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if link[1] == "b" {
				_ = os.Remove(filepath.Join(dir, "b"))
			}
			if err := os.WriteFile(filepath.Join(dir, "a", "SKILL.md"), doc("name: a\ndescription: x").Data,
				0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
				t.Skip(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			want := fmt.Sprintf("%q: it is a symbolic link", link[1])
			for _, fsys := range []func() error{
				func() error { _, err := load(os.DirFS(dir)); return err },
				func() error { _, err := load(root.FS()); return err },
			} {
				if err := fsys(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want %q", err, want)
				}
			}
			// Hidden ones are not looked at.
			if err := os.Rename(filepath.Join(dir, link[1]),
				filepath.Join(dir, "."+filepath.Base(link[1]))); err != nil {
				t.Fatal(err)
			}
			if c, err := load(root.FS()); err != nil || len(c.files) != 1 {
				t.Errorf("%v, %v", c, err)
			}
		})
	}
}

func TestFrontmatter(t *testing.T) {
	for _, document := range []string{
		"---\nname: a\ndescription: x\n---\n",
		"---\r\nname: a\r\ndescription: x\r\n---\r\ntext",
		"\ufeff--- \nname: a\ndescription: x\n---",
		"---\nname: \"a\"\ndescription: >-\n  x\n---\n---\n",
	} {
		f, err := parseFrontmatter([]byte(document))
		if err != nil || f.check("a") != nil || string(f.raw) != `{"name":"a","description":"x"}` {
			t.Errorf("%q: %+v, %v", document, f, err)
		}
	}
}

// FuzzFrontmatter: whatever a SKILL.md has, it is refused, or its frontmatter is a JSON object that
// fits the specification.
func FuzzFrontmatter(f *testing.F) {
	for _, s := range []string{
		"---\nname: pdf\ndescription: x\nmetadata: {version: \"2.1\"}\n---\n# PDF\n", "---\nname: a\n",
		"---\nname: &x a\ndescription: *x\n---\n", "---\n{name: a, description: \"b\"}\n---\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		front, err := parseFrontmatter(document)
		if err != nil || front.check(front.name) != nil {
			return
		}
		var got struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		}
		if err := jsonv2.Unmarshal(front.raw, &got); err != nil || got.Name != front.name ||
			got.Description != front.description {
			t.Errorf("%q is %q, %v", document, front.raw, err)
		}
		if len(got.Name) > maxName || strings.ContainsAny(got.Name, "./%\\ \n") {
			t.Errorf("the name %q", got.Name)
		}
	})
}
