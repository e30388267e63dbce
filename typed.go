package farcall

import (
	"context"
	"iter"
	"reflect"

	"github.com/farcall-dev/farcall/internal/schema"
)

// Handle adds a method that is a function of Go types. The first doc is its
// summary, the others are paragraphs of its description. Handle panics where
// [Mux.Handle] does, and when P or R has no JSON.
//
// # Params
//
// When P is a struct, its fields are the method's parameters. They are accepted by name and by
// position, in the order of the fields, named as in encoding/json: with json tags, embedded structs
// flattened, unexported fields and json:"-" left out. A field is optional when it is a pointer or
// when its tag has omitempty, omitzero, or a default (default:"5"); null counts as absent then, at
// any depth. The tags enum, min, max and pattern limit its values, and so do minimum, maximum,
// minLength, maxLength, minItems, maxItems, minProperties, maxProperties and uniqueItems, which are
// the keywords of JSON Schema; on a slice enum, pattern, minimum, maximum, minLength and maxLength
// are about its elements:
//
//	Count int `json:"count" min:"1" max:"100" doc:"how many"`
//
// A type with a method JSONSchema, which takes nothing and returns a schema as text, bytes or a
// value that marshals to it, is described by that schema.
//
// Params are validated by the schema that rpc.discover publishes. A parameter that
// is missing, unknown, given twice or does not fit is answered with
// [jsonrpc.InvalidParams], with data that says where it is (RFC 6901) and what was
// expected:
//
//	{"member":"b","pointer":"/b","reason":"wrong type","expected":"number","got":"string"}
//
// The reasons are "missing", "unknown", "extra" (by position, the member is its
// index), "duplicate", "wrong type", "out of range", "invalid value" and "too
// complex"; a "message" says more where a tag or a nested member is concerned.
// 2.0 and 1e2 are integers. The member "_meta" is accepted everywhere.
//
// Members that the struct does not have are refused, at any depth. [Mux.IgnoreUnknown]
// lets them pass, and a struct keeps its own in a map:
//
//	Rest map[string]jsonrpc.Raw `json:",embed"`
//
// A P that is a slice or an array takes a list of any length, or of its length;
// a map takes an object; a struct{} takes no params; jsonrpc.Raw and any take
// everything, as do types with an UnmarshalJSON method; any other P
// takes a list of one value. A jsonrpc.Raw is valid until the handler returns.
//
// # Results
//
// The result is marshalled as encoding/json/v2 does. An R that is struct{}
// answers null.
//
// # Errors
//
// The caller gets the text of a *[jsonrpc.Error], see [jsonrpc.Errorf], and of error types
// registered with [MapError]. Any other error is an internal error to it, and its text goes to the
// log only: see [Handler].
func Handle[P, R any](m *Mux, method string, f func(context.Context, P) (R, error), doc ...string) {
	h := &typed[P, R]{types: describe[P, R](method, false), f: f}
	h.void = isVoid(h.types.result)
	m.add(&entry{name: method, handler: h, doc: doc, types: h.types})
}

// HandleStream adds a method with a sequence as its result. Each value is sent as
// progress when the caller asked for progress, as [Stream] does, and the answer
// is null then. Otherwise the answer is the array of all values. An error ends
// the sequence and is the answer. The sequence runs inside the handler, so that an
// [Interceptor] surrounds all of it. Otherwise HandleStream is like [Handle].
func HandleStream[P, T any](
	m *Mux, method string, f func(context.Context, P) iter.Seq2[T, error], doc ...string,
) {
	h := &streamed[P, T]{types: describe[P, T](method, true), f: f}
	m.add(&entry{name: method, handler: h, doc: doc, types: h.types})
}

// describe panics when a type cannot be a method's.
func describe[P, R any](method string, stream bool) *signature {
	params, err := newPlan(reflect.TypeFor[P](), false)
	if err != nil {
		misuse("the params of the method %q: %v", method, err)
	}
	result := reflect.TypeFor[R]()
	if _, err := schema.NewSet("").Of(result); err != nil { // as rpc.discover describes it
		misuse("the result of the method %q: %v", method, err)
	}
	s := &signature{result: result, stream: stream}
	s.params.Store(params)
	return s
}

// isVoid reports whether a type has nothing to say.
func isVoid(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() == 0 && !schema.OwnJSON(t) && !schema.OwnText(t)
}

type typed[P, R any] struct {
	types *signature
	f     func(context.Context, P) (R, error)
	void  bool
}

// ServeRPC implements Handler.
func (h *typed[P, R]) ServeRPC(ctx context.Context, req *Request) (any, error) {
	var p P
	if err := h.types.params.Load().bind(reflect.ValueOf(&p).Elem(), req.Params); err != nil {
		return nil, err
	}
	r, err := h.f(ctx, p)
	if err != nil || h.void {
		return nil, err
	}
	return r, nil
}

type streamed[P, T any] struct {
	types *signature
	f     func(context.Context, P) iter.Seq2[T, error]
}

// ServeRPC implements Handler.
func (h *streamed[P, T]) ServeRPC(ctx context.Context, req *Request) (any, error) {
	var p P
	if err := h.types.params.Load().bind(reflect.ValueOf(&p).Elem(), req.Params); err != nil {
		return nil, err
	}
	out := newSink(req)
	for v, err := range h.f(ctx, p) {
		if err == nil {
			err = out.put(ctx, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return out.result(), nil
}
