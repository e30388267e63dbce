package jsonrpc

import (
	"strconv"

	"github.com/farcall-dev/farcall/internal/scan"
)

// AppendString appends s as a JSON string. It escapes only what JSON demands
// (no HTML escaping), and bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte { return scan.AppendQuoted(dst, s) }

// AppendRequest appends a request, or a notification when id is absent. Params
// must be an object, an array, or nil.
func (v Version) AppendRequest(dst []byte, id ID, method string, params Raw) []byte {
	if v == V2 {
		dst = append(dst, `{"jsonrpc":"2.0","method":`...)
	} else {
		dst = append(dst, `{"method":`...)
	}
	dst = AppendString(dst, method)
	if params != nil {
		dst = append(append(dst, `,"params":`...), params...)
	} else if v == V1 { // JSON-RPC 1.0 has no optional members
		dst = append(dst, `,"params":[]`...)
	}
	if v == V2 && id.IsAbsent() {
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
	dst = append(dst, `,"id":`...)
	if id.IsAbsent() {
		return append(dst, "null}"...)
	}
	return append(append(dst, id.raw...), '}')
}
