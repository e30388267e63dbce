// Package validate answers one question: does this JSON fit this JSON Schema,
// and if not, what must its author change?
//
// It works on the bytes of the value, in a single pass where the schema allows
// it, and knows JSON Schema 2020-12 and its predecessors down to draft-04 (the
// dialect is what $schema says, 2020-12 when it says nothing). What differs
// from the specification, or is left open by it:
//
//   - format, contentEncoding and their like are annotations: nothing is checked.
//   - A reference must lead to a place in the schema itself. Nothing is ever
//     fetched, not even a meta-schema.
//   - Patterns are those of package regexp, with ECMA-262's \u, \c and \s on
//     top. A pattern with look-around or a back-reference does not compile.
//     What [Compile] refuses, [CompileForeign] leaves out.
//   - Numbers are compared as they are written, never as floating point.
//   - A member that is given twice is judged twice.
//
// Schemas and values may be untrusted: the size of a schema and the work
// that a value may cause are bounded.
package validate

import (
	"cmp"
	"errors"

	"github.com/farcall-dev/farcall/internal/scan"
)

// ErrTooComplex is what Validate returns when judging a value takes more work
// than the limits allow.
var ErrTooComplex = errors.New(
	"too complex: the value cannot be judged by this schema with reasonable effort")

// ErrUnsupported is in the errors of [Compile] about what this package cannot judge, though it may
// be valid: patterns that package regexp does not have, references to other documents, other
// dialects.
var ErrUnsupported = errors.New("not supported")

// unsupported is an error that is ErrUnsupported.
type unsupported struct{ error }

func (u unsupported) Is(target error) bool { return target == ErrUnsupported }

// Limits bound what a schema may cost, and say how strict it is. The zero value stands for the
// defaults.
type Limits struct {
	Bytes      int // of the schema's text; 1 MiB
	Depth      int // of subschemas inside each other; 64
	Subschemas int // in all; 10,000
	Pattern    int // bytes of one regular expression; 4,096
	// Work is how many steps judging a value may take; 1,000,000 and 32 for each
	// byte of the value. A step is about one subschema applied to one value.
	Work int
	// Problems is how many an Error lists; 10.
	Problems int
	// OptionalNulls lets null stand for the absence of a property that is not required and
	// with a schema that does not allow null.
	OptionalNulls bool
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Bytes: cmp.Or(l.Bytes, 1<<20), Depth: cmp.Or(l.Depth, 64),
		Subschemas: cmp.Or(l.Subschemas, 10_000), Pattern: cmp.Or(l.Pattern, 4096),
		Work: cmp.Or(l.Work, 1_000_000), Problems: cmp.Or(l.Problems, 10),
		OptionalNulls: l.OptionalNulls,
	}
}

const workPerByte = 32

// A Schema is a compiled JSON Schema. It may be used by several goroutines.
type Schema struct {
	root    *node
	dynamic bool // some reference depends on where the validation came from
	limits  Limits

	unjudged []string
}

// Compile reads a schema. The error says which part of it is wrong.
func Compile(schema []byte, o Limits) (*Schema, error) {
	return compile(schema, o.withDefaults(), false)
}

// CompileForeign reads a schema of another program, which cannot be corrected. What Compile refuses
// is left out, keyword by keyword, and the rest is enforced: a value fails only when it fits in no
// case, whatever is left out may say. [Schema.Unjudged] lists what that is.
func CompileForeign(schema []byte, o Limits) *Schema {
	o = o.withDefaults()
	s, err := compile(schema, o, true)
	if err != nil { // it is not about one part
		s = &Schema{
			root:   &node{types: anything, unjudged: anything, open: true, resource: &resource{}},
			limits: o, unjudged: []string{err.Error()},
		}
	}
	return s
}

// Unjudged lists what CompileForeign has left out: where it is, and why. At most about 100 are
// listed.
func (s *Schema) Unjudged() []string { return s.unjudged }

// Validate judges a value. An absent one, of no bytes, is judged as {} is. The
// error is an *Error when the value does not fit, and otherwise ErrTooComplex
// or, when value is no JSON, one that says so.
func (s *Schema) Validate(value []byte) error {
	_, err := s.Judge(value)
	return err
}

// Judge is Validate, and reports whether nothing that was left out of the schema could have changed
// the outcome.
func (s *Schema) Judge(value []byte) (whole bool, err error) {
	if len(value) == 0 {
		value = []byte("{}")
	}
	r := run{
		value: value, steps: s.limits.Work + workPerByte*len(value), room: s.limits.Problems,
		dynamic: s.dynamic, nulls: s.limits.OptionalNulls,
	}
	if r.dynamic {
		r.scope = append(r.scope, s.root.resource)
	}
	end, ok := r.check(s.root, scan.Space(value, 0))
	switch {
	case r.err != nil:
		return true, r.err
	case !ok:
		return true, r.report()
	}
	if end = scan.Space(value, end); end < len(value) {
		r.invalid(end, scan.Trailing)
		return true, r.err
	}
	return !r.unsure, nil
}
