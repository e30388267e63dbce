package refs

import (
	"bytes"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Part says which part of a message is rewritten.
type Part uint8

// The parts of messages that have references.
const (
	Params    Part = iota // of a request or a notification
	Result                // of a request
	ErrorData             // of a failed request
	parts
)

// Down returns a part of a message of the server with each reference in it qualified, for the
// client. What holds no reference is returned as it is: nothing is copied or allocated. raw is
// valid JSON in canonical form, and is not changed. A nil Server returns raw.
func (s *Server) Down(part Part, method string, raw jsonrpc.Raw) jsonrpc.Raw {
	return s.walk(toClient, part, method, raw)
}

// Up returns a part of a message of the client with the qualifier of the server removed from each
// reference in it, for the server. What has the qualifier of another server stays as it is.
// Otherwise Up is like Down.
func (s *Server) Up(part Part, method string, raw jsonrpc.Raw) jsonrpc.Raw {
	return s.walk(toServer, part, method, raw)
}

// DownItem is Down for an item of the result of a list: a tool, a prompt, a resource, a template.
func (s *Server) DownItem(method string, item jsonrpc.Raw) jsonrpc.Raw {
	n := places().of(toClient, Result, method)
	if n == nil {
		return item
	}
	for _, m := range n.members {
		if m.node.each != nil {
			return s.walkFrom(m.node.each, toClient, item)
		}
	}
	return item
}

func (s *Server) walk(dir direction, part Part, method string, raw jsonrpc.Raw) jsonrpc.Raw {
	if s == nil {
		return raw
	}
	n := places().of(dir, part, method)
	if n == nil {
		return raw
	}
	return s.walkFrom(n, dir, raw)
}

func (s *Server) walkFrom(n *node, dir direction, raw jsonrpc.Raw) jsonrpc.Raw {
	w := walker{server: s, dir: dir, in: raw}
	w.value(n, scan.Space(raw, 0), 0)
	if w.out == nil || w.failed {
		return raw
	}
	return append(w.out, raw[w.copied:]...)
}

// A walker goes through a text once and copies it from the first reference on that it changes.
type walker struct {
	server *Server
	dir    direction
	in     []byte
	out    []byte // nil: nothing has changed
	copied int    // how much of in is in out
	failed bool   // in is not valid, and stays as it is
}

// maxDepth is how deep references may be: a shape may contain itself.
const maxDepth = 64

// replace puts a label and a mark in the place of in[from:to].
func (w *walker) replace(from, to int, label, mark string) {
	if w.out == nil {
		w.out = make([]byte, 0, len(w.in)+len(w.in)/8+64)
	}
	w.out = append(append(append(w.out, w.in[w.copied:from]...), label...), mark...)
	w.copied = to
}

// value goes through the value at i, to which a node applies, and returns its end.
func (w *walker) value(n *node, i, depth int) (end int) {
	if n != nil && n.kind != kindNone && i < len(w.in) && w.in[i] == '"' {
		end, escaped, f := scan.String(w.in, i)
		if f != scan.OK {
			return w.fail()
		}
		w.reference(n.kind, i, end, escaped)
		return end
	}
	if n != nil && depth < maxDepth && i < len(w.in) {
		switch c := w.in[i]; {
		case c == '{' && (len(n.members) > 0 || n.shape != nil || n.any != nil || n.kind == kindArgument):
			return w.object(n, i, depth)
		case c == '[' && n.element() != nil:
			return w.array(n.element(), i, depth)
		}
	}
	return scan.Skip(w.in, i)
}

func (w *walker) fail() int {
	w.failed = true
	return len(w.in)
}

func (w *walker) object(n *node, i, depth int) (end int) {
	if n.shape != nil && n.shape.unless != "" && scan.Member(w.in[i:], n.shape.unless) != nil {
		n = nothing
	}
	comma := -1 // before the member; -1: it is the first that stays
	for {
		start := scan.Space(w.in, i+1)
		if start < len(w.in) && w.in[start] == '}' && w.in[i] == '{' {
			return start + 1
		}
		key, at := w.key(start)
		sub := n.member(key)
		valueEnd := w.value(sub, at, depth+1)
		i = scan.Space(w.in, valueEnd)
		if w.failed || i >= len(w.in) || w.in[i] != ',' && w.in[i] != '}' {
			return w.fail()
		}
		if sub != nil && sub.kind == kindDropped && w.dir == toClient {
			comma = w.drop(comma, start, valueEnd, i)
		} else {
			comma = i
		}
		if w.in[i] == '}' {
			return i + 1
		}
	}
}

// key returns the name of the member at i, and where its value is.
func (w *walker) key(i int) (name []byte, value int) {
	if i >= len(w.in) || w.in[i] != '"' {
		return nil, w.fail()
	}
	end, escaped, f := scan.String(w.in, i)
	if f != scan.OK {
		return nil, w.fail()
	}
	name = w.in[i+1 : end-1]
	if escaped {
		name = scan.Unquote(w.in[i:end])
	}
	if value, f = scan.Colon(w.in, end); f != scan.OK {
		return nil, w.fail()
	}
	return name, value
}

// drop removes the member in[start:end] with one of the commas beside it: the one before it, if
// there is one, or the one at next. It returns the comma before the next member.
func (w *walker) drop(comma, start, end, next int) int {
	switch {
	case comma >= 0:
		w.replace(comma, end, "", "")
		return next
	case w.in[next] == ',':
		w.replace(start, scan.Space(w.in, next+1), "", "")
	default:
		w.replace(start, end, "", "")
	}
	return -1
}

func (w *walker) array(n *node, i, depth int) (end int) {
	for {
		start := scan.Space(w.in, i+1)
		if start < len(w.in) && w.in[start] == ']' && w.in[i] == '[' {
			return start + 1
		}
		i = scan.Space(w.in, w.value(n, start, depth+1))
		if w.failed || i >= len(w.in) || w.in[i] != ',' && w.in[i] != ']' {
			return w.fail()
		}
		if w.in[i] == ']' {
			return i + 1
		}
	}
}

// reference rewrites the string in[i:end].
func (w *walker) reference(k kind, i, end int, escaped bool) {
	text, offset := w.in[i+1:end-1], i+1
	if escaped { // it is written again as a whole
		text, offset = scan.Unquote(w.in[i:end]), 0
	}
	from, to, label, mark := w.server.edit(k, w.dir, text)
	switch {
	case from == to && mark == "":
	case !escaped:
		w.replace(offset+from, offset+to, label, mark)
	default:
		whole := bytes.Join([][]byte{text[:from], []byte(label), []byte(mark), text[to:]}, nil)
		w.replace(i, end, string(scan.AppendQuoted(nil, whole)), "")
	}
}

// edit says what is to be put in the place of ref[from:to], which is nothing where from is to: a
// label and a mark.
func (s *Server) edit(k kind, dir direction, ref []byte) (from, to int, label, mark string) {
	if dir == toServer {
		switch k {
		case kindName:
			if n := len(s.Name) + len(separator); begins(ref, s.Name) &&
				begins(ref[len(s.Name):], separator) && len(ref) > n {
				to = n
			}
		case kindURI:
			from, to = qualified(s, ref)
		case kindID:
			if n := len(s.Label); begins(ref, s.Label) && begins(ref[n:], "+") {
				to = n + 1
			}
		case kindArgument:
			if !s.Opaque {
				from, to = qualifiedArgument(s, ref)
			}
		case kindNone, kindOwn, kindKept, kindDropped:
		}
		return from, to, "", ""
	}
	switch k {
	case kindName:
		return 0, 0, s.Name, separator
	case kindURI:
		if from, mark = qualifierOf(s, ref); mark != "" {
			label = s.Label
		}
		return from, from, label, mark
	case kindID:
		return 0, 0, s.Label, "+"
	case kindNone, kindOwn, kindKept, kindDropped, kindArgument:
	}
	return 0, 0, "", ""
}
