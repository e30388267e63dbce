// Package mcphttp answers one question: how does MCP travel over HTTP?
//
// [NewHandler] is the serving end for any [Backend], and [Dial] the calling end.
// Both speak every revision: Streamable HTTP without sessions, Streamable HTTP
// with sessions, and HTTP+SSE.
//
//	h := mcphttp.NewHandler(backend, nil)
//	http.Handle("/mcp", h)
//	http.HandleFunc("/sse", h.ServeSSE)           // of 2024-11-05
//	http.HandleFunc("/messages", h.ServeMessages) // of 2024-11-05
//
// # One address for all revisions
//
// A POST with a headers and body that carry a revision without sessions goes to the
// backend as it is. initialize begins a session, and what names a session in
// Mcp-Session-Id belongs to it. The headers of the former are compared with its
// body, so that anyone who routes by them and anyone who acts on the body see the
// same.
//
// # Answers
//
// An answer is JSON, unless the handler sends something before it: then it is an
// event stream, in order, the answer last. Every body is JSON-RPC, also of what
// HTTP itself refuses, and no id changes a byte.
//
// # Connections that break
//
// Without a session, a client that goes cancels its call. In a session the call
// goes on; what is sent meanwhile waits in an [EventStore], and the client gets
// it with Last-Event-ID. Calls of a session are cancelled by
// notifications/cancelled, and are not answered then (in a batch they are, with
// the error that says so).
//
// # Messages to the client
//
// What a handler sends with its own context belongs to its call and goes out on
// the answer to that. Everything else goes out on the newest stream that the
// client has opened with GET, each message on one stream only, or waits for the
// client to open one.
//
// # Limits
//
// Sessions end when nothing happens in them for a time, and cost neither a
// goroutine nor a buffer until then. Their number, what is kept for each and for
// all, and calls to a client that wait for their answers are bounded.
package mcphttp
