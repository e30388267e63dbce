package jsonrpc

import (
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

// Raw is one JSON value as bytes, kept as it was written. It marshals as
// itself, and as null when it is nil.
type Raw []byte

// MarshalJSON returns r itself.
func (r Raw) MarshalJSON() ([]byte, error) {
	if r == nil {
		return []byte("null"), nil
	}
	return r, nil
}

// UnmarshalJSON keeps a copy of b.
func (r *Raw) UnmarshalJSON(b []byte) error {
	*r = append((*r)[:0], b...)
	return nil
}

func (r Raw) String() string { return string(r) }

// Version is the protocol of a message: JSON-RPC 2.0, or 1.0 for peers that
// speak only that.
type Version uint8

// The versions.
const (
	V2 Version = iota // JSON-RPC 2.0, the zero value
	V1                // JSON-RPC 1.0
)

// Kind says what a message is.
type Kind uint8

// The kinds.
const (
	Invalid      Kind = iota // no valid message; Message.Err says why
	Request                  // a call that wants an answer
	Notification             // a call that must not be answered
	Response                 // an answer
)

// Message is one decoded JSON-RPC message. Its slices are parts of the decoded
// frame, except a Method that was written with escapes.
type Message struct {
	Kind    Kind
	Version Version
	extra   bool // there are members that JSON-RPC does not define

	// ID is the id as it was written. It is absent in a notification, and null
	// in an invalid message with an unreadable id.
	ID     ID
	Method []byte // the method's name, unescaped
	Params Raw    // an object or array; nil when absent or null
	Result Raw    // of a Response that succeeded; the value null is "null"
	Error  Raw    // of a Response that failed: the error object
	// Err says what is wrong. For Kind Invalid it is the error to answer with.
	// For Kind Response it marks a malformed answer, which has neither Result
	// nor Error and must not be answered.
	Err *Error
	// Raw is the whole message.
	Raw Raw

	// Places in Raw: of the id (0, 0 when none can be read), of the method's
	// characters (0 when they are apart from it), and of the params, result or
	// error.
	idStart, idEnd, method, body int
}

// Clone returns a copy that outlives the frame.
func (m *Message) Clone() Message {
	c := *m
	c.Raw = slices.Clone(m.Raw)
	part := func(at int, p []byte) Raw {
		if p == nil {
			return nil
		}
		return c.Raw[at : at+len(p) : at+len(p)]
	}
	if m.idEnd > 0 {
		c.ID.raw = part(m.idStart, m.ID.raw)
	}
	if m.method > 0 {
		c.Method = part(m.method, m.Method)
	}
	c.Params, c.Result, c.Error = part(m.body, m.Params), part(m.body, m.Result), part(m.body, m.Error)
	return c
}

// Member returns the value of a top-level member that JSON-RPC does not
// define, such as "traceparent", or nil. Of two with the same name it is the
// last one.
func (m *Message) Member(name string) Raw {
	if !m.extra || memberNamed([]byte(name)) != other {
		return nil
	}
	var value Raw
	scan.Object(m.Raw, func(key, v []byte) bool {
		if string(key) == name {
			value = v
		}
		return true
	})
	return value
}

// AppendWithID appends the message as it came but with another id; every other
// byte is kept. A notification gets one. An absent id changes nothing, and
// neither does any id change a message that is not valid.
func (m *Message) AppendWithID(dst []byte, id ID) []byte {
	switch {
	case id.IsAbsent() || m.Err != nil:
		return append(dst, m.Raw...)
	case m.idEnd == 0:
		dst = append(append(dst, `{"id":`...), id.raw...)
		return append(append(dst, ','), m.Raw[1:]...)
	}
	dst = slices.Grow(dst, len(m.Raw)+len(id.raw))
	dst = append(append(dst, m.Raw[:m.idStart]...), id.raw...)
	return append(dst, m.Raw[m.idEnd:]...)
}

// Failure returns the error of a Response that failed, and nil for any other
// message. It is a copy that outlives the frame.
func (m *Message) Failure() *Error {
	if m.Error == nil {
		return nil
	}
	e, ok := parseError(m.Error)
	if !ok { // only JSON-RPC 1.0 lets an error be any value
		e = &Error{Code: serverError, Message: "Server error", Data: slices.Clone(m.Error)}
		if m.Error[0] == '"' {
			e.Message, e.Data = string(scan.Unquote(m.Error)), nil
		}
	}
	return e
}

// parseError reads an error object (specification, section 5.1) and reports
// whether it is one.
func parseError(raw Raw) (*Error, bool) {
	p := splitError(raw)
	if !p.ok() {
		return nil, false
	}
	code, _ := parseCode(p.code)
	return &Error{Code: code, Message: string(scan.Unquote(p.message)), Data: slices.Clone(p.data)}, true
}

// errorParts are the members of an error object.
type errorParts struct {
	code, message, data Raw
	twice               bool // one is given twice
}

func splitError(raw Raw) (p errorParts) {
	scan.Object(raw, func(key, value []byte) bool {
		var part *Raw
		switch string(key) {
		case "code":
			part = &p.code
		case "message":
			part = &p.message
		case "data":
			part = &p.data
		default:
			return true
		}
		p.twice = p.twice || *part != nil
		*part = value
		return true
	})
	return p
}

func (p *errorParts) ok() bool {
	_, ok := parseCode(p.code)
	return ok && !p.twice && len(p.message) > 0 && p.message[0] == '"'
}

// parseCode reads an integer of at most 32 bits. Some languages write -32000 as
// -32000.0, which is the same number.
func parseCode(raw Raw) (Code, bool) {
	digits, fraction, _ := strings.Cut(string(raw), ".")
	n, err := strconv.ParseInt(digits, 10, 32)
	return Code(n), err == nil && strings.Trim(fraction, "0") == ""
}
