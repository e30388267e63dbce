package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// reshape makes arguments of a tool out of those of the form in which it is shown.
type reshape struct {
	names  map[string]string // the tool's name of an argument, by the shown name: of those that are renamed
	masked map[string]bool   // names of the tool that the form does not have
	add    []addition
	// wrapped is what runs in place of the tool; nil: the tool.
	wrapped ToolHandler
}

// An addition is an argument that the tool gets when the caller has not given it.
type addition struct {
	name  string // of the tool
	value jsonrpc.Raw
}

// compile returns the tool in its new form.
func (t *Transform) compile(of Tool) (Tool, *reshape, error) {
	of.Name = cmp.Or(t.Name, of.Name)
	of.Title, of.Description = cmp.Or(t.Title, of.Title), cmp.Or(t.Description, of.Description)
	r := &reshape{names: map[string]string{}, masked: map[string]bool{}}
	if len(t.Arguments) == 0 {
		return of, r, nil
	}
	properties := scan.Member(of.InputSchema, "properties")
	optional := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(t.Arguments)) {
		property := jsonrpc.Raw(scan.Member(properties, name))
		if property == nil {
			return Tool{}, nil, fmt.Errorf("there is no argument %q among the properties of its input schema", name)
		}
		a := t.Arguments[name]
		value, err := a.value(name, property, of.InputSchema)
		if err != nil {
			return Tool{}, nil, fmt.Errorf("the argument %q: %w", name, err)
		}
		if value != nil {
			r.add, optional[name] = append(r.add, addition{name, value}), true
		}
		if a.hidden() {
			r.masked[name] = true
		} else if a.Name != "" && a.Name != name {
			r.masked[name], r.names[a.Name] = true, name
		}
	}
	var err error
	of.InputSchema, err = t.inputSchema(of.InputSchema, r, optional)
	return of, r, err
}

func (a *Argument) hidden() bool { return a.Hidden || a.Fixed != nil }

// value returns what the tool gets without the caller, or nil.
func (a *Argument) value(name string, property, input jsonrpc.Raw) (jsonrpc.Raw, error) {
	v := a.Fixed
	switch {
	case a.Fixed != nil && a.Default != nil:
		return nil, errors.New("it has both a Fixed value and a Default")
	case a.hidden() && (a.Name != "" || a.Description != ""):
		return nil, errors.New("it is hidden, and has a Name or a Description to show")
	case v == nil:
		v = a.Default
	}
	if v == nil {
		return nil, nil
	}
	raw, err := jsonv2.Append(nil, v)
	if err != nil {
		return nil, err
	}
	o := newObject(input, "required", "properties") // the definitions stay
	o.add("properties", withMember(nil, name, property))
	check, err := validate.Compile(o.end(), validate.Limits{})
	if err != nil {
		return nil, err
	}
	if err := check.Validate(withMember(nil, name, raw)); err != nil {
		return nil, fmt.Errorf("the value %s does not fit: %w", raw, err)
	}
	return raw, nil
}

// naming are the keywords beside properties by which a schema may speak of certain arguments.
var naming = []string{
	"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef", "dependentRequired", "dependentSchemas", "dependencies",
	"patternProperties", "propertyNames", "minProperties", "maxProperties",
}

// inputSchema returns the schema of the new form.
func (t *Transform) inputSchema(old jsonrpc.Raw, r *reshape, optional map[string]bool) (jsonrpc.Raw, error) {
	if len(r.masked) > 0 {
		for _, keyword := range naming {
			if scan.Member(old, keyword) != nil {
				return nil, fmt.Errorf("its input schema has %s, which may name arguments: none can be renamed or hidden", keyword)
			}
		}
	}
	shown, properties := map[string]string{}, newObject(nil)
	var err error
	scan.Object(scan.Member(old, "properties"), func(key, value []byte) bool {
		name, property := string(key), jsonrpc.Raw(value)
		a := t.Arguments[name]
		if a.hidden() {
			return true
		}
		as := cmp.Or(a.Name, name)
		if other, taken := shown[as]; taken {
			err = fmt.Errorf("the arguments %q and %q would both be %q", other, name, as)
			return false
		}
		shown[as] = name
		if property, err = t.property(a, property); err == nil {
			properties.add(as, property)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	required := []string{}
	scan.Array(scan.Member(old, "required"), func(value []byte) bool {
		name := string(scan.Unquote(value))
		switch a := t.Arguments[name]; {
		case optional[name]:
		case a.hidden():
			err = fmt.Errorf("the argument %q is required: what is hidden needs a Fixed value or a Default", name)
		default:
			required = append(required, cmp.Or(a.Name, name))
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	o := newObject(old, "properties", "required")
	o.add("properties", properties.end())
	if len(required) > 0 {
		err = o.marshal("required", required)
	}
	return o.end(), err
}

// property returns the schema of an argument that is shown.
func (t *Transform) property(a Argument, property jsonrpc.Raw) (jsonrpc.Raw, error) {
	if a.Description == "" && a.Default == nil {
		return property, nil
	}
	if property[0] != '{' {
		property = jsonrpc.Raw("{}") // true: whatever it is
	}
	o := newObject(property)
	if a.Description != "" {
		o = newObject(property, "description")
		o.add("description", jsonrpc.AppendString(nil, a.Description))
	}
	if a.Default == nil {
		return o.end(), nil
	}
	o = newObject(o.end(), "default")
	err := o.marshal("default", a.Default)
	return o.end(), err
}

// refuse is an error when a caller gives an argument by a name of the tool that the form does not have.
func (r *reshape) refuse(given jsonrpc.Raw) (err error) {
	if r == nil || len(r.masked) == 0 {
		return nil
	}
	scan.Object(given, func(key, _ []byte) bool {
		if r.masked[string(key)] && r.names[string(key)] == "" {
			err = fmt.Errorf("there is no argument %q", key)
		}
		return err == nil
	})
	return err
}

// arguments returns the arguments as the tool knows them.
func (r *reshape) arguments(given jsonrpc.Raw) jsonrpc.Raw {
	if len(r.add)+len(r.names) == 0 {
		return given
	}
	o, there := newObject(nil), map[string]bool{}
	scan.Object(given, func(key, value []byte) bool {
		name := string(key)
		if own, renamed := r.names[name]; renamed {
			name = own
		}
		there[name] = true
		o.add(name, value)
		return true
	})
	for _, a := range r.add {
		if !there[a.name] {
			o.add(a.name, a.value)
		}
	}
	return o.end()
}
