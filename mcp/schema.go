package mcp

import (
	"reflect"

	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
)

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
