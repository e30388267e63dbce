// Package rpc serves JSON-RPC 2.0 at an address over every protocol, and calls servers at any
// address: over HTTP, WebSocket, TCP, TLS, unix sockets and child processes.
//
// [ListenAndServe] serves a handler. It has what farcall serve has: all protocols on one port, TLS,
// limits and a drain, with a guard, MCP and a page as options. A [Server] has the parts, for
// programs that have a server already.
//
// [Dial] returns a [Client], which stays connected: when its connection breaks it makes another
// one, and calls that were not sent are sent over that.
package rpc
