package capture

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/glob"
)

const (
	// maxFilter bounds the text of a filter, and so the work of a match.
	maxFilter = 4 << 10
	maxNested = 32
)

type filterParser struct {
	text  string
	at    int
	depth int
}

func (p *filterParser) errorf(at int, format string, args ...any) error {
	return fmt.Errorf("filter: column %d: %s", at+1, fmt.Sprintf(format, args...))
}

func (p *filterParser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// any is terms with "or" between them.
func (p *filterParser) any() (node, error) {
	if len(p.text) > maxFilter {
		return nil, p.errorf(maxFilter, "a filter has at most %d bytes", maxFilter)
	}
	if p.depth++; p.depth > maxNested {
		return nil, p.errorf(p.at, "parentheses and negations are nested at most %d deep", maxNested)
	}
	defer func() { p.depth-- }()
	var some anyOf
	for {
		all, err := p.all()
		if err != nil {
			return nil, err
		}
		some = append(some, all)
		if !p.word("or") {
			break
		}
		if p.space(); p.at == len(p.text) {
			return nil, p.errorf(p.at, "a term is missing after or")
		}
	}
	if len(some) == 1 {
		return some[0], nil
	}
	return some, nil
}

// word passes over a word of the language.
func (p *filterParser) word(word string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.text[p.at:], word)
	if !ok || rest != "" && strings.IndexByte(" \t\r\n(", rest[0]) < 0 {
		return false
	}
	p.at += len(word)
	return true
}

// all is terms that all have to hold.
func (p *filterParser) all() (node, error) {
	var all allOf
	for {
		p.space()
		if p.at == len(p.text) || p.text[p.at] == ')' {
			return all, nil
		}
		if before := p.at; p.word("or") {
			if len(all) == 0 {
				return nil, p.errorf(before, "a term is missing before or")
			}
			p.at = before
			return all, nil
		}
		if p.word("and") {
			continue
		}
		one, err := p.one()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// one is a term, a group, or the negation of one.
func (p *filterParser) one() (node, error) {
	if p.depth++; p.depth > maxNested {
		return nil, p.errorf(p.at, "parentheses and negations are nested at most %d deep", maxNested)
	}
	defer func() { p.depth-- }()
	start := p.at
	switch negated := p.text[p.at] == '!' || p.text[p.at] == '-'; {
	case negated, p.word("not"):
		if negated {
			p.at++
		}
		if p.space(); p.at == len(p.text) || p.text[p.at] == ')' {
			return nil, p.errorf(start, "a term is missing after the negation")
		}
		n, err := p.one()
		return notOf{n}, err
	case p.text[p.at] == '(':
		p.at++
		n, err := p.any()
		if err != nil {
			return nil, err
		}
		if p.at == len(p.text) {
			return nil, p.errorf(start, "the parenthesis is not closed")
		}
		p.at++
		return n, nil
	}
	return p.term()
}

const operatorBytes = ":=!<>~"

// term is a word, or a field with an operator and a value.
func (p *filterParser) term() (node, error) {
	start := p.at
	if p.text[p.at] == '"' {
		word, err := p.value()
		return newWord(word), err
	}
	for p.at < len(p.text) && strings.IndexByte(operatorBytes+" \t\r\n()\"", p.text[p.at]) < 0 {
		p.at++
	}
	field, at := p.text[start:p.at], p.at
	for p.at < len(p.text) && strings.IndexByte(operatorBytes, p.text[p.at]) >= 0 && p.at-at < 2 {
		p.at++
	}
	operator := p.text[at:p.at]
	for operator != "" && !slices.Contains(operators, operator) { // code:-1, name:!x
		p.at--
		operator = operator[:len(operator)-1]
	}
	switch {
	case operator == "" && field == "":
		return nil, p.errorf(start, "unexpected %q", p.text[start:start+1])
	case operator == "" && slices.Contains([]string{"error", "tool_error", "redacted", "cut"}, field):
		return flagNode(field), nil
	case operator == "":
		return newWord(field), nil
	case field == "":
		return nil, p.errorf(start, "a field is missing before %s", operator)
	}
	valueAt := p.at
	value, err := p.value()
	if err != nil {
		return nil, err
	}
	n, err := newTerm(field, operator, value)
	if err != nil {
		if errors.Is(err, errValue) {
			return nil, p.errorf(valueAt, "%s", err)
		}
		return nil, p.errorf(start, "%s", err)
	}
	return n, nil
}

// value is a word, or a text in quotes, in which \ stands before a quote or itself.
func (p *filterParser) value() (string, error) {
	start := p.at
	if p.at == len(p.text) || p.text[p.at] != '"' {
		for p.at < len(p.text) && strings.IndexByte(" \t\r\n()", p.text[p.at]) < 0 {
			p.at++
		}
		if p.at == start {
			return "", p.errorf(start, "a value is missing")
		}
		return p.text[start:p.at], nil
	}
	var b strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		c := p.text[p.at]
		if c == '"' {
			p.at++
			return b.String(), nil
		}
		if c == '\\' && p.at+1 < len(p.text) && (p.text[p.at+1] == '"' || p.text[p.at+1] == '\\') {
			p.at++
			c = p.text[p.at]
		}
		b.WriteByte(c)
	}
	return "", p.errorf(start, "unterminated quote")
}

var operators = []string{":", "=", "!=", "=~", "!~", "<", "<=", ">", ">="}

var errValue = errors.New("the value is not valid")

func newTerm(field, operator, value string) (node, error) {
	if get := textField(field); get != nil {
		test, err := textTest(operator, value)
		return textNode{get, test}, err
	}
	if get := numberField(field); get != nil {
		if operator == ":" && strings.ContainsAny(value, "*?") || operator == "=~" || operator == "!~" {
			test, err := textTest(operator, value)
			return textNode{func(r *Record) string { return strconv.FormatInt(get(r), 10) }, test}, err
		}
		test, err := numberTest(operator, value)
		if field == "dur" {
			return allOf{numberNode{get, func(x float64) bool { return x > 0 }}, numberNode{get, test}}, err
		}
		return numberNode{get, test}, err
	}
	if field == "has" {
		path, err := pathOf(value)
		return pathNode{path: path, needs: needs(path, "", ""), exists: true}, err
	}
	path, err := pathOf(field)
	if err != nil {
		return nil, err
	}
	n := pathNode{path: path, needs: needs(path, operator, value)}
	switch operator {
	case "<", "<=", ">", ">=":
		n.number, err = numberTest(operator, value)
		return n, err
	}
	n.text, err = textTest(operator, value)
	return n, err
}

// needs returns texts that a frame has when a value of it at a path passes a test.
func needs(path []string, operator, value string) (list []string) {
	add := func(text, others string) {
		if text = plainPart(text, others); text != "" {
			list = append(list, text)
		}
	}
	if len(path) > 0 {
		last := path[len(path)-1]
		if _, ok := integer([]byte(last)); !ok {
			add(last, "")
		}
	}
	switch operator {
	case "=":
		add(value, "")
	case ":":
		add(value, "*?")
	case "=~":
		re, err := syntax.Parse(value, syntax.Perl)
		if err != nil {
			return nil // textTest says so
		}
		parts := []*syntax.Regexp{re}
		if re.Op == syntax.OpConcat {
			parts = re.Sub
		}
		for _, part := range parts {
			if part.Op == syntax.OpLiteral && part.Flags&syntax.FoldCase == 0 {
				add(string(part.Rune), "")
			}
		}
	}
	return list
}

// pathOf is the path of a value in a frame.
func pathOf(text string) ([]string, error) {
	path := strings.Split(text, ".")
	switch path[0] {
	case "params", "result", "error":
		return path, nil
	case "message":
		return path[1:], nil
	}
	return nil, fmt.Errorf("unknown field %q: use type, dir, kind, id, method, name, code, dur, n, "+
		"conn, seq or another one of a record, or a path from params, result, error or message", text)
}

func textTest(operator, value string) (func(string) bool, error) {
	switch operator {
	case ":":
		return func(s string) bool { return glob.Match(value, s) }, nil
	case "=":
		return func(s string) bool { return s == value }, nil
	case "!=":
		return func(s string) bool { return s != value }, nil
	case "=~", "!~":
		re, err := regexp.Compile(value)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errValue, err)
		}
		return func(s string) bool { return re.MatchString(s) == (operator == "=~") }, nil
	}
	return nil, fmt.Errorf("%s compares numbers, and the field is text: use :, =, != or =~", operator)
}

func numberTest(operator, value string) (func(float64) bool, error) {
	n, ok := numeral(value)
	if !ok {
		return nil, fmt.Errorf("%w: %q is not a number, a duration (500ms) or a size (10KB)",
			errValue, value)
	}
	return func(x float64) bool {
		c := cmp.Compare(x, n)
		switch operator {
		case "<":
			return c < 0
		case "<=":
			return c <= 0
		case ">":
			return c > 0
		case ">=":
			return c >= 0
		case "!=":
			return c != 0
		}
		return c == 0
	}, nil
}

// numeral reads a number, a duration as nanoseconds, or a size as bytes.
func numeral(text string) (float64, bool) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n, true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return float64(d), true
	}
	for i, unit := range []string{"KB", "MB", "GB"} {
		if digits, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseFloat(digits, 64)
			return n * float64(uint64(1)<<(10*(i+1))), err == nil
		}
	}
	return 0, false
}
