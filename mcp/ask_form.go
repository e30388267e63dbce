package mcp

import (
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// formContent returns what a form was filled in with: an object.
func formContent(content jsonrpc.Raw) jsonrpc.Raw {
	if len(content) == 0 || string(content) == "null" {
		return jsonrpc.Raw("{}")
	}
	return content
}

// fillDefaults adds to the content of a form the members that are missing and
// have a default. A client need not do it.
func fillDefaults(form, content jsonrpc.Raw) jsonrpc.Raw {
	content = formContent(content)
	scan.Object(objectMember(form, "properties"), func(name, property []byte) bool {
		d := objectMember(property, "default")
		if d != nil && objectMember(content, string(name)) == nil {
			content = withMember(content, string(name), d)
		}
		return true
	})
	return content
}

// objectMember returns the value of a member of an object, or nil.
func objectMember(object jsonrpc.Raw, name string) (value jsonrpc.Raw) {
	scan.Object(object, func(key, v []byte) bool {
		if string(key) == name {
			value = v
		}
		return value == nil
	})
	return value
}

// withMember returns the object with that value in that member, and leaves the
// given one alone.
func withMember(object jsonrpc.Raw, name string, value jsonrpc.Raw) jsonrpc.Raw {
	out := make([]byte, 1, len(object)+len(name)+len(value)+len(`{"":,}`))
	out[0] = '{'
	scan.Object(object, func(key, v []byte) bool {
		if string(key) != name {
			out = append(append(scan.AppendQuoted(out, key), ':'), v...)
			out = append(out, ',')
		}
		return true
	})
	out = append(append(scan.AppendQuoted(out, name), ':'), value...)
	return append(out, '}')
}
