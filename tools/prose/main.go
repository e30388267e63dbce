// Command prose checks the language of the project in Go comments, string literals and declared
// names, in Markdown, pages, testscripts and scripts. It prints each finding as file:line: pattern:
// suggestion, and counts lines of more than 100 columns.
//
//	prose [-root DIR] [-all] [-long] [-count] [-update] [DIRECTORY…]
//
// Without flags it prints what exceeds tools/prose/unclean.txt and exits with 1 if there is
// anything.
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
	all, long, counts, update bool
	dirs                      []string
}

func main() {
	var o options
	root := flag.String("root", ".", "the root of the repository")
	flag.BoolVar(&o.all, "all", false, "print the findings of the directories in unclean.txt, too")
	flag.BoolVar(&o.long, "long", false, "print the lines of more than 100 columns")
	flag.BoolVar(&o.counts, "count", false, "print findings and long lines of each directory")
	flag.BoolVar(&o.update, "update", false, "lower the numbers of unclean.txt to what stands")
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

// selects reports whether the findings of a file are printed: over are directories with too many.
func (o *options) selects(file string, over []string) bool {
	dir := path.Dir(file)
	if len(o.dirs) == 0 {
		return o.all || slices.Contains(over, dir)
	}
	return slices.ContainsFunc(o.dirs, func(d string) bool {
		d = path.Clean(filepath.ToSlash(d))
		below, tree := strings.CutSuffix(d, "/...")
		return d == dir || d == file || tree && strings.HasPrefix(dir+"/", below+"/")
	})
}

// run checks the tree below root and reports whether it is as clean as it has to be.
func run(root string, o *options) (ok bool, err error) {
	here := filepath.Join(root, "tools", "prose")
	exempt, err := os.ReadFile(filepath.Join(here, "exceptions.txt"))
	if err != nil {
		return false, err
	}
	exceptions, err := readExceptions(string(exempt))
	if err != nil {
		return false, err
	}
	list, err := os.ReadFile(filepath.Join(here, "unclean.txt"))
	if err != nil {
		return false, err
	}
	unclean, err := readUnclean(string(list))
	if err != nil {
		return false, err
	}
	r, err := check(root, exceptions)
	if err != nil {
		return false, err
	}
	over, tooLong := over(unclean, r.counts)
	ok = len(over) == 0 && len(tooLong) == 0
	for _, f := range r.findings {
		if o.selects(f.file, over) {
			fmt.Println(f)
		}
	}
	for _, l := range r.long {
		file, _, _ := strings.Cut(l, ":")
		if o.selects(file, tooLong) && (o.long || slices.Contains(tooLong, path.Dir(file))) {
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
	for _, dir := range over {
		fmt.Printf("%s: %d findings, %d are allowed\n",
			dir, r.counts[dir].findings, unclean[dir].findings)
	}
	fmt.Printf("prose: %d findings, %d lines of more than %d columns\n",
		len(r.findings), len(r.long), maxColumns)
	if o.update {
		text := []byte(lower(unclean, r.counts))
		return ok, os.WriteFile(filepath.Join(here, "unclean.txt"), text, 0o644)
	}
	return ok, nil
}
