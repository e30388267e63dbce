// Package policy answers one question: which policy decides this call?
//
// A [Set] is compiled from rules (allow and deny, by role, principal and pattern of calls) and from
// policies in Cedar's language. Rules become Cedar policies, built as syntax trees and never as
// text, so that there is one engine and no name can become syntax. Once there is a policy, what
// none permits is denied; a forbid counts before every permit.
//
// # The model
//
//	principal  User::"alice", Service::…, Agent::…, Process::…, Anonymous::"anonymous"; Other::… for
//	           another kind. The id is ISSUER|ID when an issuer vouches for it.
//	           in Role::"dev" (each role), in Issuer::"https://id.example"
//	           attributes: id, name, kind, issuer, method (how it was found out), roles, scopes (sets
//	           of strings), claims (a record)
//	action     Action::"tools/call": the method.
//	           in Action::"any read" (MCP's methods that only look) or Action::"any call" (all others). No
//	           method has a space, so that none can be taken for a group.
//	resource   Tool::"github/create_issue", Prompt::"github/triage", Resource::"github/file:///readme",
//	           without "github/" where there is no upstream; Method::"math/add" for all else.
//	           in Upstream::"github"
//	           attributes: name, upstream ("" without one), uri ("" but for a Resource), method, call (what
//	           patterns are matched with: "tools/call github/create_issue")
//	context    arguments (a record), transport, local (a bool), remote (an ipaddr; absent when there
//	           is no address), time (a datetime), annotations (a record: readOnlyHint, destructiveHint,
//	           idempotentHint, openWorldHint, with MCP's defaults)
//
// JSON becomes Cedar so: an object is a record, an array a set (the params of a call that are an
// array: a record with the members "0", "1" …), null is Json::"null", a number that is a whole one
// of 64 bits a long however it is written, one with up to four places a decimal, and any other a
// string as it was written. Arguments that are too deep or too large, or have a member twice,
// cannot be decided upon: the call is denied when any policy looks at them.
//
// # Failing closed
//
// A permit that cannot be evaluated (it looks at an attribute that is not there, say) permits
// nothing. A forbid that cannot be evaluated denies the call; the Cedar specification would ignore
// it. A set that was not compiled without errors denies everything.
//
// # Names
//
// Names compare byte by byte. So that a name cannot be written in another way, past a pattern, a
// call is denied when its method has a space or a control character, or when it is about a URI that
// has dot segments, a backslash, an encoded dot or slash, or anything else that is not in the
// normal form of RFC 3986 §6.2.2: see [URIFault].
package policy
