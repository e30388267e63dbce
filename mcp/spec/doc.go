// Package spec answers one question: what does an MCP message hold?
//
// It is the types of the protocol's schema, under the names they have there, in
// their canonical form: that of revision 2026-07-28. Beside them stands what only
// older revisions have (a comment says "legacy"), and the tasks of both
// generations. What differs between revisions in one and the same message is the
// business of mcp/era, which translates; here is no logic but that of the wire.
//
// # Conventions
//
// A union is one flat struct: Content holds the members of every kind of
// content, and its encoder writes those of its Type. What another defines
// (schemas, arguments, structured content) is jsonrpc.Raw and keeps its bytes; it
// must be valid JSON. A member is a pointer where its zero value says something
// else than its absence. Required arrays are written as [], never as null.
package spec
