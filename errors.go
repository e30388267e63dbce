package farcall

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Errors maps Go error types to error codes, so that errors.As finds the type
// on the other end too. Fill it with [MapError] before it is used; then it may
// be used by any number of peers.
type Errors struct {
	types []errorType
}

type errorType struct {
	code   jsonrpc.Code
	is     func(err error) bool // err itself, not what it wraps
	decode func(data jsonrpc.Raw) error
}

// MapError gives the error type E a code.
//
// When a handler returns an error in which errors.As finds an E, the answer has
// that code, the E's text as its message and the E's JSON as its data. All of
// that is public. When a call is answered with that code, its error is a
// *[jsonrpc.Error] with an E with that data as its Cause. When the data does not fit,
// or fills none of E's members, the Cause says so instead.
//
// Both ends need to map the type. MapError panics when E is not a defined type,
// when the code is taken, and when E is a struct with fields that JSON does not show.
func MapError[E error](m *Errors, code jsonrpc.Code) {
	t := reflect.TypeFor[E]()
	switch {
	case t.Kind() == reflect.Interface:
		misuse("%s is an interface; map the types that implement it", t)
	case t == reflect.TypeFor[jsonrpc.Code](), t == reflect.TypeFor[*jsonrpc.Error]():
		misuse("%s has a code already", t)
	case slices.ContainsFunc(m.types, func(o errorType) bool { return o.code == code }):
		misuse("the code %d is mapped already", int(code))
	case isOpaque(t):
		misuse("%s has fields, but none is exported and it has no MarshalJSON: the other end would see "+
			"an empty %s", t, t)
	}
	m.types = append(m.types, errorType{
		code: code,
		is: func(err error) bool {
			_, ok := err.(E) //nolint:errorlint // translate unwraps, outermost first
			return ok
		},
		decode: func(data jsonrpc.Raw) error {
			var e E
			if t.Kind() == reflect.Pointer { // also when there is no data
				e, _ = reflect.TypeAssert[E](reflect.New(t.Elem()))
			}
			if err := decodeError(data, &e, deref(t)); err != nil {
				return fmt.Errorf("the data of code %d is no %s: %w", int(code), t, err)
			}
			return e
		},
	})
}

// decodeError stores the data of an error in what e points to. Members that the type does not have
// may come from a newer end; when it has none of those that came, the ends mean different types.
func decodeError[E error](data jsonrpc.Raw, e *E, t reflect.Type) error {
	if data == nil {
		if t.Kind() == reflect.Struct && t.NumField() == 0 {
			return nil
		}
		return errors.New("there is none")
	}
	unknown := jsonv2.UnmarshalStrict(data, e)
	if unknown == nil && !isNil(*e) {
		return nil
	}
	if err := jsonv2.Unmarshal(data, e); err != nil {
		return err
	}
	switch {
	case isNil(*e):
		return errors.New("it is null")
	case !knowsAny[E](data):
		return unknown
	}
	return nil
}

// knowsAny reports whether E has one of the members of an object.
func knowsAny[E error](object jsonrpc.Raw) bool {
	for key, value := range scan.Members(object) {
		var e E
		member := append(jsonrpc.AppendString([]byte{'{'}, string(key)), ':')
		if jsonv2.UnmarshalStrict(append(append(member, value...), '}'), &e) == nil {
			return true
		}
	}
	return false
}

// isOpaque reports whether values of a type lose all that they hold in JSON.
func isOpaque(t reflect.Type) bool {
	for _, f := range []reflect.Type{
		reflect.TypeFor[interface{ MarshalJSON() ([]byte, error) }](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextAppender](),
	} {
		if t.Implements(f) || reflect.PointerTo(t).Implements(f) {
			return false
		}
	}
	if t = deref(t); t.Kind() != reflect.Struct || t.NumField() == 0 {
		return false
	}
	for f := range t.Fields() {
		if f.IsExported() || f.Anonymous {
			return false
		}
	}
	return true
}

func isNil(err error) bool {
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// encode returns the error to answer with when err itself is of a type that is
// mapped.
func (m *Errors) encode(err error) (*jsonrpc.Error, bool) {
	if m == nil {
		return nil, false
	}
	for _, t := range m.types {
		if !t.is(err) {
			continue
		}
		wire := &jsonrpc.Error{Code: t.code, Message: err.Error(), Cause: err}
		if data, err := jsonv2.Append(nil, err); err == nil { // else the type has nothing to show
			wire.Data = data
		}
		return wire, true
	}
	return nil, false
}

// decode returns the error of the type that is mapped to the code, or nil.
func (m *Errors) decode(e *jsonrpc.Error) error {
	if m == nil {
		return nil
	}
	for _, t := range m.types {
		if t.code == e.Code {
			return t.decode(e.Data)
		}
	}
	return nil
}

// wireError is the only way from a Go error to the error of an answer. What is
// not made for the other end stays in its Cause, unless details are wanted.
func wireError(err error, m *Errors, details bool) *jsonrpc.Error {
	wire := translate(err, m)
	if !details || wire.Data != nil || isDiscreet(err) {
		return wire
	}
	detailed := *wire // the handler's may be shared
	detailed.Data = detailsOf(wire)
	return &detailed
}

// isDiscreet reports whether an error has a method Discreet that returns true: an interceptor knows
// that its caller is not one of those that Options.Details is for.
func isDiscreet(err error) bool {
	var d interface{ Discreet() bool }
	return !isNil(err) && errors.As(err, &d) && d.Discreet()
}

func translate(err error, m *Errors) *jsonrpc.Error {
	if isNil(err) { // its methods would panic
		err = fmt.Errorf("the handler returned a nil %T as its error", err)
	}
	// Of a mapped error and a *jsonrpc.Error in one chain the outer one counts.
	var wire *jsonrpc.Error
	remote.Walk(err, func(e error) bool {
		wire, _ = e.(*jsonrpc.Error) //nolint:errorlint // Walk unwraps
		if wire == nil {
			wire, _ = m.encode(e)
		}
		return wire != nil
	})
	switch {
	case wire != nil:
		return wire
	case errors.Is(err, ErrNoCallback):
		return &jsonrpc.Error{Code: jsonrpc.NoCallback, Message: noCallbackText, Cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &jsonrpc.Error{Code: jsonrpc.Timeout, Message: "Request timed out", Cause: err}
	case errors.Is(err, context.Canceled):
		return &jsonrpc.Error{Code: jsonrpc.Cancelled, Message: "Request cancelled", Cause: err}
	default:
		return &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error", Cause: err}
	}
}

// PassOn lets a handler answer with the error that its own call was answered with: code, message
// and data. Without it such an error is answered as [jsonrpc.InternalError], because its code
// speaks of another call: the caller would take "Method not found" for a statement about the method
// that it called. For relays. PassOn of nil is nil.
func PassOn(err error) error { return remote.Pass(err) }

// ErrNoCallback is the failure of calls to a caller that cannot be called. It has its own code on
// the wire, -32043, when a handler returns it.
var ErrNoCallback = errors.New(
	"farcall: this transport cannot call the caller back; use WebSocket, TCP, a unix socket or stdio")

const noCallbackText = "This transport cannot call the caller back; use WebSocket, TCP, a unix " +
	"socket or stdio"

// detailsOf tells what an error keeps to itself. For trusted callers only.
func detailsOf(e *jsonrpc.Error) jsonrpc.Raw {
	if e.Cause == nil {
		return nil
	}
	text := e.Cause.Error()
	switch e.Code {
	case jsonrpc.ParseError, jsonrpc.InvalidRequest, jsonrpc.MethodNotFound, jsonrpc.InvalidParams,
		jsonrpc.Overloaded:
		return append(jsonrpc.AppendString([]byte(`{"reason":`), text), '}')
	}
	out := jsonrpc.AppendString([]byte(`{"exception":`), exception(e.Cause))
	return append(jsonrpc.AppendString(append(out, `,"text":`...), text), '}')
}

// exception names the type of an error, passing over what only adds text.
func exception(err error) string {
	switch e := err.(type) { //nolint:errorlint // ours, outermost
	case panicError:
		return "panic"
	case *remote.Error:
		return exception(e.Wire)
	}
	t := reflect.TypeOf(err)
	if inner := errors.Unwrap(err); inner != nil && deref(t).PkgPath() == "fmt" {
		return exception(inner)
	}
	return t.String()
}

// A CancelError is the [context.Cause] of a handler when its caller has cancelled the call and
// given a reason. It wraps [context.Canceled]. Which dialects carry reasons: see
// Dialect.CancelReason.
type CancelError struct {
	// Reason is what the other end has said, which may be anything, of at most 1 KiB.
	Reason string
}

// Error returns a text with the reason in quotes.
func (e *CancelError) Error() string {
	return fmt.Sprintf("cancelled by the other end: %q", e.Reason)
}

// Unwrap returns context.Canceled.
func (e *CancelError) Unwrap() error { return context.Canceled }

// CancelReason returns Reason, for the packages of this module: a call that is made on behalf of
// another is cancelled for the same reason.
func (e *CancelError) CancelReason() string { return e.Reason }
