//nolint:errname // codes are called what the specification calls them
package jsonrpc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Code is the number of an error. It is itself an error, so that
// errors.Is(err, jsonrpc.MethodNotFound) works on this end and on the other.
type Code int

// The codes of the specification (section 5.1), and those of farcall's own conditions as they are
// on plain JSON-RPC. [Code.Condition] has the rest of each: its name, its status over HTTP, whether
// the same call may succeed later, and its codes on MCP.
const (
	ParseError     Code = -32700
	InvalidRequest Code = -32600
	MethodNotFound Code = -32601
	InvalidParams  Code = -32602
	InternalError  Code = -32603

	PermissionDenied   Code = -32002
	NotInitialized     Code = -32005 // a call came before the handshake
	Unavailable        Code = -32008 // what the call needs cannot be reached
	Timeout            Code = -32009 // the call took longer than allowed
	Overloaded         Code = -32010 // too much is under way; try again later
	TooLarge           Code = -32012 // a message, or a batch, exceeds a limit
	SchemaNotSupported Code = -32040 // the params cannot be compared with their schema
	// ShuttingDown is of one server behind another: an end that shuts down answers Overloaded.
	ShuttingDown    Code = -32041
	NoCallback      Code = -32043 // the caller cannot be called
	RateLimited     Code = -32050
	Unauthenticated Code = -32051
	Replayed        Code = -32052 // a signed request came twice
	BadSignature    Code = -32053
	Stale           Code = -32054 // a signed request is too old
	Cancelled       Code = -32800 // cancelled by the caller

	serverError Code = -32000 // the nameless one of the server-defined range
)

// Error returns the number, with its name where the specification or farcall
// gives it one.
func (c Code) Error() string {
	number := "code " + strconv.Itoa(int(c))
	if name := c.Condition().Name; name != "" {
		return name + " (" + number + ")"
	}
	return number
}

// Error is the error of a response.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`       // one sentence, for the other end
	Data    Raw    `json:"data,omitzero"` // more for the other end; nil when there is none
	// Cause is private: it goes to logs and never over the wire.
	Cause error `json:"-"`
}

// Errorf returns an error with a formatted message. What %w formats becomes its
// Cause as well, but its text is part of the message and so public. To keep a
// cause private, set Cause instead.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	cause := errors.Unwrap(err)
	if cause == nil && strings.Contains(format, "%w") { // more than one
		cause = err
	}
	return &Error{Code: code, Message: err.Error(), Cause: cause}
}

// Refusal returns an error for what is refused before a handler sees it. Its message is the name of
// the code's [Condition]. Its data has the reason, as {"reason":"…"}, which is about the caller's
// own message and no secret.
func Refusal(code Code, reason string) *Error {
	data := append(AppendString([]byte(`{"reason":`), reason), '}')
	return &Error{Code: code, Message: code.Condition().Name, Data: data, Cause: errors.New(reason)}
}

// Oversize returns the error for what exceeds a limit of so many bytes, or elements. Its data has
// the limit, as {"maxSize":10485760,"unit":"bytes"}; what is the name of the thing, such as
// "Request".
func Oversize(what string, limit int64, unit string) *Error {
	data := strconv.AppendInt([]byte(`{"maxSize":`), limit, 10)
	data = append(AppendString(append(data, `,"unit":`...), unit), '}')
	return &Error{Code: TooLarge, Message: what + " too large", Data: data}
}

// Error returns the message, the code, and the cause unless the message has it.
func (e *Error) Error() string {
	s := e.Message + " (code " + strconv.Itoa(int(e.Code)) + ")"
	if e.Cause != nil {
		if cause := e.Cause.Error(); !strings.Contains(e.Message, cause) {
			s += ": " + cause
		}
	}
	return s
}

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }
