package schema

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Elicitation returns the schema of a form that fills in a struct. Its fields
// are strings, numbers, booleans, times, and lists of strings to select from: a
// form is flat (MCP 2026-07-28, client/elicitation, "Requested Schema"). The
// error names the field that does not fit into one.
//
// The tag enum makes a string a choice and a list of strings a choice of
// several; titles names the options for people.
func Elicitation(t reflect.Type) ([]byte, error) {
	t = deref(t)
	if t.Kind() != reflect.Struct || opaque(t) {
		return nil, fmt.Errorf("%s is no form: take a struct with the fields of the form", t)
	}
	fields, err := Fields(t)
	if err != nil {
		return nil, err
	}
	b := newBuilder(localDefs)
	b.nulls = absent
	form := &Schema{Type: "object", Properties: Members{}}
	for _, f := range fields {
		s, err := b.formField(f)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		form.Properties = append(form.Properties, Member{f.Name, s})
		if !f.Optional {
			form.Required = append(form.Required, f.Name)
		}
	}
	return form.JSON()
}

// formFormats are the formats that a form knows.
var formFormats = []string{"", "email", "uri", "date", "date-time"}

func (b *builder) formField(f Field) (*Schema, error) {
	t := deref(f.Type)
	list := t.Kind() == reflect.Slice
	if list {
		t = deref(t.Elem())
	}
	k := t.Kind()
	switch {
	case f.Quoted:
		return nil, errors.New("a form has no numbers in strings")
	case OwnSchema(t):
		return nil, fmt.Errorf("a form has no fields of type %s, which has its own schema", f.Type)
	case list && (!stringType(t) || t == timeType || f.Tag.Get("enum") == ""):
		return nil, errors.New("a list in a form must be one of strings, with the tag enum")
	case stringType(t), !opaque(t) && k >= reflect.Bool && k <= reflect.Float64:
	default:
		return nil, fmt.Errorf("a form has no fields of type %s, only strings, numbers, booleans and lists of strings", f.Type)
	}
	s, err := b.member(f)
	if err != nil {
		return nil, err
	}
	if s.Examples != nil || s.UniqueItems {
		return nil, errors.New("a form has neither examples nor uniqueItems; use a default or the tag doc")
	}
	return f.options(s, t, list)
}

// options checks what a field selects from.
func (f *Field) options(s *Schema, t reflect.Type, list bool) (*Schema, error) {
	options := s
	if list {
		options = s.Items
	}
	switch {
	case len(options.Enum) > 0 && !stringType(t):
		return nil, errors.New("the values of enum must be strings in a form")
	case options.Pattern != "":
		return nil, errors.New("a form has no patterns; check the answer instead")
	case list && options.Format != "", !slices.Contains(formFormats, options.Format):
		return nil, fmt.Errorf("a form has no format %q here, only email, uri, date and date-time of a string", options.Format)
	}
	return s, options.entitle(f.Tag, list)
}

// entitle gives the values of enum the names of the tag titles.
func (s *Schema) entitle(tag reflect.StructTag, list bool) error {
	text, ok := tag.Lookup("titles")
	if !ok {
		return nil
	}
	titles := strings.Split(text, ",")
	if len(titles) != len(s.Enum) {
		return fmt.Errorf("the tag titles has %d titles for %d values of enum", len(titles), len(s.Enum))
	}
	var options []*Schema
	for i, title := range titles {
		options = append(options, &Schema{Title: title, Const: s.Enum[i]})
	}
	s.Enum = nil
	if list {
		s.Type, s.AnyOf = nil, options
	} else {
		s.OneOf = options
	}
	return nil
}
