package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

const (
	// repository is where files are that are no pages.
	repository = "https://github.com/farcall-dev/farcall/blob/main/"
	index      = "docs/README.md" // its tables are the navigation
)

// site is all pages of a project.
type site struct {
	project fs.FS
	pages   map[string]*page // by document
	groups  []group
}

// page is one document.
type page struct {
	source, target string
	title          string
	body           []byte
	headings       []heading // of the second level
	ids            map[string]bool
	links          []link // to other documents, for check
}

type heading struct{ ID, Text string }

// group is a part of the navigation.
type group struct {
	Title   string
	Entries []entry
}

type entry struct {
	Title, Link string
	Here        bool
}

// link is a link of a page to a document, or to a heading of one.
type link struct{ document, id, text string }

// read renders every document.
func (s *site) read() error {
	documents, err := fs.Glob(s.project, "*.md")
	if err != nil {
		return err
	}
	err = fs.WalkDir(s.project, "docs", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(name) == ".md" {
			documents = append(documents, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range documents {
		s.pages[name] = &page{source: name, target: target(name), ids: map[string]bool{}}
	}
	if s.pages[index] == nil {
		return fmt.Errorf("%s is missing; the navigation is made from it", index)
	}
	for _, name := range documents {
		if err := s.render(s.pages[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// render fills in a page.
func (s *site) render(p *page) error {
	source, err := fs.ReadFile(s.project, p.source)
	if err != nil {
		return err
	}
	md := goldmark.New(goldmark.WithExtensions(extension.GFM),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	tree := md.Parser().Parse(text.NewReader(source))
	var group string
	err = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			group = s.heading(p, n, source)
		case *ast.Link:
			document, err := s.follow(p, n, source)
			if err != nil {
				return ast.WalkStop, err
			}
			if p.source == index && s.pages[document] != nil {
				s.list(group, document)
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if err := md.Renderer().Render(&body, source, tree); err != nil {
		return err
	}
	p.body = body.Bytes()
	if p.title == "" {
		return errors.New("it has no heading of the first level")
	}
	return nil
}

// heading notes a heading of a page and returns its text.
func (s *site) heading(p *page, n *ast.Heading, source []byte) string {
	words := plain(n, source)
	id, _ := n.AttributeString("id")
	name, _ := id.([]byte)
	p.ids[string(name)] = true
	switch {
	case n.Level == 1 && p.title == "":
		p.title = words
	case n.Level == 2:
		p.headings = append(p.headings, heading{string(name), words})
	}
	return words
}

// follow makes a link of a document one of its page, and returns the document to which it leads.
func (s *site) follow(p *page, n *ast.Link, source []byte) (document string, err error) {
	u, err := url.Parse(string(n.Destination))
	if err != nil {
		return "", err
	}
	if u.Scheme != "" || u.Host != "" {
		return "", nil
	}
	document = p.source
	if u.Path != "" {
		document = path.Join(path.Dir(p.source), u.Path)
	}
	if to := s.pages[document]; to != nil {
		p.links = append(p.links, link{document, u.Fragment, plain(n, source)})
		u.Path = relative(p.target, to.target)
		if to == p {
			u.Path = ""
		}
		n.Destination = []byte(u.String())
		return document, nil
	}
	if _, err := fs.Stat(s.project, document); err != nil {
		return "", fmt.Errorf("the link %q leads to no file", n.Destination)
	}
	n.Destination = []byte(repository + document)
	return "", nil
}

// list adds a document to the navigation, once.
func (s *site) list(title, document string) {
	to := s.pages[document].target
	for _, g := range s.groups {
		if slices.ContainsFunc(g.Entries, func(e entry) bool { return e.Link == to }) {
			return
		}
	}
	if n := len(s.groups); n == 0 || s.groups[n-1].Title != title {
		s.groups = append(s.groups, group{Title: title})
	}
	last := &s.groups[len(s.groups)-1]
	last.Entries = append(last.Entries, entry{Title: document, Link: to})
}

// check reports links to headings that are not there, and titles the navigation.
func (s *site) check() error {
	titles := map[string]string{}
	var wrong []error
	for _, p := range s.pages {
		titles[p.source] = p.title
		for _, l := range p.links {
			if l.id != "" && !s.pages[l.document].ids[l.id] {
				wrong = append(wrong, fmt.Errorf("%s: the link %q leads to #%s, which %s does not have",
					p.source, l.text, l.id, l.document))
			}
		}
	}
	for _, g := range s.groups {
		for i, e := range g.Entries {
			g.Entries[i].Title = titles[e.Title]
		}
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(wrong...)
}

// plain returns the text of a node without its marks.
func plain(n ast.Node, source []byte) string {
	var words strings.Builder
	// The function returns no error, so Walk returns none.
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			words.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return words.String()
}

// relative returns the way from one page to another.
func relative(from, to string) string {
	a, b := strings.Split(from, "/"), strings.Split(to, "/")
	for len(a) > 1 && len(b) > 1 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	return strings.Repeat("../", len(a)-1) + strings.Join(b, "/")
}
