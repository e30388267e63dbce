package farcall_test

import (
	"fmt"
	"strings"
)

// mostLines bounds the code of the module without its tests, in lines with comments and blank
// ones. Raising it is a change to be reviewed: what can go instead? It was 170,500 while 3,300
// lines of the code had more than 100 columns.
const mostLines = 175_500

// findSize finds that there is more code than the bound, or that there are more tests than code.
// An internal package that only tests import is part of them: no program has it.
func findSize(tree *archTree) (found []string) {
	var code, tests int
	linked := linkedPackages(tree)
	for _, f := range tree.files {
		internal := strings.Contains("/"+f.pkg+"/", "/internal/")
		switch {
		case f.foreign:
		case f.test, internal && f.ast.Name.Name != "main" && !linked[f.pkg]:
			tests += f.lines
		default:
			code += f.lines
		}
	}
	if code > mostLines {
		found = append(found, fmt.Sprintf("%d lines of code, %d allowed", code, mostLines))
	}
	if tests > code {
		found = append(found, fmt.Sprintf("%d lines of tests for %d lines of code", tests, code))
	}
	return found
}

// linkedPackages are those that code imports which is not a test.
func linkedPackages(tree *archTree) map[string]bool {
	linked := map[string]bool{}
	for _, f := range tree.files {
		if f.test || f.foreign {
			continue
		}
		for _, s := range f.ast.Imports {
			linked[strings.TrimPrefix(strings.Trim(s.Path.Value, `"`), archModule+"/")] = true
		}
	}
	return linked
}
