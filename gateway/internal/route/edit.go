package route

import (
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// setMember gives a member of an object another text and keeps every other byte.
// A member that is not there is added at the end. raw must be a valid object.
func setMember(raw jsonrpc.Raw, name, value string) jsonrpc.Raw {
	start, end, last, ok := locate(raw, name)
	if !ok {
		return raw
	}
	out := append(make(jsonrpc.Raw, 0, len(raw)+len(name)+len(value)+16), raw[:start]...)
	if start == end {
		if last {
			out = append(out, ',')
		}
		out = append(jsonrpc.AppendString(out, name), ':')
	}
	return append(jsonrpc.AppendString(out, value), raw[end:]...)
}

// locate finds the value of a member of an object. Without one start and end are
// the place for it, and after says that other members are before.
func locate(raw jsonrpc.Raw, name string) (start, end int, after, ok bool) {
	i := scan.Space(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return 0, 0, false, false
	}
	place := i + 1
	for {
		i = scan.Space(raw, i+1)
		if i < len(raw) && raw[i] == '}' && !after {
			return place, place, false, true
		}
		if i >= len(raw) || raw[i] != '"' {
			return 0, 0, false, false
		}
		key, _, f := scan.String(raw, i)
		if f != scan.OK {
			return 0, 0, false, false
		}
		found := string(scan.Unquote(raw[i:key])) == name
		if start, f = scan.Colon(raw, key); f != scan.OK {
			return 0, 0, false, false
		}
		if end, f = scan.Value(raw, start, -1); f != scan.OK {
			return 0, 0, false, false
		}
		if found {
			return start, end, false, true
		}
		after, place = true, end
		i = scan.Space(raw, end)
		switch {
		case i < len(raw) && raw[i] == '}':
			return place, place, true, true
		case i >= len(raw) || raw[i] != ',':
			return 0, 0, false, false
		}
	}
}
