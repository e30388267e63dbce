package mock

import (
	"slices"

	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/internal/scan"
)

// message is a message with its parts.
type message struct {
	data   []byte
	id     []byte // nil: it has none
	method string
	params []byte
}

func parse(data []byte) (m message) {
	m.data = data
	scan.Object(data, func(key, value []byte) bool {
		switch string(key) {
		case "id":
			m.id = value
		case "method":
			if value[0] == '"' {
				m.method = string(scan.Unquote(value))
			}
		case "params":
			m.params = value
		}
		return true
	})
	return m
}

// token is the JSON of the progress token; nil: there is none.
func (m *message) token() []byte { return at(m.data, "params", "_meta", "progressToken") }

// key is what equal requests have in common: the method, and the params without _meta, which has
// tokens, traces and what the client says of itself. The first request of a session is known by
// its method.
func (m *message) key() string {
	if m.method == methodInitialize || m.method == methodDiscover {
		return m.method
	}
	params := diff.AppendCanonical(nil, m.params, func(path []string) bool {
		return len(path) == 1 && path[0] == "_meta"
	})
	if string(params) == "{}" {
		params = nil // both mean that there are none
	}
	return m.method + "\x00" + string(params)
}

// at returns a value in a message, or nil.
func at(data []byte, path ...string) []byte {
	start, end := find(data, path...)
	return data[start:end]
}

// replace returns data with another value at the path, if there is one.
func replace(data, value []byte, path ...string) []byte {
	start, end := find(data, path...)
	if start == end {
		return data
	}
	return slices.Concat(data[:start], value, data[end:])
}

// find returns where a value is; two equal numbers when there is none.
func find(data []byte, path ...string) (start, end int) {
	start, end = scan.Space(data, 0), len(data)
	for _, name := range path {
		if start, end = findMember(data, start, name); start == end {
			return 0, 0
		}
	}
	return start, end
}

func findMember(data []byte, i int, want string) (start, end int) {
	if i >= len(data) || data[i] != '{' {
		return 0, 0
	}
	for {
		i = scan.Space(data, i+1)
		if i >= len(data) || data[i] != '"' {
			return 0, 0
		}
		nameEnd, _, f := scan.String(data, i)
		if f != scan.OK {
			return 0, 0
		}
		name := scan.Unquote(data[i:nameEnd])
		if i, f = scan.Colon(data, nameEnd); f != scan.OK {
			return 0, 0
		}
		end, f := scan.Value(data, i, -1)
		if f != scan.OK {
			return 0, 0
		}
		if string(name) == want {
			return i, end
		}
		if i = scan.Space(data, end); i >= len(data) || data[i] != ',' {
			return 0, 0
		}
	}
}
