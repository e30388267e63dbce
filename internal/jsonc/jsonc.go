// Package jsonc answers one question: how are JSON files with comments read and changed? Editors
// write their settings so.
package jsonc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

// Plain returns a copy in which comments, and commas with nothing behind them, are spaces, so that
// everything else is where it was. The result need not be JSON.
func Plain(data []byte) []byte {
	b := append([]byte(nil), data...)
	comma := -1       // the last one, if nothing has come since
	last := byte('[') // what is before it
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			comma, last = -1, c
		case c == '/' && i+1 < len(b) && (b[i+1] == '/' || b[i+1] == '*'):
			i = blank(b, i) - 1
		case c == ',':
			comma = -1
			if strings.IndexByte("[{,:", last) < 0 {
				comma = i
			}
			last = c
		case c == '}' || c == ']':
			if comma >= 0 {
				b[comma] = ' '
			}
			comma, last = -1, c
		case c > ' ':
			comma, last = -1, c
		}
	}
	return b
}

// blank makes spaces of the comment at i and returns where it ends.
func blank(b []byte, i int) int {
	end := i
	if b[i+1] == '/' {
		for end < len(b) && b[end] != '\n' {
			end++
		}
	} else {
		for end = i + 2; end < len(b) && (b[end] != '/' || b[end-1] != '*' || end == i+2); {
			end++
		}
		if end == len(b) {
			return end // it does not end: the reader will find it
		}
		end++
	}
	for ; i < end; i++ {
		if b[i] != '\n' {
			b[i] = ' '
		}
	}
	return end
}

// ErrExists is what Set fails with when the member is there and is not to be replaced.
var ErrExists = errors.New("it is there already")

const maxNesting = 64

// Set returns a text in which the object at a path has a member with a value, which is JSON.
// Objects on the path that are missing are made; a text without anything is an empty object. All
// else stays as it is: comments, order and spaces.
func Set(text []byte, path []string, key string, value []byte, replace bool) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	plain := Plain(text)
	if i, fault := scan.Text(plain, maxNesting); fault != scan.OK {
		return nil, fmt.Errorf("line %d is not JSON: %v", bytes.Count(text[:i], []byte("\n"))+1, fault)
	}
	e := editor{text: text, plain: plain, newline: "\n"}
	if bytes.Contains(text, []byte("\r\n")) {
		e.newline = "\r\n"
	}
	at := scan.Space(plain, 0)
	for depth, name := range path {
		if plain[at] != '{' {
			return nil, fmt.Errorf("%s is no object", where(path[:depth]))
		}
		o := e.object(at)
		start, _, found := o.find(name)
		if !found {
			for _, missing := range slices.Backward(path[depth+1:]) {
				key, value = missing, nest(key, value)
			}
			return e.insert(o, depth, name, nest(key, value)), nil
		}
		at = start
	}
	if plain[at] != '{' {
		return nil, fmt.Errorf("%s is no object", where(path))
	}
	o := e.object(at)
	start, end, found := o.find(key)
	switch {
	case !found:
		return e.insert(o, len(path), key, value), nil
	case !replace:
		return nil, ErrExists
	}
	return join(text[:start], e.indented(value, e.indent(o, len(path))), text[end:]), nil
}

func where(path []string) string {
	if len(path) == 0 {
		return "the file"
	}
	return strings.Join(path, ".")
}

func nest(key string, value []byte) []byte {
	return join([]byte("{\n  "), scan.AppendQuoted(nil, key), []byte(": "),
		bytes.ReplaceAll(value, []byte("\n"), []byte("\n  ")), []byte("\n}"))
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

type editor struct {
	text, plain []byte
	newline     string
}

// An object is where its parts are.
type object struct {
	open, close int // its braces
	members     []part
}

type part struct {
	key             string
	at, start, stop int // of the key, and of the value
}

func (o *object) find(key string) (start, stop int, found bool) {
	for _, m := range o.members {
		if m.key == key {
			return m.start, m.stop, true
		}
	}
	return 0, 0, false
}

// object reads the object at i, which is valid.
func (e *editor) object(i int) *object {
	o := &object{open: i}
	for i = scan.Space(e.plain, i+1); e.plain[i] != '}'; {
		m := part{at: i}
		stop, _, _ := scan.String(e.plain, i)
		m.key = string(scan.Unquote(e.plain[i:stop]))
		m.start = scan.Space(e.plain, scan.Space(e.plain, stop)+1)
		m.stop, _ = scan.Value(e.plain, m.start, -1)
		o.members = append(o.members, m)
		if i = scan.Space(e.plain, m.stop); e.plain[i] == ',' {
			i = scan.Space(e.plain, i+1)
		}
	}
	o.close = i
	return o
}

// indent is what stands before the members of an object: before its first one when that begins a
// line.
func (e *editor) indent(o *object, depth int) string {
	if len(o.members) > 0 {
		line := e.text[bytes.LastIndexByte(e.text[:o.members[0].at], '\n')+1 : o.members[0].at]
		if len(bytes.TrimLeft(line, " \t")) == 0 {
			return string(line)
		}
	}
	return strings.Repeat("  ", depth+1)
}

// indented writes a value of several lines at an indentation.
func (e *editor) indented(value []byte, indent string) []byte {
	return bytes.ReplaceAll(value, []byte("\n"), []byte(e.newline+indent))
}

// insert adds a member behind the last one, and behind the comments that follow it.
func (e *editor) insert(o *object, depth int, key string, value []byte) []byte {
	indent := e.indent(o, depth)
	member := join([]byte(e.newline+indent), scan.AppendQuoted(nil, key), []byte(": "),
		e.indented(value, indent))
	last, comma := o.open+1, []byte(nil)
	if n := len(o.members); n > 0 {
		last = o.members[n-1].stop
		if e.endsInComma(last) {
			member = append(member, ',')
		} else {
			comma = []byte(",")
		}
	}
	end := last + len(bytes.TrimRight(e.text[last:o.close], " \t\r\n"))
	after := e.text[end:]
	if !bytes.Contains(e.text[end:o.close], []byte("\n")) {
		outer := indent[:max(0, len(indent)-min(2, len(indent)))]
		if strings.HasSuffix(indent, "\t") {
			outer = indent[:len(indent)-1]
		}
		member = append(member, e.newline+outer...)
		after = e.text[o.close:]
	}
	return join(e.text[:last], comma, e.text[last:end], member, after)
}

// endsInComma reports whether a comma follows at i, behind comments.
func (e *editor) endsInComma(i int) bool {
	for ; i < len(e.text); i++ {
		switch c := e.text[i]; {
		case c == ',':
			return true
		case c == '/':
			skip := bytes.Clone(e.text[i:])
			i += blank(skip, 0) - 1
		case c > ' ':
			return false
		}
	}
	return false
}
