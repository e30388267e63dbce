// Package glob answers one question: does a pattern with * and ? stand for this name?
package glob

import "unicode/utf8"

// Match reports whether a pattern stands for all of a name: * is any text, ? is one
// character. It takes time in proportion to the product of their lengths at worst.
func Match(pattern, name string) bool {
	p, n := 0, 0
	star, mark := -1, 0 // the last * and where the name was then
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
			continue
		case p < len(pattern) && pattern[p] == '?':
			_, size := utf8.DecodeRuneInString(name[n:])
			p, n = p+1, n+size
			continue
		case p < len(pattern) && pattern[p] == name[n]:
			p, n = p+1, n+1
			continue
		case star < 0:
			return false
		}
		_, size := utf8.DecodeRuneInString(name[mark:])
		mark += size
		p, n = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
