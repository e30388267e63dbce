package main

import (
	"regexp/syntax"
	"strings"
	"sync"
)

// headLength is how many bytes of a word are compared before a pattern is tried. Regular
// expressions that ignore case are slow, and most words begin none of the patterns.
const headLength = 4

// beginnings returns how the words of a text begin, in lower case: their first bytes, one to
// headLength of them. A word may begin at each letter that does not follow another.
func beginnings(text string) map[string]bool {
	heads := map[string]bool{}
	text = strings.ToLower(text)
	for i := range len(text) {
		if i > 0 && wordByte(text[i-1]) && wordByte(text[i]) {
			continue
		}
		for n := 1; n <= headLength && i+n <= len(text); n++ {
			heads[text[i:i+n]] = true
		}
	}
	return heads
}

// wordByte reports whether \b counts a byte as part of a word.
func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z'
}

// headsOf has the beginnings of what each pattern matches, nil for those that begin with anything.
var headsOf = sync.OnceValue(func() map[*pattern][]string {
	all := map[*pattern][]string{}
	for i := range patterns {
		p := &patterns[i]
		if expr, err := syntax.Parse(p.match.String(), syntax.Perl); err == nil &&
			strings.HasPrefix(p.match.String(), `(?i)\b`) {
			all[p] = heads(expr)
		}
	}
	return all
})

// mayMatch reports whether one of the words can begin a match of the pattern.
func (p *pattern) mayMatch(words map[string]bool) bool {
	begins := headsOf()[p]
	for _, h := range begins {
		if words[h] {
			return true
		}
	}
	return begins == nil
}

// heads returns how the matches of an expression can begin, nil if it may be with anything.
func heads(expr *syntax.Regexp) []string {
	switch expr.Op {
	case syntax.OpLiteral:
		text := strings.ToLower(string(expr.Rune))
		return []string{text[:min(len(text), headLength)]}
	case syntax.OpCharClass:
		var all []string
		for i := 0; i < len(expr.Rune); i += 2 {
			if expr.Rune[i+1]-expr.Rune[i] > 'z'-'a' {
				return nil
			}
			for r := expr.Rune[i]; r <= expr.Rune[i+1]; r++ {
				all = append(all, strings.ToLower(string(r)))
			}
		}
		return all
	case syntax.OpCapture, syntax.OpPlus:
		return heads(expr.Sub[0])
	case syntax.OpAlternate:
		return union(expr.Sub)
	case syntax.OpConcat:
		for i, sub := range expr.Sub {
			switch sub.Op {
			case syntax.OpWordBoundary:
				continue
			case syntax.OpQuest:
				rest := &syntax.Regexp{Op: syntax.OpConcat, Sub: expr.Sub[i+1:]}
				return union([]*syntax.Regexp{sub.Sub[0], rest})
			}
			return heads(sub)
		}
	}
	return nil
}

// union returns the beginnings of all of the expressions.
func union(exprs []*syntax.Regexp) []string {
	var all []string
	for _, e := range exprs {
		h := heads(e)
		if h == nil {
			return nil
		}
		all = append(all, h...)
	}
	return all
}
