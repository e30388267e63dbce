// Command prose checks the language of the project in Go comments, string literals and declared
// names, in Markdown, pages, testscripts and scripts, and that no line of Go and Markdown has more
// than 100 columns. It prints each finding as file:line: pattern: suggestion, and exits with 1 if
// there is anything.
//
//	prose [-root DIR] [-count] [DIRECTORY…]
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

type options struct {
	counts bool
	dirs   []string
}

func main() {
	var o options
	root := flag.String("root", ".", "the root of the repository")
	flag.BoolVar(&o.counts, "count", false, "print findings and long lines of each directory")
	flag.Parse()
	o.dirs = flag.Args()
	ok, err := run(*root, &o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// selects reports whether the findings of a file are printed.
func (o *options) selects(file string) bool {
	dir := path.Dir(file)
	if len(o.dirs) == 0 {
		return true
	}
	return slices.ContainsFunc(o.dirs, func(d string) bool {
		d = path.Clean(filepath.ToSlash(d))
		below, tree := strings.CutSuffix(d, "/...")
		return d == dir || d == file || tree && strings.HasPrefix(dir+"/", below+"/")
	})
}

// run checks the tree below root and reports whether it is as clean as it has to be.
func run(root string, o *options) (ok bool, err error) {
	exempt, err := os.ReadFile(filepath.Join(root, "tools", "prose", "exceptions.txt"))
	if err != nil {
		return false, err
	}
	exceptions, err := readExceptions(string(exempt))
	if err != nil {
		return false, err
	}
	r, err := check(root, exceptions)
	if err != nil {
		return false, err
	}
	ok = len(r.findings) == 0 && len(r.long) == 0
	for _, f := range r.findings {
		if o.selects(f.file) {
			fmt.Println(f)
		}
	}
	for _, l := range r.long {
		if file, _, _ := strings.Cut(l, ":"); o.selects(file) {
			fmt.Printf("%s: more than %d columns\n", l, maxColumns)
		}
	}
	for _, e := range exceptions {
		if !e.used {
			fmt.Printf("tools/prose/exceptions.txt:%d: excepts nothing: remove it\n", e.line)
			ok = false
		}
	}
	if o.counts {
		for _, dir := range slices.Sorted(maps.Keys(r.counts)) {
			if c := r.counts[dir]; c != (count{}) {
				fmt.Printf("%-50s %5d %6d\n", dir, c.findings, c.long)
			}
		}
	}
	fmt.Printf("prose: %d findings, %d lines of more than %d columns\n",
		len(r.findings), len(r.long), maxColumns)
	return ok, nil
}
