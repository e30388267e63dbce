package capture

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
)

// A Filter selects records. It is safe for concurrent use. The language:
//
//	method:tools/* name:git* dur>500ms code:-32602 dir:up params.path=~"^/etc"
//
// All terms of a filter have to hold; "or" between terms, "not", ! or - before one, and
// parentheses group. A term is FIELD, an operator and a value, which may be quoted. The
// operators: ":" matches a pattern with * and ?, "=" and "!=" compare, "=~" and "!~" match a
// regular expression (RE2), and ">", ">=", "<", "<=" compare numbers, durations (500ms, 2s) and
// sizes (10KB, 1MB).
//
// The fields are those of a record: type, dir, kind, id, method, name, code, problem, dur, n (or
// size), conn, seq, ref, x, status, verb, path, why, outcome, principal, upstream, era, transport,
// span, call, parent. Only an answer with its request has a dur. A path that begins with params,
// result, error or message (the whole) is a value in the frame, in which numbers are the indexes of
// arrays: result.content.0.text. A word without an operator is one of error (the answer is an
// error, or that of a tool), tool_error, redacted, cut, or otherwise a text that occurs in the
// frame, its method or its name, in upper or lower case.
type Filter struct {
	text string
	root node
}

// ParseFilter returns the filter of a text, and an error with the position of what is wrong. An
// empty text selects everything.
func ParseFilter(text string) (*Filter, error) {
	p := &filterParser{text: text}
	root, err := p.any()
	if err == nil && p.at < len(text) {
		err = p.errorf(p.at, "unexpected %q", text[p.at:p.at+1])
	}
	if err != nil {
		return nil, err
	}
	return &Filter{text, root}, nil
}

// String returns the text of the filter.
func (f *Filter) String() string { return f.text }

// Match reports whether the filter selects the record. A nil Filter selects all.
func (f *Filter) Match(rec *Record) bool {
	if f == nil || f.text == "" {
		return true
	}
	s, ok := subjects.Get().(*subject)
	if !ok {
		s = new(subject)
	}
	*s = subject{rec: rec, buf: s.buf[:0]}
	matches := f.root.match(s)
	*s = subject{buf: s.buf}
	subjects.Put(s)
	return matches
}

// subjects are those that no Match uses.
var subjects sync.Pool

// A subject is a record, and what terms have found out about it.
type subject struct {
	rec    *Record
	data   []byte
	loaded bool
	buf    []byte
}

// maxBuf is the largest buffer of a frame that is kept.
const maxBuf = 64 << 10

func (s *subject) frame() []byte {
	if !s.loaded {
		s.loaded = true
		var copied bool
		s.data, copied, _ = s.rec.into(s.buf) // bytes that are not valid match nothing
		if copied && cap(s.data) <= maxBuf {
			s.buf = s.data
		}
	}
	return s.data
}

// lacks reports that the frame has not all of these texts in it, without reading it: they are
// plain, and in the line of a record only \u hides what is plain.
func (s *subject) lacks(texts ...string) bool {
	raw := s.rec.raw
	if raw == nil || s.rec.b64 {
		return false
	}
	for _, text := range texts {
		if !bytes.Contains(raw, []byte(text)) {
			return !hides(raw)
		}
	}
	return false
}

// hides reports whether there is \u, by the rarer one of its bytes.
func hides(raw []byte) bool {
	for at := 0; ; at++ {
		i := bytes.IndexByte(raw[at:], 'u')
		if i < 0 {
			return false
		}
		if at += i; raw[at-1] == '\\' { // raw begins with a quote
			return true
		}
	}
}

// isEscaped reports whether a string may have the character in another form.
func isEscaped(c rune) bool { return c < ' ' || c == '"' || c == '\\' || c == '/' }

// plainPart is the longest part of a text that a string has as it is, with no character of others.
func plainPart(text, others string) (part string) {
	for piece := range strings.FieldsFuncSeq(text, func(c rune) bool {
		return isEscaped(c) || strings.ContainsRune(others, c) || c == utf8.RuneError
	}) {
		if len(piece) > len(part) {
			part = piece
		}
	}
	return part
}

type node interface{ match(s *subject) bool }

type allOf []node

func (all allOf) match(s *subject) bool {
	return !slices.ContainsFunc(all, func(n node) bool { return !n.match(s) })
}

type anyOf []node

func (some anyOf) match(s *subject) bool {
	return slices.ContainsFunc(some, func(n node) bool { return n.match(s) })
}

type notOf struct{ node }

func (n notOf) match(s *subject) bool { return !n.node.match(s) }

// A flagNode is what became of a frame.
type flagNode string

func (n flagNode) match(s *subject) bool {
	switch n {
	case "error":
		return s.rec.Code != 0 || s.rec.ToolError
	case "tool_error":
		return s.rec.ToolError
	case "redacted":
		return len(s.rec.Redacted) > 0
	}
	return s.rec.Cut > 0
}

// A wordNode is a text.
type wordNode struct {
	word  []byte
	rare  int  // where the byte is that occurs least often
	plain bool // it is written without escapes
}

func newWord(word string) wordNode {
	n := wordNode{word: []byte(word), plain: strings.IndexFunc(word, isEscaped) < 0}
	const often = `"etaoinsr0lc1dump_2h:/gfyb3.-w4v5k6789xjqz`
	seldom := -1
	for i, c := range []byte(word) {
		if c >= utf8.RuneSelf { // its cases may differ in length
			n.rare = 0
			break
		}
		at := strings.IndexByte(often, c|0x20)
		if at < 0 {
			at = len(often)
		}
		if at > seldom {
			seldom, n.rare = at, i
		}
	}
	return n
}

func (n wordNode) match(s *subject) bool {
	if n.in([]byte(s.rec.Method)) || n.in([]byte(s.rec.Name)) {
		return true
	}
	if raw := s.rec.raw; raw != nil && !s.rec.b64 && n.plain && !n.in(raw) && !hides(raw) {
		return false // without escapes in the word it would be there
	}
	return n.in(s.frame())
}

// in reports whether data has the word, in upper or lower case.
func (n wordNode) in(data []byte) bool {
	word := n.word
	if len(word) == 0 {
		return true
	}
	either := [2]byte{word[n.rare], word[n.rare]}
	if lower := word[n.rare] | 0x20; lower >= 'a' && lower <= 'z' {
		either = [2]byte{lower, lower - 0x20}
	}
	next := [2]int{-1, -1} // where each of them occurs next
	for at := n.rare; len(data)-at >= len(word)-n.rare; at++ {
		for i, c := range either {
			if next[i] < at {
				if next[i] = bytes.IndexByte(data[at:], c); next[i] < 0 {
					next[i] = len(data)
				} else {
					next[i] += at
				}
			}
		}
		if at = min(next[0], next[1]); len(data)-at < len(word)-n.rare {
			return false
		}
		if bytes.EqualFold(data[at-n.rare:at-n.rare+len(word)], word) {
			return true
		}
	}
	return false
}

// A textNode compares a field that is text.
type textNode struct {
	field func(*Record) string
	test  func(string) bool
}

func (n textNode) match(s *subject) bool { return n.test(n.field(s.rec)) }

// A numberNode compares a field that is a number.
type numberNode struct {
	field func(*Record) int64
	test  func(float64) bool
}

func (n numberNode) match(s *subject) bool { return n.test(float64(n.field(s.rec))) }

// A pathNode compares a value in the frame.
type pathNode struct {
	path   []string
	needs  []string // texts without which no frame has such a value
	exists bool
	text   func(string) bool
	number func(float64) bool // nil: it is no number
}

func (n pathNode) match(s *subject) bool {
	if s.lacks(n.needs...) {
		return false
	}
	value := at(s.frame(), n.path)
	switch {
	case value == nil:
		return false
	case n.exists:
		return true
	case value[0] == '"':
		return n.text != nil && n.text(string(scan.Unquote(value)))
	}
	if n.number != nil {
		number, ok := numeral(string(value))
		return ok && n.number(number)
	}
	return n.text(string(value))
}

// at returns the value at the path in a message, or nil.
func at(data []byte, path []string) []byte {
	value := data[scan.Space(data, 0):]
	for _, name := range path {
		if len(value) == 0 {
			return nil
		}
		if value[0] != '[' {
			value = scan.Member(value, name)
			continue
		}
		want, ok := integer([]byte(name))
		if !ok {
			return nil
		}
		var found []byte
		for element := range scan.Elements(value) {
			if want == 0 {
				found = element
				break
			}
			want--
		}
		value = found
	}
	if len(value) == 0 {
		return nil
	}
	return value
}

// textField returns a field that is text; nil: there is none of that name.
func textField(name string) func(*Record) string {
	switch name {
	case "id":
		return func(r *Record) string {
			id := r.id
			if id == nil && r.ID == "" {
				id = scan.Member(r.data, "id") // it is not one of a reader
			}
			return strings.Trim(cmp.Or(string(id), r.ID), `"`)
		}
	case "type", "dir", "kind", "method", "name", "problem", "verb", "path", "why", "principal",
		"outcome", "upstream", "era", "transport", "span":
		field := texts[name]
		return func(r *Record) string { return *field(r) }
	}
	return nil
}

// numberField returns a field that is a number; nil: there is none of that name.
func numberField(name string) func(*Record) int64 {
	if name == "size" {
		name = "n"
	}
	switch field := numbers[name]; name {
	case "code", "dur", "n", "conn", "seq", "ref", "x", "status", "call", "parent":
		return func(r *Record) int64 {
			switch n := field(r).(type) {
			case *int64:
				return *n
			case *uint64:
				return int64(*n)
			case *int:
				return int64(*n)
			}
			return 0
		}
	}
	return nil
}
