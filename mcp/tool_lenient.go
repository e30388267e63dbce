package mcp

import (
	"bytes"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/permit"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A Tolerance says what becomes of arguments that do not fit the input schema of
// their tool.
type Tolerance int

const (
	// Lenient also takes what models write: a number or a boolean in quotation marks,
	// where the schema has no text, and members that the schema does not have, which
	// are dropped. The log says so once for each tool and kind. A guard whose policies look at
	// arguments decides about those that the tool gets as well as about those that came.
	Lenient Tolerance = iota
	// Strict refuses them.
	Strict
)

// What relax has done.
const (
	relaxedText    = 1 << iota // a number or boolean was text
	relaxedUnknown             // a member is not in the schema
)

// arguments returns the arguments of a call as they fit the input schema, or the
// reason why they do not.
func (t *tool) arguments(c *call) (jsonrpc.Raw, error) {
	given := orEmpty(c.in.arguments)
	err := t.input.Validate(given)
	if err == nil || c.strict() {
		return given, err
	}
	r := relaxing{root: t.spec.InputSchema}
	relaxed := r.value(r.root, given, 0)
	if r.done == 0 || t.input.Validate(relaxed) != nil {
		return nil, err
	}
	if before := t.relaxed.Or(r.done); before&r.done != r.done {
		c.srv.logger().WarnContext(c, "mcp: arguments do not fit the tool's input schema and were taken all the same; ServerOptions.Arguments: Strict refuses them",
			"tool", t.spec.Name, "reason", err.Error())
	}
	return relaxed, nil
}

// permitted asks the guard in front, if any, about arguments that it has not seen: a policy that forbids
// true must not be passed by "true".
func (t *tool) permitted(c *call, given, relaxed jsonrpc.Raw) error {
	if bytes.Equal(given, relaxed) {
		return nil
	}
	permitted := permit.From(c)
	if permitted == nil {
		return nil
	}
	params := jsonrpc.AppendString([]byte(`{"_meta":{"`+spec.MetaProtocolVersion+`":"`+era.Latest().Name+`"},"name":`), c.shownName(t))
	params = append(append(params, `,"arguments":`...), relaxed...)
	return permitted(c, spec.MethodToolsCall, append(params, '}'))
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
	out := newObject(nil)
	scan.Object(value, func(key, member []byte) bool {
		property := scan.Member(properties, string(key))
		if property == nil && closed {
			r.done |= relaxedUnknown
			return true
		}
		out.add(string(key), r.value(property, member, depth+1))
		return true
	})
	return out.end()
}

func (r *relaxing) array(items, value jsonrpc.Raw, depth int) jsonrpc.Raw {
	if items == nil {
		return value
	}
	out := jsonrpc.Raw{'['}
	scan.Array(value, func(item []byte) bool {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, r.value(items, item, depth+1)...)
		return true
	})
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
	if number && (slices.Contains(types, "number") || slices.Contains(types, "integer")) || boolean && slices.Contains(types, "boolean") {
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
	scan.Array(raw, func(one []byte) bool {
		types = append(types, string(scan.Unquote(one)))
		return true
	})
	return types
}
