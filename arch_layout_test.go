package farcall_test

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// A layoutExercise is a change that the layout makes easy, with the one of its kind that was made
// last: its files outside of its home are those that the next one touches as well. CONTRIBUTING.md
// tells which.
type layoutExercise struct {
	change string
	home   string // a file, or a package, that is its own
	name   string // an identifier, or the path of a package
	most   int    // files outside the home that have the name
}

var layoutExercises = []layoutExercise{
	{"a transport", "internal/npipe", archModule + "/internal/npipe", 4},
	{"a revision", "mcp/era/rev20260728.go", "Revision20260728", 4},
	{"a policy type", "guard/lock.go", "Locks", 4},
	{"a command", "cmd/farcall/discover.go", "newDiscoverCmd", 3},
	{"a wrapper around every call", "outgoing.go", "CallInterceptors", 2},
}

// findLayout counts the files of each exercise.
func findLayout(tree *archTree) (found []string) {
	for _, e := range layoutExercises {
		var touched []string
		home := false
		for _, f := range tree.files {
			if f.test || f.foreign || !f.names(e.name) {
				continue
			}
			if f.path == e.home || f.pkg == e.home {
				home = true
			} else {
				touched = append(touched, f.path)
			}
		}
		if len(touched) > e.most {
			found = append(found, e.change+" touches "+strconv.Itoa(len(touched))+" files, "+
				strconv.Itoa(e.most)+
				" allowed: "+strings.Join(touched, " "))
		}
		if !home && len(touched) == 0 {
			found = append(found,
				e.change+": nothing has the name "+e.name+"; name the one that was made last")
		}
	}
	return found
}

// names reports whether a file has an identifier, or imports a package.
func (f *archFile) names(name string) bool {
	if slices.ContainsFunc(f.ast.Imports, func(s *ast.ImportSpec) bool {
		return s.Path.Value == strconv.Quote(name)
	}) {
		return true
	}
	has := false
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == name {
			has = true
		}
		return !has
	})
	return has
}
