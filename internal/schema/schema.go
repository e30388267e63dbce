// Package schema answers one question: which JSON Schema describes a Go type?
//
// The schemas are of JSON Schema 2020-12 and describe what package jsonv2 reads
// and writes. Struct tags add what a type cannot say:
//
//	doc:"the first addend"      description
//	enum:"red,green,blue"       the values that are allowed
//	min:"1" max:"10"            of a number, or the length of a string, array or map
//	pattern:"^[a-z]+$"          a regular expression for a string
//	format:"email"              a format that JSON Schema names
//	default:"5"                 what an absent member means, which makes it optional
//	examples:"Paris,Rome"       examples, written as those of enum are, or a JSON array of them
//	title:"First addend"        a name for people
//	titles:"Red,Green,Blue"     names for the values of enum, in a form
//	header:"Region"             the argument of a tool is repeated in a header, x-mcp-header
//
// The tags minimum, maximum, minLength, maxLength, minItems, maxItems, minProperties, maxProperties
// and uniqueItems:"true" are the keywords of that name.
//
// On a slice or an array, enum, pattern and format are those of the elements, and so are minimum,
// maximum, minLength and maxLength.
//
// The tags jsonschema and jsonschema_description are other names of doc, as in other libraries. The
// list of keywords that some libraries write into the tag jsonschema is an error.
//
// A type with a method JSONSchema, which takes nothing and returns a schema, is described by that:
// as a text, as bytes, or as a value with JSON that is the schema. It is called for a zero value,
// or a pointer to one.
package schema

import (
	"reflect"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// A Schema is a JSON Schema. The zero value accepts anything.
type Schema struct {
	Dialect         string   `json:"$schema,omitempty"`
	Ref             string   `json:"$ref,omitempty"`
	Title           string   `json:"title,omitempty"`
	Description     string   `json:"description,omitempty"`
	Type            any      `json:"type,omitzero"` // a name or a list of names
	Format          string   `json:"format,omitempty"`
	ContentEncoding string   `json:"contentEncoding,omitempty"`
	Enum            []Raw    `json:"enum,omitempty"`
	Const           Raw      `json:"const,omitzero"`
	Minimum         Raw      `json:"minimum,omitzero"`
	Maximum         Raw      `json:"maximum,omitzero"`
	MinLength       Raw      `json:"minLength,omitzero"`
	MaxLength       Raw      `json:"maxLength,omitzero"`
	Pattern         string   `json:"pattern,omitempty"`
	Items           *Schema  `json:"items,omitzero"`
	MinItems        Raw      `json:"minItems,omitzero"`
	MaxItems        Raw      `json:"maxItems,omitzero"`
	UniqueItems     bool     `json:"uniqueItems,omitzero"`
	Properties      Members  `json:"properties,omitzero"`
	Required        []string `json:"required,omitempty"`
	// AdditionalProperties is a *Schema, or false.
	AdditionalProperties any       `json:"additionalProperties,omitzero"`
	MinProperties        Raw       `json:"minProperties,omitzero"`
	MaxProperties        Raw       `json:"maxProperties,omitzero"`
	Default              Raw       `json:"default,omitzero"`
	Examples             []Raw     `json:"examples,omitempty"`
	AnyOf                []*Schema `json:"anyOf,omitempty"`
	OneOf                []*Schema `json:"oneOf,omitempty"`
	Header               string    `json:"x-mcp-header,omitempty"`
	Defs                 Members   `json:"$defs,omitzero"`

	own Raw // what the method JSONSchema of the type returns, an object; nil: it has none
}

// Dialect is what a Schema may say it is written in.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// JSON returns the text of a schema.
func (s *Schema) JSON() ([]byte, error) { return jsonv2.Append(nil, s) }

// Raw is one JSON value.
type Raw []byte

// MarshalJSON returns r.
func (r Raw) MarshalJSON() ([]byte, error) { return r, nil }

// Members are schemas by name, in an order that is kept.
type Members []Member

// A Member is one of them.
type Member struct {
	Name   string
	Schema *Schema
}

// MarshalJSON writes an object.
func (m Members) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, one := range m {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = jsonv2.Append(out, one.Name); err != nil {
			return nil, err
		}
		if out, err = jsonv2.Append(append(out, ':'), one.Schema); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// For returns a schema that stands alone. Types are described in their place,
// except those that are used more than once or contain themselves: these are
// in $defs. A closed schema allows no members but those of the structs.
func For(t reflect.Type, closed bool) (*Schema, error) {
	b := newBuilder(localDefs)
	b.closed = closed
	return b.alone(t)
}

// ForField returns the schema of a field, with what its tags say. It stands alone, as that of For
// does.
func ForField(f Field, closed bool) (*Schema, error) {
	b := newBuilder(localDefs)
	b.closed = closed
	b.survey(f.Type)
	s, err := b.member(f)
	if err != nil {
		return nil, err
	}
	s.Defs = b.sorted()
	return s, nil
}

// localDefs is where the definitions of a schema that stands alone are.
const localDefs = "#/$defs/"

// alone returns a schema with its definitions.
func (b *builder) alone(t reflect.Type) (*Schema, error) {
	b.survey(t)
	s, err := b.root(t)
	if err != nil {
		return nil, err
	}
	s.Defs = b.sorted()
	return s, nil
}

// A Set makes schemas that share their definitions: each named struct has one.
type Set struct{ b *builder }

// NewSet returns a Set with references that start with prefix.
func NewSet(prefix string) *Set {
	b := newBuilder(prefix)
	b.share = true
	return &Set{b}
}

// Of returns a schema for t, which may be a reference.
func (s *Set) Of(t reflect.Type) (*Schema, error) {
	s.b.survey(t)
	return s.b.of(t)
}

// Member returns a schema for a member, with what its tags say.
func (s *Set) Member(f Field) (*Schema, error) {
	s.b.survey(f.Type)
	return s.b.member(f)
}

// Definitions returns what the schemas refer to, by name and in its order.
func (s *Set) Definitions() Members { return s.b.sorted() }
