package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// TestProject builds the site of the project: every link leads somewhere, every document of the
// index is in the navigation, and no page needs anything from elsewhere.
func TestProject(t *testing.T) {
	out := t.TempDir()
	n, err := build(os.DirFS("../.."), out)
	if err != nil {
		t.Fatal(err)
	}
	const elements = "link|script|img|iframe|object"
	outside := regexp.MustCompile(`<(?:` + elements + `)[^>]*(?:src|href)="(?:https?:)?//`)
	pages := 0
	err = filepath.WalkDir(out, func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".html" {
			return err
		}
		pages++
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if found := outside.Find(text); found != nil {
			t.Errorf("%s needs %s", d.Name(), found)
		}
		for _, part := range []string{"<title>", "docs/gateway.html", `lang="en"`} {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s has no %s", name, part)
			}
		}
		return nil
	})
	if err != nil || pages != n || pages < 30 {
		t.Errorf("%d pages of %d: %v", pages, n, err)
	}
}

func TestLinks(t *testing.T) {
	const entries = "[one](one.md) [deep](deep/two.md)\n"
	const one = "# One\n\n## What it `does`\n\n<script>alert(1)</script>\n\n[back](../README.md)\n"
	docs := func(readme string) fstest.MapFS {
		return fstest.MapFS{
			"README.md":        {Data: []byte("# farcall\n\n" + readme)},
			"main.go":          {Data: []byte("package main")},
			"docs/README.md":   {Data: []byte("# Documents\n\n## Run\n\n" + entries)},
			"docs/one.md":      {Data: []byte(one)},
			"docs/deep/two.md": {Data: []byte("# Two\n\n[one](../one.md#what-it-does)\n")},
		}
	}
	for name, c := range map[string]struct{ readme, want, wrong string }{
		"page":    {"[x](docs/one.md)", `<a href="docs/one.html">x</a>`, ""},
		"heading": {"[x](docs/one.md#what-it-does)", `<a href="docs/one.html#what-it-does">x</a>`, ""},
		"index":   {"[x](docs/README.md)", `<a href="docs/index.html">x</a>`, ""},
		"own":     {"[x](#more)\n\n## More", `<a href="#more">x</a>`, ""},
		"file":    {"[x](main.go)", `<a href="` + repository + `main.go">x</a>`, ""},
		"outside": {"[x](https://example.com/)", `<a href="https://example.com/">x</a>`, ""},
		"no file": {"[x](gone.go)", "", `README.md: the link "gone.go" leads to no file`},
		"no id": {
			"[x](docs/one.md#gone)", "",
			`README.md: the link "x" leads to #gone, which docs/one.md does not have`,
		},
		"own gone": {
			"[x](#gone)", "",
			`README.md: the link "x" leads to #gone, which README.md does not have`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			_, err := build(docs(c.readme), out)
			if c.wrong != "" {
				if err == nil || err.Error() != c.wrong {
					t.Errorf("got %v, want %s", err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for file, want := range map[string]string{
				"index.html":         c.want,
				"docs/one.html":      `<a href="../index.html">back</a>`,
				"docs/deep/two.html": `<a href="../one.html#what-it-does">one</a>`,
			} {
				text, err := os.ReadFile(filepath.Join(out, file))
				if err != nil || !strings.Contains(string(text), want) {
					t.Errorf("%s has no %s: %v", file, want, err)
				}
				if strings.Contains(string(text), "<script") {
					t.Errorf("%s has the document's own HTML", file)
				}
			}
		})
	}
}
