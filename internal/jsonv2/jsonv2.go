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

	"github.com/farcall-dev/farcall/internal/scan"
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

// KindOf names the JSON type of a value, which is valid, as schemas do.
func KindOf(raw []byte) string { return kindName(jsontext.Value(raw).Kind()) }

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

// maxDigits is how many digits an integer of 64 bits has at most.
const maxDigits = 20

// Integer appends the integer that a JSON number is, without fraction and exponent: 2.0 and 2e0 are
// integers by JSON Schema (draft 6 and later), but not for strconv. The value is exact. It reports
// false when it is not an integer; one of more than 20 digits is an integer, but nothing is
// appended.
func Integer(dst, number []byte) (out []byte, integer bool) {
	digits, exp := number, 0
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		digits, exp = number[:i], exponent(number[i+1:])
	}
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	whole, fraction, _ := bytes.Cut(digits, []byte("."))
	at := func(i int) byte {
		if i < len(whole) {
			return whole[i]
		}
		return fraction[i-len(whole)]
	}
	first, last := 0, len(whole)+len(fraction) // without zeros before and after
	for first < last && at(first) == '0' {
		first++
	}
	for first < last && at(last-1) == '0' {
		last--
	}
	end := len(whole) + exp // where the point is
	switch {
	case first == last:
		return append(dst, '0'), true
	case last > end:
		return dst, false
	case end-first > maxDigits:
		return dst, true
	}
	if negative {
		dst = append(dst, '-')
	}
	for i := first; i < end; i++ {
		if i < last {
			dst = append(dst, at(i))
		} else {
			dst = append(dst, '0')
		}
	}
	return dst, true
}

// exponent reads an exponent, and stops where it is larger than any frame is long.
func exponent(p []byte) int {
	sign, n := 1, 0
	switch p[0] {
	case '-':
		sign, p = -1, p[1:]
	case '+':
		p = p[1:]
	}
	for _, d := range p {
		if n = n*10 + int(d-'0'); n > 1<<27 { // an int of 32 bits has room for ten times that
			break
		}
	}
	return sign * n
}

// wantsInteger reports whether an error is about a number that an integer type did not take.
func wantsInteger(err error) bool {
	var sem *json.SemanticError
	if !errors.As(err, &sem) || sem.GoType == nil || sem.JSONKind != jsontext.KindNumber {
		return false
	}
	k := sem.GoType.Kind()
	return k >= reflect.Int && k <= reflect.Uintptr
}

// unmarshal is json.Unmarshal, but takes 2.0 for an integer. Then all numbers of data that are
// integers are read in the form of integers, those that a raw value keeps too.
func unmarshal(data []byte, v any, o json.Options) error {
	err := json.Unmarshal(data, v, o)
	if err == nil || !wantsInteger(err) {
		return err
	}
	if _, f := scan.Text(data, -1); f != scan.OK {
		return err
	}
	if plain, changed := plainIntegers(data); changed {
		return json.Unmarshal(plain, v, o)
	}
	return err
}

// plainIntegers writes the integers of a JSON text without fraction and exponent.
func plainIntegers(data []byte) (out []byte, changed bool) {
	for i := 0; i < len(data); {
		end := i + 1
		switch c := data[i]; {
		case c == '"':
			end, _, _ = scan.String(data, i)
		case c == '-', '0' <= c && c <= '9':
			end, _ = scan.Value(data, i, -1)
			if number := data[i:end]; bytes.ContainsAny(number, ".eE") {
				before := len(out)
				if out, _ = Integer(out, number); len(out) > before {
					changed, i = true, end
					continue
				}
			}
		}
		out = append(out, data[i:end]...)
		i = end
	}
	return out, changed
}
