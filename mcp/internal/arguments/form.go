package arguments

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
	"github.com/farcall-dev/farcall/mcp/internal/object"
)

// A Change says what becomes of an argument. The fields are those of mcp.Argument, which has their
// contracts.
type Change struct {
	Name, Description string
	Default, Fixed    any
	Hidden            bool
}

// A Form makes arguments of a tool out of those of the form in which it is shown. The zero value
// changes nothing.
type Form struct {
	// the tool's name of an argument, by the shown name: of those that are renamed
	names  map[string]string
	masked map[string]bool // names of the tool that the form does not have
	add    []addition
}

// An addition is an argument that the tool gets when the caller has not given it.
type addition struct {
	name  string // of the tool
	value jsonrpc.Raw
}

// NewForm applies changes, by the tool's names of the arguments, to the input schema of a tool, and
// returns the schema of the form. The error names the argument that a change does not fit.
func NewForm(inputSchema jsonrpc.Raw, changes map[string]Change) (jsonrpc.Raw, *Form, error) {
	f := &Form{names: map[string]string{}, masked: map[string]bool{}}
	if len(changes) == 0 {
		return inputSchema, f, nil
	}
	properties := scan.Member(inputSchema, "properties")
	optional := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		property := jsonrpc.Raw(scan.Member(properties, name))
		if property == nil {
			return nil, nil, fmt.Errorf("there is no argument %q among the properties of its input schema",
				name)
		}
		a := changes[name]
		value, err := a.value(name, property, inputSchema)
		if err != nil {
			return nil, nil, fmt.Errorf("the argument %q: %w", name, err)
		}
		if value != nil {
			f.add, optional[name] = append(f.add, addition{name, value}), true
		}
		if a.hidden() {
			f.masked[name] = true
		} else if a.Name != "" && a.Name != name {
			f.masked[name], f.names[a.Name] = true, name
		}
	}
	shown, err := f.inputSchema(inputSchema, changes, optional)
	return shown, f, err
}

func (a *Change) hidden() bool { return a.Hidden || a.Fixed != nil }

// value returns what the tool gets without the caller, or nil.
func (a *Change) value(name string, property, input jsonrpc.Raw) (jsonrpc.Raw, error) {
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
	o := object.New(input, "required", "properties") // the definitions stay
	o.Add("properties", object.With(nil, name, property))
	check, err := validate.Compile(o.End(), validate.Limits{})
	if err != nil {
		return nil, err
	}
	if err := check.Validate(object.With(nil, name, raw)); err != nil {
		return nil, fmt.Errorf("the value %s does not fit: %w", raw, err)
	}
	return raw, nil
}

// naming are the keywords beside properties by which a schema may speak of certain arguments.
var naming = []string{
	"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef", "dependentRequired",
	"dependentSchemas", "dependencies",
	"patternProperties", "propertyNames", "minProperties", "maxProperties",
}

// inputSchema returns the schema of the new form.
func (f *Form) inputSchema(
	old jsonrpc.Raw, changes map[string]Change, optional map[string]bool,
) (jsonrpc.Raw, error) {
	if len(f.masked) > 0 {
		for _, keyword := range naming {
			if scan.Member(old, keyword) != nil {
				return nil, fmt.Errorf(
					"its input schema has %s, which may name arguments: none can be renamed or hidden", keyword)
			}
		}
	}
	shown, properties := map[string]string{}, object.New(nil)
	for key, value := range scan.Members(scan.Member(old, "properties")) {
		name := string(key)
		a := changes[name]
		if a.hidden() {
			continue
		}
		as := cmp.Or(a.Name, name)
		if other, taken := shown[as]; taken {
			return nil, fmt.Errorf("the arguments %q and %q would both be %q", other, name, as)
		}
		shown[as] = name
		property, err := a.property(value)
		if err != nil {
			return nil, err
		}
		properties.Add(as, property)
	}
	required := []string{}
	for value := range scan.Elements(scan.Member(old, "required")) {
		name := string(scan.Unquote(value))
		switch a := changes[name]; {
		case optional[name]:
		case a.hidden():
			return nil, fmt.Errorf(
				"the argument %q is required: what is hidden needs a Fixed value or a Default", name)
		default:
			required = append(required, cmp.Or(a.Name, name))
		}
	}
	o := object.New(old, "properties", "required")
	o.Add("properties", properties.End())
	if len(required) == 0 {
		return o.End(), nil
	}
	err := o.Marshal("required", required)
	return o.End(), err
}

// property returns the schema of an argument that is shown.
func (a *Change) property(property jsonrpc.Raw) (jsonrpc.Raw, error) {
	if a.Description == "" && a.Default == nil {
		return property, nil
	}
	if property[0] != '{' {
		property = jsonrpc.Raw("{}") // true: whatever it is
	}
	o := object.New(property)
	if a.Description != "" {
		o = object.New(property, "description")
		o.Add("description", jsonrpc.AppendString(nil, a.Description))
	}
	if a.Default == nil {
		return o.End(), nil
	}
	o = object.New(o.End(), "default")
	err := o.Marshal("default", a.Default)
	return o.End(), err
}

// Check returns an error when a caller gives an argument by a name of the tool that the form does
// not have. It is nil for a nil Form.
func (f *Form) Check(given jsonrpc.Raw) error {
	if f == nil || len(f.masked) == 0 {
		return nil
	}
	for key := range scan.Members(given) {
		if f.masked[string(key)] && f.names[string(key)] == "" {
			return fmt.Errorf("there is no argument %q", key)
		}
	}
	return nil
}

// Arguments returns the arguments as the tool knows them.
func (f *Form) Arguments(given jsonrpc.Raw) jsonrpc.Raw {
	if len(f.add)+len(f.names) == 0 {
		return given
	}
	o, there := object.New(nil), map[string]bool{}
	for key, value := range scan.Members(given) {
		name := string(key)
		if own, renamed := f.names[name]; renamed {
			name = own
		}
		there[name] = true
		o.Add(name, value)
	}
	for _, a := range f.add {
		if !there[a.name] {
			o.Add(a.name, a.value)
		}
	}
	return o.End()
}
