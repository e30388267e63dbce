package farcall_test

import "fmt"

// mostLines bounds the code of the module without its tests, in lines with comments and blank
// ones. Raising it is a change to be reviewed: what can go instead?
const mostLines = 169_000

// findSize finds that there is more code than the bound, or that there are more tests than code.
func findSize(tree *archTree) (found []string) {
	var code, tests int
	for _, f := range tree.files {
		switch {
		case f.foreign:
		case f.test:
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
