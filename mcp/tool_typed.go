package mcp

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// AddTool adds a tool that is a function of Go types. A tool of the same name is
// replaced.
//
// # Arguments
//
// In is a struct with the arguments as fields: named as in encoding/json, and
// optional when they are a pointer or their tag has omitempty, omitzero or a
// default. Further tags say what the type cannot:
//
//	doc:"the first addend" enum:"red,green" min:"1" max:"10" pattern:"^a" format:"email" default:"5" examples:"1,2"
//
// min and max are of a number, or of the length of a string, slice or map. On a slice, enum,
// pattern and format are those of the elements. The tags minimum, maximum, minLength, maxLength (on
// a slice: of the elements), minItems, maxItems, minProperties, maxProperties and
// uniqueItems:"true" are the keywords of JSON Schema. jsonschema:"the first addend" is a doc, too;
// AddTool panics when that tag is a list of keywords (jsonschema:"required,minimum=1").
//
// A type with a method JSONSchema, of the value or the pointer, is described by what that returns
// for the zero value: a schema as a string, as bytes or as a value that marshals to it, without
// references. It says what tags cannot, such as oneOf. [SchemaOf] returns the schemas of a type, to
// be changed and put into the Tool.
//
// An argument with a tag like header:"Region" is repeated by clients in the HTTP
// header Mcp-Param-Region, for what lies in between; the two are checked against
// each other.
//
// An optional argument that is null counts as absent, at any depth. 2.0 and 1e2 are
// integers.
//
// Or In is a map, a jsonrpc.Raw or any, which take every object. Arguments that
// do not fit, and those that the struct does not have, are answered with a tool
// error that names them, so that the model can do better; what models often write
// is taken all the same: see ServerOptions.Arguments.
//
// # Results
//
// A *[ToolResult], [Content] or []Content goes out as it is, a string as text, a
// struct{} as no content. A [Result] has structured content, content and _meta. Anything
// else is structured content, described by an
// output schema, and its JSON also goes out as text. A nil pointer counts as a
// pointer to a zero value. The errors of f are those of a [ToolHandler].
//
// # The rest of the tool
//
// t needs a Name, and should have a Description, since models choose by it. A
// schema in it replaces the one made of the type. AddTool panics where
// [Server.AddTool] does, and when a type has no JSON.
func AddTool[In, Out any](s *Server, t Tool, f func(context.Context, In) (Out, error)) {
	if f == nil {
		misuse("the tool %q needs a function", t.Name)
	}
	in, err := describeInput(reflect.TypeFor[In]())
	if err != nil {
		misuse("the arguments of the tool %q: %v", t.Name, err)
	}
	out, err := describeOutput(reflect.TypeFor[Out]())
	if err != nil {
		misuse("the result of the tool %q: %v", t.Name, err)
	}
	check := out.constrained || t.OutputSchema != nil
	if t.InputSchema == nil {
		t.InputSchema = in.schema
	}
	if t.OutputSchema == nil {
		t.OutputSchema = out.schema
	}
	h := &typedTool[In, Out]{
		f: f, defaults: in.defaults, structured: out.structured,
		composed: out.composed,
	}
	s.addTool(&tool{spec: t, run: h.run, typed: true}, check)
}

// typedTool runs a tool of Go types.
type typedTool[In, Out any] struct {
	f          func(context.Context, In) (Out, error)
	defaults   jsonrpc.Raw // an object of what absent members mean; nil: nothing
	structured bool        // the result is structured content
	composed   bool        // the result is a Result
}

func (h *typedTool[In, Out]) run(c *call, t *tool, arguments jsonrpc.Raw) (answer, error) {
	var v struct { // one allocation
		in  In
		out Out
	}
	if h.defaults != nil {
		if err := jsonv2.Unmarshal(h.defaults, &v.in); err != nil {
			return answer{}, err
		}
	}
	err := jsonv2.Unmarshal(arguments, &v.in)
	if err == nil && h.defaults != nil && bytes.Contains(arguments, []byte("null")) {
		err = jsonv2.Unmarshal(h.defaultsOfNulls(arguments), &v.in)
	}
	if err != nil {
		return toolError("Invalid arguments for the tool " + c.shownName(t) + ": " + explain(err)), nil
	}
	if v.out, err = h.f(c, v.in); err != nil {
		return answer{}, err
	}
	if h.composed {
		return t.composed(resultIn(&v.out))
	}
	if h.structured && fill(&v.out) {
		return t.structuredResult(c, &v.out)
	}
	return t.result(plainResult(v.out))
}

// defaultsOfNulls returns the defaults of the arguments that are null.
func (h *typedTool[In, Out]) defaultsOfNulls(arguments jsonrpc.Raw) jsonrpc.Raw {
	o := object.New(nil)
	for name, value := range scan.Members(h.defaults) {
		if string(scan.Member(arguments, string(name))) == "null" {
			o.Add(string(name), value)
		}
	}
	return o.End()
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

// fill makes of a nil pointer one to a zero value: what the schema promises. It
// reports whether there is a value then.
func fill[Out any](out *Out) bool {
	v := reflect.ValueOf(out).Elem()
	for ; v.Kind() == reflect.Pointer; v = v.Elem() {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
	}
	return v.Kind() != reflect.Interface || !v.IsNil()
}

// structuredResult writes what v points to as structured content, and as text.
func (t *tool) structuredResult(c *call, v any) (answer, error) {
	out := append(c.newResult(160), `"structuredContent":`...)
	at := len(out)
	out, err := jsonv2.Append(out, v)
	if err != nil {
		return answer{}, t.badOutput(err)
	}
	value := out[at:]
	if t.output != nil {
		if err := t.output.Validate(value); err != nil {
			return answer{}, t.badOutput(err)
		}
	}
	out = append(out, `,"content":[{"type":"text","text":`...)
	out = scan.AppendQuoted(out, value)
	return answer{raw: append(out, "}]}"...), plain: true, whole: c.whole()}, nil
}

// plainResult wraps a non-structured value in a ToolResult.
func plainResult(out any) *ToolResult {
	switch v := out.(type) {
	case *ToolResult:
		return v
	case ToolResult:
		return &v
	case Content:
		return &ToolResult{Content: []Content{v}}
	case *Content:
		if v == nil {
			return &ToolResult{}
		}
		return &ToolResult{Content: []Content{*v}}
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
	composed    bool // it is a Result
	constrained bool // a value of the type may break its schema
}

func describeInput(t reflect.Type) (info typeInfo, err error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[jsonrpc.Raw]() || t.Kind() == reflect.Interface {
		return typeInfo{schema: jsonrpc.Raw(`{"type":"object"}`)}, nil
	}
	s, err := schema.Input(t)
	if err != nil {
		return info, err
	}
	if info.schema, err = s.JSON(); err != nil {
		return info, err
	}
	if t.Kind() != reflect.Struct {
		return info, nil
	}
	info.defaults, err = defaultsOf(t)
	return info, err
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
	reflect.TypeFor[*Content](),
	reflect.TypeFor[[]Content](), reflect.TypeFor[string](), reflect.TypeFor[struct{}](),
}

func describeOutput(t reflect.Type) (info typeInfo, err error) {
	if slices.Contains(plainTypes, t) {
		return info, nil
	}
	if r := resultIn(reflect.New(t).Interface()); r != nil {
		return describeResult(r.structuredType())
	}
	return describeStructured(t)
}

// describeStructured describes structured content.
func describeStructured(t reflect.Type) (info typeInfo, err error) {
	info.structured = true
	if t.Kind() == reflect.Interface || t == reflect.TypeFor[jsonrpc.Raw]() {
		return info, nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s, err := schema.Output(t)
	if err != nil {
		return info, err
	}
	info.constrained = s.Constrained()
	if info.schema, err = s.JSON(); string(info.schema) == "{}" {
		info.schema = nil // the type says nothing, as one with a MarshalJSON
	}
	return info, err
}

// Schemas are the JSON Schemas of a Go type: see [SchemaOf].
type Schemas struct {
	// Input is the schema for the arguments of a tool: closed, and without null. Nil: the type is no
	// object.
	Input jsonrpc.Raw
	// Output is the schema for the result of a tool: it allows further members, and null for a nil
	// pointer that is written. Nil: AddTool publishes none for the type.
	Output jsonrpc.Raw
}

// SchemaOf returns the schemas that AddTool publishes for the type T, each with the patches applied
// to it. A patch is a JSON Merge Patch (RFC 7396): an object with members that replace those of the
// schema, at any depth, or remove them when they are null. Put the result into Tool.InputSchema or
// Tool.OutputSchema: AddTool enforces what it publishes.
//
//	mcp.SchemaOf[Search](`{"properties":{"query":{"minLength":3}}}`).Input
//
// A type with a schema that is used in several places can have a method instead: see AddTool. Its
// method may call SchemaOf of a type without methods (type plain T).
//
// SchemaOf panics when the type has no JSON, and when a patch is no JSON object.
func SchemaOf[T any](patches ...string) Schemas {
	t := reflect.TypeFor[T]()
	out, err := describeOutput(t)
	if err != nil {
		misuse("SchemaOf: %v", err)
	}
	s := Schemas{Output: out.schema}
	if in, err := describeInput(t); err == nil {
		s.Input = in.schema
	}
	for _, p := range patches {
		patch, err := objectOf(jsonrpc.Raw(p))
		if err != nil || patch == nil {
			misuse("SchemaOf: the patch %s is no JSON object: %v", p, err)
		}
		for _, to := range []*jsonrpc.Raw{&s.Input, &s.Output} {
			if *to != nil {
				*to = schema.Merge(*to, patch)
			}
		}
	}
	return s
}

// A Result is what a tool returns that chooses its content: as the Out of [AddTool]; the output
// schema is that of the Out of the Result, and validated like it. A nil *Result is the zero value.
//
// As the Out of the function [CallTool] it has all that the tool answered.
type Result[Out any] struct {
	// Structured is the structured content, for programs. Revisions before 2025-06-18 have none. A
	// struct{} and a nil interface are no structured content.
	//
	// CallTool takes it from the text where the tool answered no structured content, if that is JSON
	// that fits; it is the zero value otherwise.
	Structured Out
	// Content is for the model. Nil: the JSON of Structured as text. Empty: nothing.
	Content []Content
	// Meta is the _meta of the result: for the host, and not for the model.
	Meta spec.Meta
}

// someResult is what a pointer to any Result is.
type someResult interface {
	structuredType() reflect.Type
	parts() (structured any, content []Content, meta spec.Meta)
	read(tool string, from *ToolResult) error
}

func (r *Result[Out]) structuredType() reflect.Type { return reflect.TypeFor[Out]() }

// parts returns a pointer to the structured value, or nil when there is none.
func (r *Result[Out]) parts() (structured any, content []Content, meta spec.Meta) {
	if r.structuredType() != emptyType && fill(&r.Structured) {
		structured = &r.Structured
	}
	return structured, r.Content, r.Meta
}

// read takes what a tool answered.
func (r *Result[Out]) read(tool string, from *ToolResult) error {
	r.Content, r.Meta = from.Content, from.Meta
	if raw := from.StructuredContent; raw != nil {
		if err := jsonv2.Unmarshal(raw, &r.Structured); err != nil {
			return fmt.Errorf("mcp: the answer of the tool %q does not fit %T: %w", tool, r.Structured, err)
		}
		return nil
	}
	var v Out
	if text := jsonrpc.Raw(textOf(from)); jsonrpc.Valid(text) == nil &&
		jsonv2.Unmarshal(text, &v) == nil {
		r.Structured = v
	}
	return nil
}

// resultIn returns what v points to as a Result, or nil: v is a pointer to a Result, or to a
// pointer to one.
func resultIn(v any) someResult {
	if r, ok := v.(someResult); ok {
		return r
	}
	p := reflect.ValueOf(v).Elem()
	if p.Kind() != reflect.Pointer || !p.Type().Implements(reflect.TypeFor[someResult]()) {
		return nil
	}
	if p.IsNil() {
		p.Set(reflect.New(p.Type().Elem()))
	}
	r, _ := reflect.TypeAssert[someResult](p)
	return r
}

// composed writes the result of a tool that returns a Result.
func (t *tool) composed(from someResult) (answer, error) {
	structured, content, meta := from.parts()
	r := &ToolResult{Content: content, Meta: meta}
	if structured != nil {
		raw, err := jsonv2.Append(nil, structured)
		if err != nil {
			return answer{}, t.badOutput(err)
		}
		if r.StructuredContent = raw; content == nil {
			r.Content = []Content{Text(string(raw))}
		}
	}
	return t.result(r)
}

var emptyType = reflect.TypeFor[struct{}]()

// describeResult describes the structured content of a Result.
func describeResult(t reflect.Type) (info typeInfo, err error) {
	if t != emptyType && t.Kind() != reflect.String && slices.Contains(plainTypes, t) {
		return info,
			fmt.Errorf("a Result of %s has content twice; put it into the Content of a Result[struct{}]", t)
	}
	if t != emptyType {
		info, err = describeStructured(t)
	}
	info.composed = true
	return info, err
}
