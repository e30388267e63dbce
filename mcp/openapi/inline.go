package openapi

import (
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	maxInlined  = 4 << 10 // bytes of a component that is copied into its place
	inlineDepth = 2       // how often a component is inside itself
)

// An inliner copies components into their places, for hosts that do not follow references.
type inliner struct {
	components map[string]*component // by their reference
	within     []string
	failed     bool // it becomes too large
}

// inline returns the schema of a tool without references, or nil where that would be too large.
// Where a component is inside itself for the third time, anything is taken.
func (s *shaper) inline(schema []byte) []byte {
	in := inliner{components: map[string]*component{}}
	for _, c := range s.components {
		in.components["#/$defs/"+c.name] = c
	}
	out := in.schema(nil, schema, true)
	if in.failed || len(out) > maxToolSchema {
		return nil
	}
	return out
}

func (in *inliner) schema(out, raw []byte, schema bool) []byte {
	if in.failed = in.failed || len(out) > maxToolSchema; in.failed {
		return out
	}
	switch raw[0] {
	case '{':
		ref := scan.Member(raw, "$ref")
		if c := in.components[scalar(orNull(ref))]; schema && c != nil {
			return in.component(out, raw, c)
		}
		out = append(out, '{')
		out = in.members(out, raw, schema)
		return append(out, '}')
	case '[':
		out = append(out, '[')
		scan.Array(raw, func(v []byte) bool {
			if out[len(out)-1] != '[' {
				out = append(out, ',')
			}
			out = in.schema(out, v, true)
			return true
		})
		return append(out, ']')
	default:
		return append(out, raw...)
	}
}

// members writes the members of an object, without references and definitions.
func (in *inliner) members(out, raw []byte, schema bool) []byte {
	scan.Object(raw, func(name, v []byte) bool {
		if schema && (string(name) == "$ref" || string(name) == "$defs") {
			return true
		}
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(scan.AppendQuoted(out, name), ':')
		if schema && slices.Contains([]string{"enum", "const", "default", "examples", "required"}, string(name)) {
			out = append(out, v...)
		} else {
			out = in.schema(out, v, !schema || !slices.Contains([]string{"properties", "patternProperties", "dependentSchemas"}, string(name)))
		}
		return true
	})
	return out
}

// component writes a component in the place of a reference to it. What stands beside the reference
// holds, too.
func (in *inliner) component(out, raw []byte, c *component) []byte {
	times := 0
	for _, name := range in.within {
		if name == c.name {
			times++
		}
	}
	in.failed = in.failed || len(c.shape.raw) > maxInlined || !c.done // one that was left out is not even made
	if times >= inlineDepth || in.failed {
		return append(scan.AppendQuoted(append(out, `{"description":`...), "as "+c.name+" above"), '}')
	}
	in.within = append(in.within, c.name)
	beside := in.members([]byte{'{'}, raw, true)
	alone := len(beside) == 1
	if !alone {
		out = append(append(out, beside...), `,"allOf":[`...)
	}
	out = in.schema(out, c.shape.raw, true)
	if !alone {
		out = append(out, "]}"...)
	}
	in.within = in.within[:len(in.within)-1]
	return out
}

// inlined returns the schema with its components inlined, where the options want that.
func (b *builder) inlined(o *operation, schema []byte) []byte {
	if !b.o.InlineRefs || !strings.Contains(string(schema), `"$defs"`) {
		return schema
	}
	if out := b.shaper.inline(schema); out != nil {
		return out
	}
	b.warn(o, "its schema keeps references: without them it would be larger than %d bytes, or hold a component larger than %d", maxToolSchema, maxInlined)
	return schema
}
