package mcp

import (
	"slices"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// head is what the common part of a result says.
type head struct {
	kind string
	ttl  jsonrpc.Raw // ttlMs
}

func headOf(raw jsonrpc.Raw) (h head) {
	scan.Object(raw, func(key, value []byte) bool {
		switch string(key) {
		case "resultType":
			if value[0] == '"' {
				h.kind = string(scan.Unquote(value))
			} else {
				h.kind = string(value)
			}
		case "ttlMs":
			h.ttl = value
		}
		return true
	})
	return h
}

// object is a JSON object that is being written.
type object []byte

// newObject begins with the members of another object, but for some.
func newObject(from jsonrpc.Raw, without ...string) *object {
	o := append(make(object, 0, len(from)+512), '{')
	o.addAll(from, without)
	return &o
}

func (o *object) addAll(from jsonrpc.Raw, without []string) {
	scan.Object(from, func(key, value []byte) bool {
		if !slices.Contains(without, string(key)) {
			o.add(string(key), value)
		}
		return true
	})
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
