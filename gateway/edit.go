package gateway

import (
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// withMember returns an object with that value in that member, where the member
// was or at the end.
func withMember(object jsonrpc.Raw, name string, value []byte) jsonrpc.Raw {
	out := append(make(jsonrpc.Raw, 0, len(object)+len(name)+len(value)+8), '{')
	found := false
	for key, old := range scan.Members(object) {
		if string(key) == name {
			found, old = true, value
		}
		out = appendMember(out, string(key), old)
	}
	if !found {
		out = appendMember(out, name, value)
	}
	return append(out, '}')
}

// without returns an object without some members; itself when it has none of
// them.
func without(object jsonrpc.Raw, names ...string) jsonrpc.Raw {
	found := false
	for key := range scan.Members(object) {
		if found = slices.Contains(names, string(key)); found {
			break
		}
	}
	if !found {
		return object
	}
	out := append(make(jsonrpc.Raw, 0, len(object)), '{')
	for key, value := range scan.Members(object) {
		if !slices.Contains(names, string(key)) {
			out = appendMember(out, string(key), value)
		}
	}
	return append(out, '}')
}

func appendMember(object jsonrpc.Raw, name string, value []byte) jsonrpc.Raw {
	if len(object) > 1 {
		object = append(object, ',')
	}
	return append(append(jsonrpc.AppendString(object, name), ':'), value...)
}

// text returns the characters of a member that is a string.
func text(object jsonrpc.Raw, name string) (value string, ok bool) {
	raw := scan.Member(object, name)
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return string(scan.Unquote(raw)), true
}
