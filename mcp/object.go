package mcp

import (
	"slices"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// object is a JSON object that is being written.
type object []byte

// newObject begins with the members of another object, but for some.
func newObject(from jsonrpc.Raw, without ...string) *object {
	o := append(make(object, 0, len(from)+512), '{')
	return o.addAll(from, without...)
}

func (o *object) addAll(from jsonrpc.Raw, without ...string) *object {
	scan.Object(from, func(key, value []byte) bool {
		if !slices.Contains(without, string(key)) {
			o.add(string(key), value)
		}
		return true
	})
	return o
}

func (o *object) add(name string, value jsonrpc.Raw) {
	if len(*o) > 1 {
		*o = append(*o, ',')
	}
	*o = append(append(jsonrpc.AppendString(*o, name), ':'), value...)
}

func (o *object) marshal(name string, value any) error {
	raw, err := jsonv2.Append(nil, value)
	if err == nil {
		o.add(name, raw)
	}
	return err
}

func (o *object) end() jsonrpc.Raw { return append(jsonrpc.Raw(*o), '}') }

// withMember returns the object with that value in that member.
func withMember(from jsonrpc.Raw, name string, value jsonrpc.Raw) jsonrpc.Raw {
	o := newObject(from, name)
	o.add(name, value)
	return o.end()
}

// withDefaults adds to what a form was filled in with the members that are
// missing and have a default (SEP-1034).
func withDefaults(content, form jsonrpc.Raw) jsonrpc.Raw {
	full := newObject(content)
	scan.Object(scan.Member(form, "properties"), func(name, field []byte) bool {
		if value := scan.Member(field, "default"); value != nil && scan.Member(content, string(name)) == nil {
			full.add(string(name), value)
		}
		return true
	})
	return full.end()
}

// orEmpty returns an object for params that are absent, and for null.
func orEmpty(raw jsonrpc.Raw) jsonrpc.Raw {
	if len(raw) == 0 || string(raw) == "null" {
		return jsonrpc.Raw("{}")
	}
	return raw
}
