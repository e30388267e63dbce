package capture

import (
	"bytes"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/internal/glob"
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
	*s = subject{rec: rec}
	matches := f.root.match(s)
	*s = subject{}
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
}

func (s *subject) frame() []byte {
	if !s.loaded {
		s.loaded = true
		s.data, _ = s.rec.Data() // bytes that are not valid match nothing
	}
	return s.data
}

type node interface{ match(s *subject) bool }

type allOf []node

func (all allOf) match(s *subject) bool {
	for _, n := range all {
		if !n.match(s) {
			return false
		}
	}
	return true
}

type anyOf []node

func (some anyOf) match(s *subject) bool {
	for _, n := range some {
		if n.match(s) {
			return true
		}
	}
	return false
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
	plain bool // it is written without escapes
}

func (n wordNode) match(s *subject) bool {
	if contains([]byte(s.rec.Method), n.word) || contains([]byte(s.rec.Name), n.word) {
		return true
	}
	if raw := s.rec.raw; raw != nil && !s.rec.b64 && n.plain && !contains(raw, n.word) &&
		!bytes.Contains(raw, []byte(`\u`)) {
		return false // without escapes in the word it would be there
	}
	return contains(s.frame(), n.word)
}

// contains reports whether data has a word, in upper or lower case.
func contains(data, word []byte) bool {
	if len(word) == 0 {
		return true
	}
	first := [2]byte{word[0], word[0]}
	if lower := word[0] | 0x20; lower >= 'a' && lower <= 'z' {
		first = [2]byte{lower, lower - 0x20}
	}
	next := [2]int{-1, -1} // where each of them occurs next
	for at := 0; len(data)-at >= len(word); at++ {
		for i, c := range first {
			if next[i] < at {
				if next[i] = bytes.IndexByte(data[at:], c); next[i] < 0 {
					next[i] = len(data)
				} else {
					next[i] += at
				}
			}
		}
		if at = min(next[0], next[1]); len(data)-at < len(word) {
			return false
		}
		if bytes.EqualFold(data[at:at+len(word)], word) {
			return true
		}
	}
	return false
}

func newWord(word string) wordNode {
	special := func(c rune) bool { return c < ' ' || c == '"' || c == '\\' || c == '/' }
	return wordNode{[]byte(word), strings.IndexFunc(word, special) < 0}
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
	exists bool
	text   func(string) bool
	number func(float64) bool // nil: it is no number
}

func (n pathNode) match(s *subject) bool {
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
		index, found := 0, []byte(nil)
		want, ok := integer([]byte(name))
		if !ok {
			return nil
		}
		scan.Array(value, func(element []byte) bool {
			if int64(index) == want {
				found = element
			}
			index++
			return found == nil
		})
		value = found
	}
	if len(value) == 0 {
		return nil
	}
	return value
}

// textField returns a field that is text; nil: there is none of that name.
func textField(name string) func(*Record) string {
	key := []byte(name)
	switch name {
	case "id":
		return func(r *Record) string {
			id := r.id
			if id == nil && r.ID == "" {
				id = scan.Member(r.data, "id") // it is not one of a reader
			}
			if id != nil {
				return strings.Trim(string(id), `"`)
			}
			return strings.Trim(r.ID, `"`)
		}
	case "type", "dir", "kind", "method", "name", "problem", "verb", "path", "why", "principal",
		"outcome", "upstream", "era", "transport", "span":
		return func(r *Record) string { return *r.text(key) }
	}
	return nil
}

// numberField returns a field that is a number; nil: there is none of that name.
func numberField(name string) func(*Record) int64 {
	if name == "size" {
		name = "n"
	}
	key := []byte(name)
	switch name {
	case "code", "dur", "n", "conn", "seq", "ref", "x", "status", "call", "parent":
		return func(r *Record) int64 {
			switch n := r.number(key).(type) {
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

func matchGlob(pattern string) func(string) bool {
	return func(s string) bool { return glob.Match(pattern, s) }
}
