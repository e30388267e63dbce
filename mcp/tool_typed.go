package mcp

import (
	"context"
	"reflect"
	"slices"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// AddTool adds a tool that is a function of Go types. A tool of the same name is
// replaced.
//
// # Arguments
//
// In is a struct, whose fields are the arguments: named as in encoding/json, and
// optional when they are a pointer or their tag has omitempty, omitzero or a
// default. Further tags say what the type cannot:
//
//	doc:"the first addend" enum:"red,green" min:"1" max:"10" pattern:"^a" format:"email" default:"5"
//
// Or In is a map, a jsonrpc.Raw or any, which take every object. Arguments that
// do not fit, and those that the struct does not have, are answered with a tool
// error that names them, so that the model can do better.
//
// # Results
//
// A *[ToolResult], [Content] or []Content goes out as it is, a string as text, a
// struct{} as no content. Anything else is structured content, described by an
// output schema, and its JSON also goes out as text. A nil pointer counts as a
// pointer to a zero value. The errors of f are those of a [ToolHandler].
//
// # Details
//
// Of details there is one at most. Its Title, Icons, Annotations, Execution and
// Meta are the tool's, and a schema in it replaces the one made of the type.
// AddTool panics where [Server.AddTool] does, and when a type has no JSON.
func AddTool[In, Out any](s *Server, name, description string, f func(context.Context, In) (Out, error), details ...Tool) {
	t := &tool{}
	if len(details) > 0 {
		t.spec = details[0]
	}
	if len(details) > 1 || f == nil {
		misuse("the tool %q needs a function and no more than one Tool with details", name)
	}
	t.spec.Name, t.spec.Description = name, description
	in, err := describeInput(reflect.TypeFor[In]())
	if err != nil {
		misuse("the arguments of the tool %q: %v", name, err)
	}
	out, err := describeOutput(reflect.TypeFor[Out]())
	if err != nil {
		misuse("the result of the tool %q: %v", name, err)
	}
	check := out.constrained || t.spec.OutputSchema != nil
	if t.spec.InputSchema == nil {
		t.spec.InputSchema = in.schema
	}
	if t.spec.OutputSchema == nil {
		t.spec.OutputSchema = out.schema
	}
	h := &typedTool[In, Out]{f: f, defaults: in.defaults, structured: out.structured}
	t.run = h.run
	s.addTool(t, check)
}

// typedTool runs a tool of Go types.
type typedTool[In, Out any] struct {
	f          func(context.Context, In) (Out, error)
	defaults   jsonrpc.Raw // an object of what absent members mean; nil: nothing
	structured bool        // the result is structured content
}

func (h *typedTool[In, Out]) run(ctx context.Context, t *tool, arguments jsonrpc.Raw) (answer, error) {
	var in In
	if h.defaults != nil {
		if err := jsonv2.Unmarshal(h.defaults, &in); err != nil {
			return answer{}, err
		}
	}
	if arguments == nil {
		arguments = jsonrpc.Raw("{}")
	}
	if err := jsonv2.Unmarshal(arguments, &in); err != nil {
		return toolError("Invalid arguments for the tool " + t.spec.Name + ": " + explain(err)), nil
	}
	out, err := h.f(ctx, in)
	if err != nil {
		return answer{}, err
	}
	if v := solid(out); h.structured && v != nil {
		return t.structuredResult(v)
	}
	return t.result(plainResult(out))
}

// explain says which argument is wrong, when only decoding finds out.
func explain(err error) string {
	p := jsonv2.Explain(err)
	text := "the value cannot be used"
	switch {
	case p.Reason != "":
		text = p.Reason
	case p.Want != nil:
		text = "not a valid " + p.Want.String()
	}
	if p.Pointer != "" {
		return p.Pointer + ": " + text
	}
	return text
}

// solid makes of a nil pointer one to a zero value: what the schema promises.
func solid[Out any](out Out) any {
	v := reflect.ValueOf(out)
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return reflect.New(v.Type().Elem()).Interface()
	}
	return out
}

// structuredResult writes a value as structured content, and as text.
func (t *tool) structuredResult(v any) (answer, error) {
	const start = `{"structuredContent":`
	out, err := jsonv2.Append(append(make([]byte, 0, 256), start...), v)
	if err != nil {
		return answer{}, t.badOutput(err)
	}
	value := out[len(start):]
	if t.output != nil {
		if err := t.output.Validate(value); err != nil {
			return answer{}, t.badOutput(err)
		}
	}
	out = append(out, `,"content":[{"type":"text","text":`...)
	out = scan.AppendQuoted(out, value)
	return answer{append(out, "}]}"...), true}, nil
}

// plainResult makes a result of what is none and is not structured.
func plainResult(out any) *ToolResult {
	switch v := out.(type) {
	case *ToolResult:
		return v
	case ToolResult:
		return &v
	case Content:
		return &ToolResult{Content: []Content{v}}
	case []Content:
		return &ToolResult{Content: v}
	case string:
		return &ToolResult{Content: []Content{Text(v)}}
	default:
		return &ToolResult{}
	}
}

// typeInfo is what is known of the arguments or the result of a tool.
type typeInfo struct {
	schema      jsonrpc.Raw
	defaults    jsonrpc.Raw
	structured  bool
	constrained bool // a value of the type may break its schema
}

func describeInput(t reflect.Type) (info typeInfo, err error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[jsonrpc.Raw]() || t.Kind() == reflect.Interface {
		return typeInfo{schema: jsonrpc.Raw(`{"type":"object"}`)}, nil
	}
	s, err := schema.For(t, true)
	if err != nil {
		return info, err
	}
	if s.Type != "object" && s.Ref == "" {
		return info, notObjectError{t}
	}
	if info.schema, err = jsonv2.Append(nil, s); err != nil {
		return info, err
	}
	if t.Kind() != reflect.Struct {
		return info, nil
	}
	info.defaults, err = defaultsOf(t)
	return info, err
}

type notObjectError struct{ t reflect.Type }

func (e notObjectError) Error() string {
	return e.t.String() + " is no JSON object; take a struct whose fields are the arguments"
}

// defaultsOf returns an object of the members that have a default.
func defaultsOf(t reflect.Type) (jsonrpc.Raw, error) {
	fields, err := schema.Fields(t)
	if err != nil {
		return nil, err
	}
	out := jsonrpc.Raw{'{'}
	for i := range fields {
		value, err := fields[i].Default()
		if err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(jsonrpc.AppendString(out, fields[i].Name), ':'), value...)
	}
	if len(out) == 1 {
		return nil, nil
	}
	return append(out, '}'), nil
}

// plainTypes are the results that go out without structured content.
var plainTypes = []reflect.Type{
	reflect.TypeFor[*ToolResult](), reflect.TypeFor[ToolResult](), reflect.TypeFor[Content](),
	reflect.TypeFor[[]Content](), reflect.TypeFor[string](), reflect.TypeFor[struct{}](),
}

func describeOutput(t reflect.Type) (info typeInfo, err error) {
	if slices.Contains(plainTypes, t) {
		return info, nil
	}
	info.structured = true
	if t.Kind() == reflect.Interface || t == reflect.TypeFor[jsonrpc.Raw]() {
		return info, nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s, err := schema.For(t, false)
	if err != nil {
		return info, err
	}
	info.constrained = constrained(s)
	info.schema, err = jsonv2.Append(nil, s)
	return info, err
}

// constrained reports whether a schema asks for more than the type that it was
// made of guarantees.
func constrained(s *schema.Schema) bool {
	if s == nil {
		return false
	}
	if len(s.Enum) > 0 || s.Maximum != nil || s.MinLength != nil || s.MaxLength != nil || s.Pattern != "" ||
		s.MinItems != nil || s.MaxItems != nil || s.MinProperties != nil || s.MaxProperties != nil ||
		s.Minimum != nil {
		return true
	}
	more, _ := s.AdditionalProperties.(*schema.Schema)
	member := func(m schema.Member) bool { return constrained(m.Schema) }
	return constrained(s.Items) || constrained(more) || slices.ContainsFunc(s.AnyOf, constrained) ||
		slices.ContainsFunc(s.Properties, member) || slices.ContainsFunc(s.Defs, member)
}
