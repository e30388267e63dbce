package scaffold

import (
	"errors"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	const ci = ".github/workflows/ci.yml"
	for kind, want := range map[string][]string{
		Server: {
			".dockerignore", ci, ".gitignore", "Dockerfile", "README.md", "go.mod", "main.go",
			"main_test.go", "mcp.json",
		},
		Client: {ci, ".gitignore", "README.md", "go.mod", "main.go", "main_test.go"},
		Service: {
			".dockerignore", ci, ".gitignore", "Dockerfile", "README.md", "go.mod", "main.go",
			"main_test.go",
		},
		Gateway: {
			ci, ".gitignore", "Dockerfile", "README.md", "ci.key", "farcall.yaml", "policies.yaml",
		},
	} {
		t.Run(kind, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			p := Project{Kind: kind, Module: "example.com/my/tool", Version: "v1.2.3"}
			names, err := p.Write(dir)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(names, want) {
				t.Errorf("wrote %q, want %q", names, want)
			}
			for _, name := range names {
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(strings.ReplaceAll(string(text), "${{", ""), "{{") ||
					strings.Contains(string(text), "<no value>") {
					t.Errorf("%s is not filled in:\n%s", name, text)
				}
				if filepath.Ext(name) != ".go" {
					continue
				}
				if pretty, err := format.Source(text); err != nil || string(pretty) != string(text) {
					t.Errorf("%s is not formatted (%v)", name, err)
				}
			}
			if _, err := p.Write(dir); !errors.Is(err, ErrNotEmpty) {
				t.Errorf("written twice: %v", err)
			}
		})
	}
}

func TestGoMod(t *testing.T) {
	tests := []struct {
		project Project
		want    string
	}{
		{Project{Kind: Server, Module: "a"}, "module a\n\ngo 1.26\n"},
		{
			Project{Kind: Server, Module: "example.com/a", Version: "v0.0.0", Replace: "/src/farcall"},
			"module example.com/a\n\ngo 1.26\n\nrequire github.com/farcall-dev/farcall v0.0.0\n\n" +
				"replace github.com/farcall-dev/farcall => /src/farcall\n",
		},
	}
	for _, test := range tests {
		dir := t.TempDir()
		if _, err := test.project.Write(dir); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil || string(got) != test.want {
			t.Errorf("got %q, %v; want %q", got, err, test.want)
		}
	}
}

func TestWriteFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []Project{
		{Kind: "desk", Module: "a"},
		{Kind: Server},
		{Kind: Server, Module: "a b"},
		{Kind: Server, Module: "../a"},
		{Kind: Server, Module: "a/"},
		{Kind: Server, Module: "main"},
		{Kind: Server, Module: "time"},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		if _, err := p.Write(dir); err == nil {
			t.Errorf("%+v was written", p)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%+v: the directory was made", p)
		}
	}
	if _, err := (Project{Kind: Server, Module: "a"}).Write(file); err == nil {
		t.Error("a project was written to a file")
	}
}
