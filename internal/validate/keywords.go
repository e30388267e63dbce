package validate

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
)

// A draft is a version of JSON Schema; a later one is greater.
type draft uint8

const (
	draft4 draft = iota + 1
	draft6
	draft7
	draft2019
	draft2020
)

// drafts are the dialects by what $schema says, without an empty fragment.
var drafts = map[string]draft{
	"http://json-schema.org/draft-04/schema":       draft4,
	"http://json-schema.org/draft-06/schema":       draft6,
	"http://json-schema.org/draft-07/schema":       draft7,
	"https://json-schema.org/draft/2019-09/schema": draft2019,
	"https://json-schema.org/draft/2020-12/schema": draft2020,
	// Written by many, if wrongly.
	"https://json-schema.org/draft-04/schema":     draft4,
	"https://json-schema.org/draft-06/schema":     draft6,
	"https://json-schema.org/draft-07/schema":     draft7,
	"http://json-schema.org/draft/2019-09/schema": draft2019,
	"http://json-schema.org/draft/2020-12/schema": draft2020,
}

const draftNames = "https://json-schema.org/draft/2020-12/schema, " +
	"https://json-schema.org/draft/2019-09/schema, " +
	"http://json-schema.org/draft-07/schema#, http://json-schema.org/draft-06/schema#, " +
	"http://json-schema.org/draft-04/schema#"

// id is the keyword that names a schema.
func (d draft) id() string {
	if d == draft4 {
		return "id"
	}
	return "$id"
}

// A keyword is how to apply one, and the drafts that have it.
type keyword struct {
	since, until draft // zero is open
	apply        func(*subject, member) error
}

// A subject is the schema that keywords are applied to.
type subject struct {
	c       *compiler
	node    *node
	place   *place
	members []member
}

// keywords returns all that are more than an annotation.
func keywords() map[string]keyword {
	return map[string]keyword{
		"$ref":          {apply: (*subject).reference},
		"$recursiveRef": {draft2019, draft2019, (*subject).reference},
		"$dynamicRef":   {since: draft2020, apply: (*subject).reference},
		"$defs":         {since: draft2019, apply: (*subject).definitions},
		"definitions":   {apply: (*subject).definitions},

		"type":             {apply: (*subject).types},
		"enum":             {apply: (*subject).enum},
		"const":            {since: draft6, apply: (*subject).constant},
		"multipleOf":       {apply: (*subject).multipleOf},
		"minimum":          {apply: (*subject).limit},
		"maximum":          {apply: (*subject).limit},
		"exclusiveMinimum": {apply: (*subject).exclusive},
		"exclusiveMaximum": {apply: (*subject).exclusive},

		"minLength":     {apply: size(func(n *node) *int { return &n.texts().min })},
		"maxLength":     {apply: size(func(n *node) *int { return &n.texts().max })},
		"minItems":      {apply: size(func(n *node) *int { return &n.arrays().min })},
		"maxItems":      {apply: size(func(n *node) *int { return &n.arrays().max })},
		"minProperties": {apply: size(func(n *node) *int { return &n.objects().min })},
		"maxProperties": {apply: size(func(n *node) *int { return &n.objects().max })},
		"pattern":       {apply: (*subject).pattern},

		"properties":           {apply: (*subject).properties},
		"patternProperties":    {apply: (*subject).patternProperties},
		"additionalProperties": {apply: one(func(n *node) **node { return &n.objects().extra })},
		"propertyNames": {since: draft6, apply: one(func(n *node) **node {
			return &n.objects().names
		})},
		"required":          {apply: (*subject).required},
		"dependencies":      {apply: (*subject).dependencies}, // deprecated since 2019-09
		"dependentRequired": {since: draft2019, apply: (*subject).dependencies},
		"dependentSchemas":  {since: draft2019, apply: (*subject).dependencies},

		"items": {apply: (*subject).items},
		"prefixItems": {since: draft2020, apply: many(func(n *node) *[]*node {
			return &n.arrays().prefix
		})},
		"additionalItems": {until: draft2019, apply: (*subject).additionalItems},
		"uniqueItems":     {apply: (*subject).unique},
		"contains":        {since: draft6, apply: (*subject).contains},

		"allOf": {apply: many(func(n *node) *[]*node { return &n.combines().all })},
		"anyOf": {apply: many(func(n *node) *[]*node { return &n.combines().any })},
		"oneOf": {apply: many(func(n *node) *[]*node { return &n.combines().one })},
		"not":   {apply: one(func(n *node) **node { return &n.combines().not })},
		"if":    {since: draft7, apply: one(func(n *node) **node { return &n.combines().cond })},
		"then":  {since: draft7, apply: one(func(n *node) **node { return &n.combines().then })},
		"else":  {since: draft7, apply: one(func(n *node) **node { return &n.combines().els })},

		"unevaluatedProperties": {since: draft2019, apply: one(func(n *node) **node {
			return &n.combines().otherProperties
		})},
		"unevaluatedItems": {since: draft2019, apply: one(func(n *node) **node {
			return &n.combines().otherItems
		})},
	}
}

// raw returns the text of a keyword's value.
func (s *subject) raw(m member) []byte { return s.c.doc[m.at:m.end:m.end] }

// sub compiles a subschema of the keyword m.
func (s *subject) sub(m member, at int, name string) (*node, error) {
	return s.c.node(s.place.below(m, name, at))
}

// one is for keywords that are a schema.
func one(field func(*node) **node) func(*subject, member) error {
	return func(s *subject, m member) error {
		n, err := s.sub(m, m.at, "")
		if err == nil {
			*field(s.node) = n
		}
		return err
	}
}

// many is for keywords that are a list of schemas.
func many(field func(*node) *[]*node) func(*subject, member) error {
	return func(s *subject, m member) error {
		nodes, err := s.subs(m)
		if err == nil {
			*field(s.node) = nodes
		}
		return err
	}
}

func (s *subject) subs(m member) ([]*node, error) {
	if s.c.doc[m.at] != '[' {
		return nil, errors.New("must be an array of schemas")
	}
	items := s.c.items(m.at)
	if len(items) == 0 && s.place.resource.draft > draft4 && m.name != "items" {
		return nil, errors.New("must have at least one schema")
	}
	nodes := make([]*node, len(items))
	for i, at := range items {
		var err error
		if nodes[i], err = s.sub(m, at, strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// size is for keywords that are a number of things.
func size(field func(*node) *int) func(*subject, member) error {
	return func(s *subject, m member) error {
		n, err := s.count(m)
		if err == nil {
			*field(s.node) = n
		}
		return err
	}
}

func (s *subject) count(m member) (int, error) {
	raw := s.raw(m)
	if kindOf[raw[0]] == number {
		if d := parseDecimal(raw); d.integer() && !d.neg {
			return d.int(), nil
		}
	}
	return 0, errors.New("must be an integer that is not negative")
}

// entries lists the members of a keyword that is an object.
func (s *subject) entries(m member) ([]member, error) {
	if s.c.doc[m.at] != '{' {
		return nil, errors.New("must be an object")
	}
	return s.c.members(m.at)
}

// strings lists the elements of an array of different strings.
func (s *subject) strings(m member) ([]string, error) {
	wrong := errors.New("must be an array of different strings")
	if s.c.doc[m.at] != '[' {
		return nil, wrong
	}
	var out []string
	taken := map[string]struct{}{}
	for raw := range scan.Elements(s.raw(m)) {
		if raw[0] != '"' {
			return nil, wrong
		}
		name := string(scan.Unquote(raw))
		if _, again := taken[name]; again {
			return nil, wrong
		}
		taken[name] = struct{}{}
		out = append(out, name)
	}
	return out, nil
}

func (s *subject) bool(m member) (bool, error) {
	switch s.c.doc[m.at] {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return false, errors.New("must be true or false")
}

func (s *subject) word(m member) (string, error) {
	if s.c.doc[m.at] != '"' {
		return "", errors.New("must be a string")
	}
	return string(scan.Unquote(s.raw(m))), nil
}

func (s *subject) number(m member) ([]byte, error) {
	if kindOf[s.c.doc[m.at]] != number {
		return nil, errors.New("must be a number")
	}
	return s.raw(m), nil
}

// maxWeight bounds the size of a compiled pattern, in instructions: counted
// repetitions can make a short one large.
const maxWeight = 20_000

// compilePattern compiles a regular expression of ECMA-262 as far as package
// regexp, which takes linear time, can do what it says.
func compilePattern(source string) (*pattern, error) {
	translated, ok := translate(source)
	if !ok {
		return nil, fmt.Errorf("%q is not supported: a class without characters", clip(source))
	}
	tree, err := syntax.Parse(translated, syntax.Perl)
	if err != nil {
		if e, ok := errors.AsType[*syntax.Error](err); ok {
			return nil, fmt.Errorf("%q is not supported: %s: %q", clip(source), e.Code, clip(e.Expr))
		}
		return nil, err
	}
	w := weigh(tree)
	if w > maxWeight {
		return nil, fmt.Errorf("%q is too large", clip(source))
	}
	re, err := regexp.Compile(translated)
	if err != nil {
		return nil, err
	}
	return &pattern{re: re, source: source, weight: w}, nil
}

// weigh estimates the instructions of a compiled expression.
func weigh(re *syntax.Regexp) int {
	w := 1
	for _, sub := range re.Sub {
		w = min(w+weigh(sub), maxWeight+1)
	}
	switch re.Op {
	case syntax.OpLiteral:
		w += len(re.Rune)
	case syntax.OpCharClass:
		w += len(re.Rune) / 8
	case syntax.OpRepeat:
		w *= max(re.Min, re.Max, 1)
	}
	return w
}

// space is what \s means in ECMA-262, as the inside of a character class.
const space = `\t-\r ` +
	`\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`

// translate rewrites what ECMA-262 writes otherwise than package regexp. It cannot do that for []
// and [^], which package regexp takes for the beginning of a class.
func translate(s string) (translated string, ok bool) {
	if !strings.ContainsAny(s, `\[`) {
		return s, true
	}
	var out strings.Builder
	class := false
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			if !class && (strings.HasPrefix(s[i:], "[]") || strings.HasPrefix(s[i:], "[^]")) {
				return "", false
			}
			class = s[i] == '[' || class && s[i] != ']'
			out.WriteByte(s[i])
			i++
			continue
		}
		n := translateEscape(&out, s[i:], class)
		i += n
	}
	return out.String(), true
}

// translateEscape rewrites the escape sequence at the start of s and returns
// its length.
func translateEscape(out *strings.Builder, s string, class bool) int {
	switch c := s[1]; {
	case c == 'u' && len(s) >= 6:
		r, err := strconv.ParseUint(s[2:6], 16, 16)
		if err != nil {
			break
		}
		n := 6
		if len(s) >= 12 && s[6:8] == `\u` {
			if low, err := strconv.ParseUint(s[8:12], 16, 16); err == nil {
				if pair := utf16.DecodeRune(rune(r), rune(low)); pair != utf8.RuneError {
					r, n = uint64(pair), 12
				}
			}
		}
		fmt.Fprintf(out, `\x{%x}`, r)
		return n
	case c == 'c' && len(s) >= 3 && 'A' <= s[2]&^0x20 && s[2]&^0x20 <= 'Z':
		fmt.Fprintf(out, `\x%02x`, s[2]&0x1f)
		return 3
	case c == 's' && class:
		out.WriteString(space)
		return 2
	case c == 's':
		out.WriteString("[" + space + "]")
		return 2
	case c == 'S' && !class:
		out.WriteString("[^" + space + "]")
		return 2
	}
	out.WriteString(s[:2])
	return 2
}
