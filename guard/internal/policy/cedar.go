package policy

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
)

// What a Text may be. Cedar's parser and its evaluation recurse, and a has with many dots takes
// them time with the third power of their number, so that all this is bounded before they see it.
const (
	maxText     = 256 << 10
	maxOne      = 32 << 10 // bytes of one policy
	maxDots     = 16       // a.b.c
	maxNesting  = 64
	maxPolicies = 2000
	inputMark   = "<input>:" // where the parser's errors have their position
)

// addText compiles policies in Cedar's language.
func (s *Set) addText(t *Text, taken map[string]string, list *problems) {
	path := cmp.Or(t.Name, "cedar")
	if len(t.Text) > maxText {
		list.errorf(path, "split it", "the policies have %d bytes, at most %d will do",
			len(t.Text), maxText)
		return
	}
	if line, fault := nesting(t.Text); fault != "" {
		*list = append(*list, Problem{Path: path, Message: fault, Line: line})
		return
	}
	policies, err := cedar.NewPolicyListFromBytes(path, []byte(t.Text))
	if err != nil {
		*list = append(*list, syntaxProblem(path, t.Text, err))
		return
	}
	switch {
	case len(policies) == 0:
		list.warnf(path, "", "there is no policy in it")
	case len(policies) > maxPolicies:
		list.errorf(path, "", "there are %d policies, at most %d will do", len(policies), maxPolicies)
		return
	}
	for _, p := range policies {
		at := p.Position()
		c := &compiled{name: string(p.Annotations()["id"]), forbid: p.Effect() == cedar.Forbid, policy: p}
		where := path + ":" + strconv.Itoa(at.Line)
		switch mode := p.Annotations()["mode"]; mode {
		case "", "enforce":
		case "shadow":
			c.shadow = true
		default: // a mistake must not enforce what is on trial, nor the other way round
			*list = append(*list, Problem{
				Path: path, Line: at.Line, Column: at.Column,
				Message: "there is no mode " + strconv.Quote(show(string(mode))),
				Hint:    `write @mode("enforce"), which is the default, or @mode("shadow")`,
			})
		}
		if c.name == "" {
			c.name = where
			if _, found := taken[where]; found { // two in a line
				c.name += ":" + strconv.Itoa(at.Column)
			}
		}
		list.name(where, c.name, taken)
		s.add(c)
		v := &vocabulary{list: list, path: path, line: at.Line, column: at.Column}
		v.policy(p)
	}
}

// shape is what nesting counts.
type shape struct{ depth, signs, dots, start int }

// nesting bounds brackets inside each other, signs and dots in a row, and the length of a policy.
// It knows strings and comments.
func nesting(text string) (line int, fault string) {
	var s shape
	line = 1
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			line++
			continue
		case c == ' ' || c == '\t' || c == '\r':
			continue
		case strings.HasPrefix(text[i:], "//"):
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
			continue
		case c == '"':
			i, line = skipString(text, i, line)
			s.count('"', i)
		default:
			s.count(c, i)
		}
		switch {
		case s.depth > maxNesting, s.signs > maxNesting, s.dots > maxDots:
			return line, "the policy is nested too deeply"
		case i-s.start > maxOne:
			return line, "the policy is too long"
		}
	}
	return 0, ""
}

func (s *shape) count(c byte, i int) {
	switch c {
	case '(', '[', '{':
		s.depth++
	case ')', ']', '}':
		s.depth--
	case '.':
		s.dots++
	case '!', '-':
		s.signs++
	case ';':
		s.start = i
	}
	if c != '!' && c != '-' {
		s.signs = 0
	}
	if c != '.' && !isUnreserved(c) || c == '-' || c == '~' {
		s.dots = 0
	}
}

// skipString returns the end of the string that starts at i.
func skipString(text string, i, line int) (end, endLine int) {
	for i++; i < len(text) && text[i] != '"'; i++ {
		switch text[i] {
		case '\\':
			i++
		case '\n':
			line++
		}
	}
	return i, line
}

// syntaxProblem says where the parser stopped.
func syntaxProblem(path, text string, err error) Problem {
	p := Problem{Path: path, Message: err.Error()}
	before, rest, found := strings.Cut(p.Message, inputMark)
	line, rest, _ := strings.Cut(rest, ":")
	column := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	if !found || strings.Contains(before, `"`) {
		p.Message = "not valid Cedar: " + show(strings.TrimPrefix(p.Message, "parser error: "))
		p.Line = lastGood(text)
		p.Hint = "it is in the policy that begins after this line"
		return p
	}
	p.Line, _ = strconv.Atoi(line)
	p.Column, _ = strconv.Atoi(column)
	_, what, _ := strings.Cut(rest[len(column):], ": ")
	if got, ok := strings.CutPrefix(what, "exact got "); ok {
		if got, want, ok := strings.Cut(got, " want "); ok {
			// The parser tells where the next word is.
			p.Line, p.Column = backTo(text, p.Line, p.Column, got)
			got = cmp.Or(got, "the end")
			what = "found " + got + " where " + want + " must be"
		}
	}
	p.Message = "not valid Cedar: " + show(what)
	return p
}

// backTo is where the word before a position is.
func backTo(text string, line, column int, word string) (l, c int) {
	at := 0
	for range line - 1 {
		at += strings.IndexByte(text[at:], '\n') + 1
	}
	for range column - 1 {
		_, n := utf8.DecodeRuneInString(text[at:])
		at += n
	}
	found := strings.LastIndex(text[:at], word)
	if word == "" || found < 0 {
		return line, column
	}
	text = text[:found]
	return strings.Count(text, "\n") + 1,
		utf8.RuneCountInString(text[strings.LastIndexByte(text, '\n')+1:]) + 1
}

// lastGood is the line of the last policy before the fault.
func lastGood(text string) int {
	d := cedar.NewDecoder(strings.NewReader(text))
	for line := 1; ; {
		var p cedar.Policy
		if err := d.Decode(&p); err != nil {
			return line
		}
		line = p.Position().Line
	}
}
