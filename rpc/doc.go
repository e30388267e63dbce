// Package rpc calls servers of JSON-RPC 2.0 at any address: over HTTP, WebSocket, TCP, TLS, unix sockets and
// child processes.
//
// [Dial] returns a [Client], which stays connected: when its connection breaks it makes another one, and calls
// that were not sent are sent over that.
package rpc
