package farcall

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/internal/validate"
)

// A check validates JSON by the schema that is published for its type, where reading it into a
// value of the type does not: members that are required, null elements, the tags of schemas.
// It is made once for a type. The nil check accepts everything.
type check struct{ schema *validate.Schema }

// checkField returns the check of a parameter.
func checkField(f schema.Field, closed bool) (*check, error) {
	if f.Quoted || reads(f.Type) && !tagged(f) {
		return nil, nil
	}
	s, err := schema.ForField(f, closed)
	if err != nil {
		return nil, err
	}
	return newCheck(s)
}

// checkType returns the check of params that are no struct.
func checkType(t reflect.Type, closed bool) (*check, error) {
	if reads(t) {
		return nil, nil
	}
	s, err := schema.For(t, closed)
	if err != nil {
		return nil, err
	}
	return newCheck(s)
}

func newCheck(s *schema.Schema) (*check, error) {
	raw, err := s.JSON()
	if err != nil {
		return nil, err
	}
	compiled, err := validate.Compile(raw, validate.Limits{OptionalNulls: true, Problems: 1})
	if err != nil {
		return nil, fmt.Errorf("its schema: %w", err)
	}
	return &check{compiled}, nil
}

// reads reports whether a value of a type that was read from JSON fits the type's schema.
func reads(t reflect.Type) bool {
	t = deref(t)
	if schema.OwnSchema(t) {
		return false
	}
	if schema.OwnJSON(t) || schema.OwnText(t) || t.Kind() == reflect.Interface || t == rawType {
		return true
	}
	switch t.Kind() {
	case reflect.Struct:
		return expected(t) != "object" || t.NumField() == 0
	case reflect.Slice, reflect.Array, reflect.Map:
		return expected(t) == "string" // bytes
	default:
		return true
	}
}

// tagged reports whether tags of a field limit its values.
func tagged(f schema.Field) bool {
	for _, name := range schema.LimitTags() {
		if _, ok := f.Tag.Lookup(name); ok {
			return true
		}
	}
	return false
}

// problem returns why a value does not fit, or nil. Its pointer begins at the value.
func (c *check) problem(raw []byte) *problem {
	if c == nil {
		return nil
	}
	err := c.schema.Validate(raw)
	if err == nil {
		return nil
	}
	var invalid *validate.Error
	if !errors.As(err, &invalid) {
		return &problem{reason: "too complex"}
	}
	p := invalid.Problems[0]
	pr := &problem{pointer: p.Pointer, reason: "invalid value", cause: invalid}
	switch p.Keyword {
	case "required":
		pr.pointer += "/" + pointerSteps.Replace(p.Member)
		pr.reason = "missing"
	case "additionalProperties":
		pr.reason = "unknown"
	case "type":
		pr.reason = wrongType
	case "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
		pr.reason = outOfRange
	}
	return pr
}
