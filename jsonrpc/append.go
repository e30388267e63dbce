package jsonrpc

import (
	"strconv"

	"github.com/farcall-dev/farcall/internal/scan"
)

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
