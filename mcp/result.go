package mcp

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

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
	if text := jsonrpc.Raw(textOf(from)); jsonrpc.Valid(text) == nil && jsonv2.Unmarshal(text, &v) == nil {
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
		return info, fmt.Errorf("a Result of %s has content twice; put it into the Content of a Result[struct{}]", t)
	}
	if t != emptyType {
		info, err = describeStructured(t)
	}
	info.composed = true
	return info, err
}
