// Command site renders the project's documents as a static site: README.md, ARCHITECTURE.md and
// the like, and docs/, each as a page. The pages need no network and no script.
//
//	go -C tools/site run . -out ../../out/site
//
// A link that leads to no page, to no heading or to no file is an error.
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"html/template"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed page.html
var layout string

//go:embed style.css
var style []byte

func main() {
	log.SetFlags(0)
	log.SetPrefix("site: ")
	root := flag.String("root", "../..", "the directory of the project")
	out := flag.String("out", "../../out/site", "the directory to write; what is in it is replaced")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("unknown argument %q; see -help", flag.Arg(0))
	}
	n, err := build(os.DirFS(*root), *out)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%d pages in %s", n, *out)
}

// build writes the site of a project and returns the number of its pages.
func build(project fs.FS, out string) (int, error) {
	s := &site{project: project, pages: map[string]*page{}}
	if err := s.read(); err != nil {
		return 0, err
	}
	if err := s.check(); err != nil {
		return 0, err
	}
	t, err := template.New("page").Parse(layout)
	if err != nil {
		return 0, err
	}
	if err := os.RemoveAll(out); err != nil {
		return 0, err
	}
	for _, p := range s.pages {
		var text bytes.Buffer
		if err := t.Execute(&text, view{s, p}); err != nil {
			return 0, fmt.Errorf("%s: %w", p.source, err)
		}
		if err := write(out, p.target, text.Bytes()); err != nil {
			return 0, err
		}
	}
	return len(s.pages), write(out, "style.css", style)
}

func write(out, name string, text []byte) error {
	file := filepath.Join(out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// view is what the layout is filled with.
type view struct {
	site *site
	page *page
}

func (v view) Title() string       { return v.page.title }
func (v view) Headings() []heading { return v.page.headings }
func (v view) Source() string      { return repository + v.page.source }

// Body is what goldmark wrote, which leaves out the document's own HTML.
func (v view) Body() template.HTML { return template.HTML(v.page.body) }

// Root leads from the page to the first directory of the site.
func (v view) Root() string { return strings.Repeat("../", strings.Count(v.page.target, "/")) }

// Groups is the navigation as this page shows it.
func (v view) Groups() []group {
	var all []group
	for _, g := range v.site.groups {
		shown := group{Title: g.Title}
		for _, e := range g.Entries {
			e.Here, e.Link = e.Link == v.page.target, v.Root()+e.Link
			shown.Entries = append(shown.Entries, e)
		}
		all = append(all, shown)
	}
	return all
}

// target is the name of the page of a document: the README is the first page.
func target(source string) string {
	if source == "README.md" {
		return "index.html"
	}
	if path.Base(source) == "README.md" {
		return path.Join(path.Dir(source), "index.html")
	}
	return strings.TrimSuffix(source, ".md") + ".html"
}
