// Package arguments answers one question: what becomes of the arguments of a tool or a prompt on
// their way from the caller to its handler? Relax takes what models write, a Form has them under
// other names, headers repeat them, and Texts binds those of a prompt. It knows no server and no
// call.
package arguments

import (
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
)

// What Relax has changed: a set of bits.
const (
	relaxedText    = 1 << iota // a number or boolean was text
	relaxedUnknown             // a member is not in the schema
)

// Relax returns arguments that fit the input schema better than those given: texts that stand for a
// number or a boolean where the schema has no text become that value, and members that a closed
// object does not have are left out. changed is a bit for each kind of change, 0 for none. The
// result may still be invalid.
func Relax(inputSchema, given jsonrpc.Raw) (relaxed jsonrpc.Raw, changed uint32) {
	r := relaxing{root: inputSchema}
	relaxed = r.value(inputSchema, given, 0)
	return relaxed, r.done
}

// maxRelaxing bounds how deep relaxing looks.
const maxRelaxing = 64

// relaxing makes values fit a schema. It knows of type, properties, items,
// additionalProperties and $ref; the schema decides about the outcome.
type relaxing struct {
	root jsonrpc.Raw
	done uint32
}

func (r *relaxing) value(schema, value jsonrpc.Raw, depth int) jsonrpc.Raw {
	schema = r.resolve(schema)
	if depth > maxRelaxing || len(schema) == 0 || len(value) == 0 {
		return value
	}
	switch value[0] {
	case '{':
		return r.object(schema, value, depth)
	case '[':
		return r.array(scan.Member(schema, "items"), value, depth)
	case '"':
		return r.text(typesOf(schema), value)
	}
	return value
}

// resolve follows a reference to a definition of the same schema.
func (r *relaxing) resolve(schema jsonrpc.Raw) jsonrpc.Raw {
	for range maxRelaxing {
		ref := scan.Member(schema, "$ref")
		if len(ref) == 0 || ref[0] != '"' {
			return schema
		}
		name, ok := strings.CutPrefix(string(scan.Unquote(ref)), "#/$defs/")
		if !ok {
			return nil
		}
		schema = scan.Member(scan.Member(r.root, "$defs"), name)
	}
	return nil
}

func (r *relaxing) object(schema, value jsonrpc.Raw, depth int) jsonrpc.Raw {
	properties := scan.Member(schema, "properties")
	closed := string(scan.Member(schema, "additionalProperties")) == "false"
	out := object.New(nil)
	for key, member := range scan.Members(value) {
		property := scan.Member(properties, string(key))
		if property == nil && closed {
			r.done |= relaxedUnknown
			continue
		}
		out.Add(string(key), r.value(property, member, depth+1))
	}
	return out.End()
}

func (r *relaxing) array(items, value jsonrpc.Raw, depth int) jsonrpc.Raw {
	if items == nil {
		return value
	}
	out := jsonrpc.Raw{'['}
	for item := range scan.Elements(value) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, r.value(items, item, depth+1)...)
	}
	return append(out, ']')
}

// text returns what a text stands for in a place that has numbers or booleans.
func (r *relaxing) text(types []string, value jsonrpc.Raw) jsonrpc.Raw {
	inner := jsonrpc.Raw(strings.TrimSpace(string(scan.Unquote(value))))
	if len(types) == 0 || slices.Contains(types, "string") || jsonrpc.Valid(inner) != nil {
		return value
	}
	number := inner[0] == '-' || '0' <= inner[0] && inner[0] <= '9'
	boolean := inner[0] == 't' || inner[0] == 'f'
	if number && (slices.Contains(types, "number") || slices.Contains(types, "integer")) ||
		boolean && slices.Contains(types, "boolean") {
		r.done |= relaxedText
		return inner
	}
	return value
}

// typesOf returns the types that a schema allows, none when it does not say.
func typesOf(schema jsonrpc.Raw) (types []string) {
	raw := scan.Member(schema, "type")
	if len(raw) > 0 && raw[0] == '"' {
		return []string{string(scan.Unquote(raw))}
	}
	for one := range scan.Elements(raw) {
		types = append(types, string(scan.Unquote(one)))
	}
	return types
}
