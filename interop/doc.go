// Package interop runs farcall against implementations of others, in
// its own module so that users of farcall do not get them.
//
//	./setup.sh && go test ./... && go run ./suite
//
// setup.sh installs what the tests with Node.js need. Without it they are
// skipped.
//
// The package itself has tests only. Beside it are server and client, which the
// official MCP conformance suite tests and which are the largest examples of
// package mcp, and suite, which runs it.
package interop
