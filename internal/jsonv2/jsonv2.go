// Package jsonv2 answers one question: which Go value is this JSON, and back?
//
// It is the only place that knows the library which does it, so that the
// standard library's encoding/json/v2 can take its place. What holds here:
// names are case-sensitive, a name given twice is refused, 2.0 is an integer, a nil slice is [],
// map keys are sorted, a time.Duration is a number of nanoseconds, and nothing
// is escaped for HTML.
package jsonv2

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

var (
	marshal = json.JoinOptions(
		json.Deterministic(true),
		jsonv1.FormatDurationAsNano(true),
		jsontext.AllowInvalidUTF8(true), // U+FFFD: one bad byte in a result is no reason to lose it
		// What a RawMessage holds was written by another and is kept.
		jsontext.PreserveRawStrings(true),
		jsontext.AllowDuplicateNames(true),
	)
	lenient = json.JoinOptions(jsonv1.FormatDurationAsNano(true))
	strict  = json.JoinOptions(lenient, json.RejectUnknownMembers(true))
	quoted  = json.JoinOptions(strict, json.StringifyNumbers(true))
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Append appends v as JSON to dst. It returns dst as it was when v cannot be
// marshalled.
func Append(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return appendString(dst, v), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return jsontext.AppendFloat(dst, v, 64), nil
		}
	case nil:
		return append(dst, "null"...), nil
	}
	buf, _ := buffers.Get().(*bytes.Buffer)
	*buf = *bytes.NewBuffer(dst) // the library writes into the free capacity of a bytes.Buffer
	err := json.MarshalWrite(buf, v, marshal)
	out := buf.Bytes()
	*buf = bytes.Buffer{}
	buffers.Put(buf)
	if err != nil {
		return dst, err
	}
	return out, nil
}

func appendString(dst []byte, s string) []byte {
	// The error is about bytes that are not UTF-8; they become U+FFFD all the same.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// Unmarshal stores data in what v points to. Members that v does not know are
// passed over.
func Unmarshal(data []byte, v any) error { return unmarshal(data, v, lenient) }

// UnmarshalStrict is Unmarshal, but a member that v does not know is an error.
func UnmarshalStrict(data []byte, v any) error { return unmarshal(data, v, strict) }

// UnmarshalQuoted is UnmarshalStrict for what the tag option "string" marks:
// numbers are written in strings.
func UnmarshalQuoted(data []byte, v any) error { return json.Unmarshal(data, v, quoted) }

// A Problem says why a value does not fit, without the words of the value.
type Problem struct {
	Pointer string       // where, from the value's root (RFC 6901)
	Reason  string       // "unknown", "duplicate", "out of range", or "" when the type is wrong
	Got     string       // the JSON type of the value there, when known
	Want    reflect.Type // the type that did not take it, when known
}

// Explain says what is behind an error of Unmarshal.
func Explain(err error) Problem {
	var sem *json.SemanticError
	if !errors.As(err, &sem) {
		var syn *jsontext.SyntacticError
		if errors.As(err, &syn) && errors.Is(err, jsontext.ErrDuplicateName) {
			return Problem{Pointer: string(syn.JSONPointer), Reason: "duplicate"}
		}
		return Problem{}
	}
	p := Problem{Pointer: string(sem.JSONPointer), Got: kindName(sem.JSONKind), Want: sem.GoType}
	switch {
	case errors.Is(sem.Err, json.ErrUnknownName):
		p.Reason = "unknown"
	case errors.Is(sem.Err, jsontext.ErrDuplicateName):
		p.Reason = "duplicate"
	case errors.Is(sem.Err, strconv.ErrRange):
		p.Reason = "out of range"
	}
	return p
}

func kindName(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindFalse, jsontext.KindTrue:
		return "boolean"
	case jsontext.KindString:
		return "string"
	case jsontext.KindNumber:
		return "number"
	case jsontext.KindBeginObject:
		return "object"
	case jsontext.KindBeginArray:
		return "array"
	default:
		return ""
	}
}

// First returns the first part of a JSON Pointer and the rest.
func First(pointer string) (name, rest string) {
	name, rest, more := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	if more {
		rest = "/" + rest
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(name), rest
}
