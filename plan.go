package farcall

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// plan is how params become a value of one Go type. It is made once for a type.
type plan struct {
	typ    reflect.Type
	shape  shape
	params []param
	byName map[string]int // when there are many
	check  *check         // of params that are no struct
	rest   *param         // the map for members that no field stands for; nil: there is none
	// lenient: members that no field stands for are ignored
	lenient bool
}

type shape uint8

const (
	shapeStruct shape = iota // by name, or by position
	shapeList                // an array, each element alike
	shapeMap                 // an object
	shapeAny                 // whatever there is
	shapeRaw                 // the same, as bytes
	shapeSingle              // an array of one
)

// param is a parameter that a field of a struct stands for.
type param struct {
	schema.Field
	kind     reflect.Kind // of what is read without the library, else Invalid
	raw      bool         // a jsonrpc.Raw
	nullable bool         // null is its own value
	standard schema.Raw   // what absence means; nil: the zero value
	check    *check

	unmarshal func(data []byte, v any) error // of what is not read without the library
}

var rawType = reflect.TypeFor[jsonrpc.Raw]()

// manyParams: from so many on, a map finds them faster.
const manyParams = 12

func newPlan(t reflect.Type, lenient bool) (*plan, error) {
	if _, err := schema.For(t, true); err != nil {
		return nil, err
	}
	p := &plan{typ: t, shape: shapeOf(deref(t)), lenient: lenient}
	if deref(t).Kind() == reflect.Interface && deref(t).NumMethod() > 0 {
		return nil, fmt.Errorf("%s is an interface with methods: nothing says which type to make", t)
	}
	if p.shape != shapeStruct {
		var err error
		p.check, err = checkType(deref(t), !lenient)
		return p, err
	}
	// The library may refuse what we have no rule about.
	if err := jsonv2.Unmarshal([]byte("{}"), reflect.New(t).Interface()); err != nil {
		return nil, err
	}
	fields, rest, err := schema.AllFields(deref(t))
	if err != nil {
		return nil, err
	}
	if rest != nil {
		p.rest = &param{Field: *rest, unmarshal: p.unmarshal()}
		if p.rest.check, err = checkType(rest.Type.Elem(), !lenient); err != nil {
			return nil, err
		}
	}
	for _, f := range fields {
		one, err := p.newParam(f)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		p.params = append(p.params, one)
	}
	if len(fields) > manyParams {
		p.byName = map[string]int{}
		for i, f := range fields {
			p.byName[f.Name] = i
		}
	}
	return p, nil
}

func shapeOf(t reflect.Type) shape {
	switch {
	case t == rawType:
		return shapeRaw
	case schema.OwnJSON(t) || t.Kind() == reflect.Interface:
		return shapeAny
	case scalar(t):
		return shapeSingle
	}
	switch t.Kind() {
	case reflect.Struct:
		return shapeStruct
	case reflect.Map:
		return shapeMap
	default:
		return shapeList
	}
}

// scalar reports whether a type is written as a number, string or boolean.
func scalar(t reflect.Type) bool {
	if schema.OwnText(t) {
		return true
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return false
	case reflect.Slice, reflect.Array:
		return expected(t) != "array"
	default:
		return true
	}
}

// unmarshal returns how JSON is read with the library.
func (p *plan) unmarshal() func(data []byte, v any) error {
	if p.lenient {
		return jsonv2.Unmarshal
	}
	return jsonv2.UnmarshalStrict
}

func (p *plan) newParam(f schema.Field) (param, error) {
	one := param{Field: f, raw: f.Type == rawType, unmarshal: p.unmarshal()}
	if f.Quoted {
		one.unmarshal = jsonv2.UnmarshalQuoted
	}
	own := schema.OwnJSON(f.Type)
	one.nullable = own || f.Type.Kind() == reflect.Interface
	if !own && !schema.OwnText(f.Type) && !f.Quoted {
		switch k := f.Type.Kind(); {
		case k == reflect.Bool, k == reflect.String, k >= reflect.Int && k <= reflect.Float64:
			one.kind = k
		}
	}
	var err error
	if one.standard, err = f.Default(); err != nil {
		return one, err
	}
	if one.check, err = checkField(f, !p.lenient); err != nil || one.standard == nil {
		return one, err
	}
	if pr := one.check.problem(one.standard); pr != nil {
		err = fmt.Errorf("the tag default: %w", pr.refuse().Cause)
	}
	return one, err
}

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// expected names the JSON type that a Go type takes, or "" when that is open.
func expected(t reflect.Type) string {
	t = deref(t)
	switch {
	case schema.OwnJSON(t):
		return ""
	case schema.OwnText(t):
		return "string"
	}
	switch k := t.Kind(); {
	case k == reflect.Bool:
		return "boolean"
	case k >= reflect.Int && k <= reflect.Uintptr:
		return "integer"
	case k == reflect.Float32, k == reflect.Float64:
		return "number"
	case k == reflect.String:
		return "string"
	case k == reflect.Slice, k == reflect.Array:
		if e := t.Elem(); e.Kind() == reflect.Uint8 && expected(e) == "integer" {
			return "string" // bytes, in base64
		}
		return "array"
	case k == reflect.Struct, k == reflect.Map:
		return "object"
	}
	return ""
}

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
	case "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
		"maxProperties":
		pr.reason = outOfRange
	}
	return pr
}
