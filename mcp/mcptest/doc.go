// Package mcptest answers one question: does my MCP server, or client, do what
// it should?
//
// [Client] connects a client with a server in memory and [Listen] serves a
// server over HTTP, each in one line. What they start ends with the test, and a
// test fails when its server does not let go:
//
//	func TestAdd(t *testing.T) {
//		c := mcptest.Client(t, newServer(), nil)
//		…
//	}
//
// [Golden] compares what goes over the wire, in each revision, with files. [Model] and [User] are a
// fake model and a fake user, which answer what servers ask.
package mcptest
