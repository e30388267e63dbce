package jsonrpc

import (
	"bytes"
	"errors"
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
	for key, v := range scan.Members(m.Raw) {
		if string(key) == name {
			value = v
		}
	}
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
	return &Error{Code: code, Message: string(scan.Unquote(p.message)), Data: slices.Clone(p.data)},
		true
}

// errorParts are the members of an error object.
type errorParts struct {
	code, message, data Raw
	twice               bool // one is given twice
}

func splitError(raw Raw) (p errorParts) {
	for key, value := range scan.Members(raw) {
		var part *Raw
		switch string(key) {
		case "code":
			part = &p.code
		case "message":
			part = &p.message
		case "data":
			part = &p.data
		default:
			continue
		}
		p.twice = p.twice || *part != nil
		*part = value
	}
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

// ID identifies a request. It is kept as the bytes it was written with, so that
// the answer carries exactly those: 1.0 stays 1.0, and 1e400 is no problem. The
// zero value is the absent id.
type ID struct{ raw Raw }

// IntID returns the id n.
func IntID(n int64) ID { return ID{strconv.AppendInt(nil, n, 10)} }

// StringID returns the id s, a string.
func StringID(s string) ID { return ID{AppendString(nil, s)} }

// NullID returns the id null, which answers a message with an unreadable id.
func NullID() ID { return ID{Raw("null")} }

// ParseID returns the id that is written as raw: a string, a number or null
// (specification, section 4), without white space around it. The id borrows
// raw.
func ParseID(raw Raw) (ID, error) {
	if err := Valid(raw); err != nil {
		return ID{}, err
	}
	if !isID(raw) || raw[len(raw)-1] <= ' ' {
		return ID{}, errors.New(located(0, "an id must be a string, a number or null"))
	}
	return ID{raw}, nil
}

// isID tells by its first byte whether a valid value can be an id.
func isID(raw Raw) bool {
	c := raw[0]
	return c == '"' || c == '-' || c-'0' <= 9 || c == 'n'
}

// IsAbsent reports whether there is no id at all.
func (id ID) IsAbsent() bool { return id.raw == nil }

// IsNull reports whether the id is null.
func (id ID) IsNull() bool { return string(id.raw) == "null" }

// Raw returns the id as it is written, nil when absent.
func (id ID) Raw() Raw { return id.raw }

// String returns the id as it is written, "" when absent.
func (id ID) String() string { return string(id.raw) }

// Equal reports whether both are written with the same bytes.
func (id ID) Equal(other ID) bool {
	return bytes.Equal(id.raw, other.raw) && id.IsAbsent() == other.IsAbsent()
}

// Clone returns a copy that outlives the frame.
func (id ID) Clone() ID { return ID{slices.Clone(id.raw)} }

// Uint returns the number of an id that is written as a plain decimal number:
// digits only and no leading zero.
func (id ID) Uint() (n uint64, ok bool) {
	if len(id.raw) == 0 || len(id.raw) > 1 && id.raw[0] == '0' {
		return 0, false
	}
	for _, c := range id.raw {
		d := uint64(c - '0')
		if d > 9 || n > (1<<64-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// MarshalJSON returns the id as it is written, null when absent.
func (id ID) MarshalJSON() ([]byte, error) { return id.raw.MarshalJSON() }

// UnmarshalJSON keeps a copy of b, which must be an id.
func (id *ID) UnmarshalJSON(b []byte) error {
	parsed, err := ParseID(b)
	if err == nil {
		*id = parsed.Clone()
	}
	return err
}

// Valid reports why raw is not one JSON value, and at which offset. White space
// around the value is allowed, and any depth.
func Valid(raw []byte) error {
	if i, f := scan.Text(raw, -1); f != scan.OK {
		return errors.New(located(i, f.String()))
	}
	return nil
}

// AppendString appends s as a JSON string. It escapes only what JSON demands
// (no HTML escaping), and bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte { return scan.AppendQuoted(dst, s) }

// idFirst is from how many bytes of params on the id of a request is written before them.
const idFirst = 1 << 10

// AppendRequest appends a request, or a notification when id is absent. Params
// must be an object, an array, or nil. The id is the last member, but before large params:
// who refuses the request before all of it has arrived can name it then.
func (v Version) AppendRequest(dst []byte, id ID, method string, params Raw) []byte {
	dst = append(dst, '{')
	if v == V2 {
		dst = append(dst, `"jsonrpc":"2.0",`...)
	}
	done := v == V2 && id.IsAbsent()
	if !done && len(params) >= idFirst {
		dst = append(appendIDValue(append(dst, `"id":`...), id), ',')
		done = true
	}
	dst = AppendString(append(dst, `"method":`...), method)
	if params != nil {
		dst = append(append(dst, `,"params":`...), params...)
	} else if v == V1 { // JSON-RPC 1.0 has no optional members
		dst = append(dst, `,"params":[]`...)
	}
	if done {
		return append(dst, '}')
	}
	return appendID(dst, id)
}

// AppendResult appends a response that carries a result; nil is null.
func (v Version) AppendResult(dst []byte, id ID, result Raw) []byte {
	if v == V2 {
		dst = append(dst, `{"jsonrpc":"2.0","result":`...)
	} else {
		dst = append(dst, `{"result":`...)
	}
	if result == nil {
		dst = append(dst, "null"...)
	}
	dst = append(dst, result...)
	if v == V1 {
		dst = append(dst, `,"error":null`...)
	}
	return appendID(dst, id)
}

// AppendError appends a response that carries an error. Its Cause is not
// written.
func (v Version) AppendError(dst []byte, id ID, e *Error) []byte {
	if v == V2 {
		dst = append(dst, `{"jsonrpc":"2.0","error":{"code":`...)
	} else {
		dst = append(dst, `{"result":null,"error":{"code":`...)
	}
	dst = strconv.AppendInt(dst, int64(e.Code), 10)
	dst = AppendString(append(dst, `,"message":`...), e.Message)
	if e.Data != nil {
		dst = append(append(dst, `,"data":`...), e.Data...)
	}
	return appendID(append(dst, '}'), id)
}

// appendID ends a message with its id. The order of the members is that of the
// specification's examples.
func appendID(dst []byte, id ID) []byte {
	return append(appendIDValue(append(dst, `,"id":`...), id), '}')
}

func appendIDValue(dst []byte, id ID) []byte {
	if id.IsAbsent() {
		return append(dst, "null"...)
	}
	return append(dst, id.raw...)
}
