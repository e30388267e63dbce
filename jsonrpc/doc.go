// Package jsonrpc answers one question: what is a JSON-RPC message?
//
// It turns frames of bytes into messages and messages into bytes, and it holds
// the registry of error codes. It does no I/O and starts no goroutine.
//
// # Bytes are kept
//
// A decoded [Message] borrows: its members are slices of the frame that was
// decoded. Nothing is converted, so an id of 1.0, 1e400 or "a\u0041" goes back
// as it came, and params and results that are only passed on are never
// re-encoded. Code that keeps a message longer than its frame clones it.
//
// # Validation
//
// A frame is validated completely (RFC 8259, UTF-8, nesting depth) in the same
// pass that finds the envelope's members; nothing validates it again. What is
// not JSON is -32700; JSON that is not a valid envelope is -32600, per element
// of a batch.
//
// # Concurrency
//
// Everything here is a plain value. A [Decoder] and a [Batch] must not be used
// by two goroutines at once.
package jsonrpc
