package era

import (
	"errors"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Kind says which part of a call is translated.
type Kind uint8

// The kinds. The error of a failed call has [Code].
const (
	Params       Kind = iota // the params of a request
	Result                   // its result
	Notification             // the params of a notification
	// BareResult is a Result that gets no resultType "complete": who adds that, with other members,
	// copies it once.
	BareResult
)

// Translate returns raw, a part of a call of method in the revision from, as it
// is in the revision to. Only what differs is changed: all other bytes are kept,
// and raw itself is returned when nothing differs. What the other revision lacks
// is left out or said in its words; what it demands is added, except the _meta
// of a modern request, which only its sender knows. What neither defines passes
// untouched, and so does what is not valid.
//
// The error is a [jsonrpc.Error], for a message that cannot be expressed in the other
// revision at all: a request that it does not have, input_required, a form field
// for which it has no type. A notification with that error is not to be sent. A
// request that only the older revision has passes untouched.
func Translate(kind Kind, method string, raw jsonrpc.Raw, from, to *Revision) (jsonrpc.Raw, error) {
	if from == to {
		return raw, nil
	}
	source, target := slices.Index(revisions, from), slices.Index(revisions, to)
	t := draft{Raw: raw, bare: kind == BareResult}
	if t.bare {
		kind = Result
	}
	for what := (message{kind, method}); source >= 0 && target >= 0 && source != target; {
		var d *direction
		if source < target {
			source++
			d = steps[source].up
		} else {
			d = steps[source].down
			source--
		}
		if err := d.apply(what, &t); err != nil {
			return nil, refuse(what, to, err)
		}
	}
	return t.Raw, nil
}

// refuse says that a message cannot be translated.
func refuse(what message, to *Revision, err error) *jsonrpc.Error {
	code := jsonrpc.InvalidParams
	switch {
	case errors.Is(err, errGone):
		code = jsonrpc.MethodNotFound
	case what.kind == Result:
		code = jsonrpc.InternalError
	}
	return &jsonrpc.Error{Code: code, Message: what.method + ": MCP " + to.Name + " " + err.Error()}
}

const errGone = cannot("has no such method")

// MCP has all of these codes for itself since it is stateless. What others sent
// with them is a thousand higher there, outside every reserved range.
const (
	reservedFirst = -32099
	reservedLast  = -32020
	aside         = 1000

	headerMismatch    = -32020
	missingCapability = -32021
)

// Code returns e with the code that it has in the revision to. It is e itself
// when that is the same one.
func Code(e *jsonrpc.Error, from, to *Revision) *jsonrpc.Error {
	if e == nil || from.ReservedCodes == to.ReservedCodes {
		return e
	}
	code := e.Code
	switch {
	case to.ReservedCodes && code == from.ResourceNotFound:
		code = to.ResourceNotFound
	case to.ReservedCodes && code == from.UnsupportedVersion && scan.Member(e.Data, "supported") != nil:
		code = to.UnsupportedVersion
	case to.ReservedCodes && reserved(code):
		code += aside
	case to.ReservedCodes:
	case code == from.ResourceNotFound && scan.Member(e.Data, "uri") != nil:
		code = to.ResourceNotFound
	case code == from.UnsupportedVersion:
		code = to.UnsupportedVersion
	case code == headerMismatch, code == missingCapability:
		code = jsonrpc.InvalidRequest
	case reserved(code - aside):
		code -= aside
	}
	if code == e.Code {
		return e
	}
	out := *e
	out.Code = code
	return &out
}

func reserved(code jsonrpc.Code) bool { return reservedFirst <= code && code <= reservedLast }
