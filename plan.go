package farcall

import (
	"fmt"
	"reflect"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
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
