// Package uritemplate answers one question: which values make a template (RFC 6570) this URI?
//
// A match is the reverse of an expansion: what a template expands to with some values, it matches
// with the same ones. Where several values expand to one text, a match returns those that leave
// fewer variables undefined, and the earlier variable takes as much as it can.
package uritemplate

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Template is a parsed template. It is safe for concurrent use.
type Template struct {
	match *regexp.Regexp // with a group for each expression
	exprs []expression
}

// expression is what stands in braces.
type expression struct {
	operator
	vars []variable
}

type variable struct {
	name    string
	explode bool
	prefix  int // characters at most; 0: no bound
}

// operator is a row of the table of RFC 6570, appendix A.
type operator struct {
	first, sep string
	named      bool
	reserved   bool // reserved characters are not encoded
}

func operatorOf(c byte) (o operator, ok bool) {
	switch c {
	case '+':
		return operator{sep: ",", reserved: true}, true
	case '#':
		return operator{first: "#", sep: ",", reserved: true}, true
	case '.', '/':
		return operator{first: string(c), sep: string(c)}, true
	case ';':
		return operator{first: ";", sep: ";", named: true}, true
	case '?':
		return operator{first: "?", sep: "&", named: true}, true
	case '&':
		return operator{first: "&", sep: "&", named: true}, true
	}
	return operator{sep: ","}, false
}

// A Value is what a variable stands for.
type Value struct {
	Name string
	// Text is the value, or the values of a list as they are joined in the URI: by
	// slashes or dots where the variable is exploded after one of these, else by commas.
	Text string
	List []string
}

// The regular expressions of one character of a value, in a URI that is normalized.
const (
	unreserved = `(?:[A-Za-z0-9\-._~]|%[0-9A-F]{2})`
	valueText  = `(?:` + unreserved + `|,)*`
)

// Parse parses a template.
func Parse(text string) (*Template, error) {
	t := &Template{}
	var pattern strings.Builder
	pattern.WriteString(`^`)
	for rest := text; rest != ""; {
		literal, after, found := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return nil, fmt.Errorf("%q has a } without a {", text)
		}
		pattern.WriteString(regexp.QuoteMeta(normalize(literal)))
		if !found {
			break
		}
		inner, after, found := strings.Cut(after, "}")
		if !found {
			return nil, fmt.Errorf("%q has a { without a }", text)
		}
		e, err := parseExpression(inner)
		if err != nil {
			return nil, fmt.Errorf("%q: {%s}: %w", text, inner, err)
		}
		t.exprs = append(t.exprs, e)
		pattern.WriteString(e.pattern())
		rest = after
	}
	pattern.WriteString(`$`)
	var err error
	t.match, err = regexp.Compile(pattern.String())
	return t, err
}

func parseExpression(text string) (e expression, err error) {
	if text == "" {
		return e, errors.New("a variable is missing")
	}
	var ok bool
	if e.operator, ok = operatorOf(text[0]); ok {
		text = text[1:]
	}
	for one := range strings.SplitSeq(text, ",") {
		v, err := parseVariable(one)
		if err != nil {
			return e, err
		}
		e.vars = append(e.vars, v)
	}
	return e, nil
}

func parseVariable(text string) (v variable, err error) {
	v.name, v.explode = strings.CutSuffix(text, "*")
	if name, length, ok := strings.Cut(v.name, ":"); ok {
		v.name = name
		if v.prefix, err = strconv.Atoi(length); err != nil || v.prefix < 1 || v.prefix > 9999 ||
			v.explode {
			return v, fmt.Errorf("the prefix %q must be a number from 1 to 9999, without an asterisk",
				length)
		}
	}
	valid := v.name != "" &&
		strings.Trim(v.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.%") == ""
	if !valid {
		return v, fmt.Errorf("%q must be a name of letters, digits, dots and underscores", v.name)
	}
	return v, nil
}

// pattern returns the group of an expression. What is in it, values tells apart.
func (e *expression) pattern() string {
	switch {
	case e.reserved:
		return `((?:` + regexp.QuoteMeta(e.first) + `.*)?)`
	case e.named:
		return `((?:[` + e.first + e.sep + `][^` + e.first + e.sep + `#]*)*)`
	case e.first == "":
		return `(` + valueText + `)`
	}
	times := `*`
	if !slices.ContainsFunc(e.vars, func(v variable) bool { return v.explode }) {
		times = fmt.Sprintf(`{0,%d}`, min(len(e.vars), 1000))
	}
	return `((?:` + regexp.QuoteMeta(e.first) + valueText + `)` + times + `)`
}

// Has reports whether the template has a variable.
func (t *Template) Has(name string) bool {
	return slices.ContainsFunc(t.exprs, func(e expression) bool {
		return slices.ContainsFunc(e.vars, func(v variable) bool { return v.name == name })
	})
}

// Match returns the values of the variables that are defined, in the order of the
// template, and whether the URI matches. Characters that a URI has to encode, such
// as those that are not ASCII, may stand in it as they are, and the names of a query
// in any order.
func (t *Template) Match(uri string) (values []Value, ok bool) {
	groups := t.match.FindStringSubmatch(normalize(uri))
	if groups == nil {
		return nil, false
	}
	for i := range t.exprs {
		if values, ok = t.exprs[i].values(values, groups[i+1]); !ok {
			return nil, false
		}
	}
	return values, true
}

// values appends the values of an expression that expands to text.
func (e *expression) values(to []Value, text string) ([]Value, bool) {
	if text == "" {
		return to, true // all of it is undefined
	}
	text = text[len(e.first):]
	if e.named {
		return e.namedValues(to, text)
	}
	pieces := []string{text}
	if len(e.vars) > 1 || e.vars[0].explode {
		pieces = strings.Split(text, e.sep)
	}
	for i, v := range e.vars {
		if len(pieces) == 0 {
			break
		}
		n := 1
		if last := i == len(e.vars)-1; v.explode || last { // the others get one each
			n = max(1, len(pieces)-(len(e.vars)-1-i))
		}
		value, ok := v.value(pieces[:n], e.sep)
		if !ok {
			return nil, false
		}
		to, pieces = append(to, value), pieces[n:]
	}
	return to, true
}

// value returns the value of a variable that expands to pieces.
func (v *variable) value(pieces []string, sep string) (Value, bool) {
	text := strings.Join(pieces, sep)
	if !v.explode {
		pieces, sep = strings.Split(text, ","), ","
	}
	list := make([]string, len(pieces))
	for i, piece := range pieces {
		list[i] = decode(piece)
	}
	ok := v.prefix == 0 || utf8.RuneCountInString(decode(text)) <= v.prefix
	return Value{Name: v.name, Text: strings.Join(list, sep), List: list}, ok
}

// namedValues is values for name=value pairs.
func (e *expression) namedValues(to []Value, text string) ([]Value, bool) {
	found := map[string][]string{}
	for pair := range strings.SplitSeq(text, e.sep) {
		name, value, _ := strings.Cut(pair, "=")
		found[name] = append(found[name], value)
	}
	for _, v := range e.vars {
		pieces, ok := found[normalize(v.name)]
		if !ok {
			continue
		}
		if len(pieces) > 1 && !v.explode {
			return nil, false
		}
		delete(found, normalize(v.name))
		value, ok := v.value(pieces, ",")
		if !ok {
			return nil, false
		}
		to = append(to, value)
	}
	return to, len(found) == 0
}

// normalize encodes what has to be encoded in a URI and is not, and writes what is
// encoded in one way (RFC 3986, section 6.2.2).
func normalize(uri string) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(uri))
	for i := 0; i < len(uri); i++ {
		c := uri[i]
		if c == '%' {
			if b, ok := unhex(uri[i:]); ok {
				i += 2
				if c = b; isUnreserved(c) {
					out = append(out, c)
					continue
				}
				out = append(out, '%', hex[c>>4], hex[c&15])
				continue
			}
		}
		if isUnreserved(c) || strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0 {
			out = append(out, c)
			continue
		}
		out = append(out, '%', hex[c>>4], hex[c&15])
	}
	return string(out)
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-._~", c) >= 0
}

// unhex reads %XX at the beginning of text.
func unhex(text string) (b byte, ok bool) {
	if len(text) < 3 {
		return 0, false
	}
	n, err := strconv.ParseUint(text[1:3], 16, 8)
	return byte(n), err == nil
}

// decode returns the text of a piece of a normalized URI.
func decode(piece string) string {
	out := make([]byte, 0, len(piece))
	for i := 0; i < len(piece); i++ {
		if b, ok := unhex(piece[i:]); ok && piece[i] == '%' {
			out = append(out, b)
			i += 2
			continue
		}
		out = append(out, piece[i])
	}
	return string(out)
}
