package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A finding is one match of a pattern.
type finding struct {
	file    string
	line    int
	pattern *pattern
	around  string // the words around the match
}

func (f *finding) String() string {
	return fmt.Sprintf("%s:%d: %s in %q: write %s",
		f.file, f.line, f.pattern.name, f.around, f.pattern.suggest)
}

// find returns the findings of a file.
func find(file string, src []byte) ([]*finding, error) {
	var spans []*span
	switch ext := path.Ext(file); {
	case ext == ".go":
		var err error
		if spans, err = goSpans(file, src); err != nil {
			return nil, err
		}
	case ext == ".md", ext == ".html", ext == ".txtar", ext == ".txt", ext == ".tmpl":
		spans = pageSpans(string(src))
	case ext == ".js", ext == ".mjs", ext == ".css":
		spans = pageSpans(string(src))
	case ext == ".sh", ext == ".yml", ext == ".yaml", ext == ".service", ext == "", ext == ".toml":
		spans = hashSpans(string(src))
	}
	var findings []*finding
	for _, s := range spans {
		words := beginnings(s.text)
		for i := range patterns {
			p := &patterns[i]
			if p.in&s.kind == 0 || !p.mayMatch(words) {
				continue
			}
			var allowed [][]int
			if p.allow != nil {
				allowed = p.allow.FindAllStringIndex(s.text, -1)
			}
			for _, m := range p.match.FindAllStringIndex(s.text, -1) {
				within := func(a []int) bool { return a[0] <= m[0] && m[1] <= a[1] }
				if slices.ContainsFunc(allowed, within) {
					continue
				}
				f := &finding{file, s.lineOf(m[0]), p, around(s.text, m[0], m[1])}
				findings = append(findings, f)
			}
		}
	}
	slices.SortStableFunc(findings, func(a, b *finding) int { return a.line - b.line })
	return findings, nil
}

// around returns the words before and after a match: enough to find it and to name it in an
// exception.
func around(s string, from, to int) string {
	const most = 32
	left, right := max(0, from-most), min(len(s), to+most)
	if i := strings.IndexByte(s[left:from], ' '); left > 0 && i >= 0 {
		left += i + 1
	}
	if i := strings.LastIndexByte(s[to:right], ' '); right < len(s) && i >= 0 {
		right = to + i
	}
	return strings.ToValidUTF8(s[left:right], "")
}

// An exception is a use of a word that is right, with its reason: a line FILE | PATTERN | TEXT |
// REASON.
type exception struct {
	file, pattern, text string
	line                int
	used                bool
}

// readExceptions reads the exceptions. FILE is a path or a pattern of path.Match, TEXT stands in
// the words around the match.
func readExceptions(text string) ([]*exception, error) {
	var all []*exception
	for i, l := range strings.Split(text, "\n") {
		if l = strings.TrimSpace(l); l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		f := strings.Split(l, "|")
		for j := range f {
			f[j] = strings.TrimSpace(f[j])
		}
		if len(f) != 4 || slices.Contains(f, "") {
			return nil, fmt.Errorf("exceptions:%d: write FILE | PATTERN | TEXT | REASON", i+1)
		}
		all = append(all, &exception{file: f[0], pattern: f[1], text: f[2], line: i + 1})
	}
	return all, nil
}

func (e *exception) covers(f *finding) bool {
	ok, err := path.Match(e.file, f.file)
	return err == nil && ok && e.pattern == f.pattern.name && strings.Contains(f.around, e.text)
}

// A count is what a directory has.
type count struct{ findings, long int }

// A report is what a tree has.
type report struct {
	findings []*finding
	long     []string // FILE:LINE
	counts   map[string]count
}

var (
	// skipped are directories without sentences of the project.
	skipped = []string{".git", "out", "bin", "node_modules", "fuzz"}
	// rules are the files that name what they forbid.
	rules = []string{
		"tools/prose/patterns.go", "tools/prose/prose_test.go", "tools/prose/exceptions.txt",
	}
)

// check reads all files below root.
func check(root string, exceptions []*exception) (*report, error) {
	r := &report{counts: map[string]count{}}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && slices.Contains(skipped, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, name)
		rel = filepath.ToSlash(rel)
		if err != nil || !d.Type().IsRegular() || slices.Contains(rules, rel) {
			return err
		}
		return r.file(name, rel, exceptions)
	})
	if err != nil {
		return nil, fmt.Errorf("read the tree: %w", err)
	}
	return r, nil
}

func (r *report) file(name, rel string, exceptions []*exception) error {
	ext := path.Ext(rel)
	if ext == ".json" || ext == ".sum" || ext == ".mod" || path.Base(rel) == "LICENSE" {
		return nil
	}
	src, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	found, err := find(rel, src)
	if err != nil {
		return err
	}
	c := r.counts[path.Dir(rel)]
	for _, f := range found {
		covers := func(e *exception) bool { return e.covers(f) }
		if i := slices.IndexFunc(exceptions, covers); i >= 0 {
			exceptions[i].used = true
			continue
		}
		r.findings = append(r.findings, f)
		c.findings++
	}
	if ext == ".go" || ext == ".md" {
		for _, n := range longLines(src, ext == ".md") {
			r.long = append(r.long, fmt.Sprintf("%s:%d", rel, n))
			c.long++
		}
	}
	r.counts[path.Dir(rel)] = c
	return nil
}
