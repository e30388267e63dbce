package farcall_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	notProse     = regexp.MustCompile("(?s)\n```.*?\n```|`[^`\n]*`")
	notInAnchor  = regexp.MustCompile("[^a-z0-9 _-]+")
)

// TestLinks follows the links between the Markdown files: each file and each heading exists.
func TestLinks(t *testing.T) {
	pages := map[string]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "out" ||
			d.Name() == ".git"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".md") && !strings.Contains(name, "templates/"):
			text, err := os.ReadFile(filepath.FromSlash(name))
			pages[name] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 20 {
		t.Fatalf("%d pages found", len(pages))
	}
	for name, text := range pages {
		for _, m := range markdownLink.FindAllStringSubmatch(notProse.ReplaceAllString(text, ""), -1) {
			if err := follow(pages, name, m[1]); err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
			}
		}
	}
}

// follow reports why a link of a page leads nowhere.
func follow(pages map[string]string, name, link string) error {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return nil
	}
	file, anchor, _ := strings.Cut(link, "#")
	target := name
	if file != "" {
		target = path.Join(path.Dir(name), file)
	}
	if _, err := os.Stat(filepath.FromSlash(target)); err != nil {
		return err
	}
	if anchor == "" {
		return nil
	}
	for line := range strings.Lines(pages[target]) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' &&
			anchorOf(title) == anchor {
			return nil
		}
	}
	return fmt.Errorf("%s has no such heading", target)
}

// anchorOf returns the anchor that GitHub gives a heading.
func anchorOf(title string) string {
	title = strings.ToLower(strings.TrimSpace(title))
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(title, ""), " ", "-")
}

// TestReadmeIsShort bounds the first page: what is longer belongs into docs/.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 130 {
		t.Errorf("README.md has %d lines, 130 are allowed", n)
	}
}
