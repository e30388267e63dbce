package schema

import (
	"fmt"
	"reflect"
	"slices"
)

// Input returns the schema of the arguments of a tool, which are a struct or a
// map. It allows no members but those of the structs. Nothing may be null: who
// has no value leaves the member out.
//
// The schemas of tools have no lists of types, which many models' interfaces
// do not take.
func Input(t reflect.Type) (*Schema, error) {
	t = deref(t)
	b := newBuilder(localDefs)
	b.closed, b.nulls, b.tools = true, absent, true
	s, err := b.alone(t)
	if err != nil {
		return nil, err
	}
	if s.own == nil && s.Type != "object" {
		return nil, fmt.Errorf("%s is no JSON object", t)
	}
	text, err := s.JSON()
	if err != nil {
		return nil, err
	}
	if _, err := Headers(text); err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	return s, nil
}

// Output returns the schema of the structured result of a tool. It leaves room
// for members that are added later. A pointer that is written when it is nil may
// be null.
func Output(t reflect.Type) (*Schema, error) {
	b := newBuilder(localDefs)
	b.nulls = inAnyOf
	return b.alone(deref(t))
}

// Constrained reports whether the schema asks for more than the type that it was
// made of guarantees.
func (s *Schema) Constrained() bool {
	if s == nil {
		return false
	}
	for _, limit := range []Raw{
		s.Minimum, s.Maximum, s.MinLength, s.MaxLength, s.MinItems, s.MaxItems, s.MinProperties, s.MaxProperties,
	} {
		if limit != nil {
			return true
		}
	}
	more, _ := s.AdditionalProperties.(*Schema)
	member := func(m Member) bool { return m.Schema.Constrained() }
	return s.own != nil || s.UniqueItems || len(s.Enum) > 0 || s.Pattern != "" || s.Items.Constrained() || more.Constrained() ||
		slices.ContainsFunc(s.AnyOf, (*Schema).Constrained) ||
		slices.ContainsFunc(s.Properties, member) || slices.ContainsFunc(s.Defs, member)
}
