// Package capture records the frames of JSON-RPC connections in a file, and reads such files.
//
// # The format, version 1
//
// A capture is NDJSON: one JSON object a line, in UTF-8, appended only, without a footer. When
// the writer was killed and the last line is torn, a file is read up to that line. A file may be
// compressed with zstd as a whole (.jsonl.zst), and may hold several captures, one after another:
// each begins with a record of type capture. Readers ignore unknown members and unknown types. A
// member that is zero, false or empty is left out.
//
// Every record has
//
//	type  what it is: see below
//	seq   its number, from 1 on; it grows, and has gaps where a filter has left records out
//	t     the time of the wall clock, in nanoseconds since 1970
//	mono  the time of the monotonic clock, in nanoseconds since the capture began
//
// The types and their members:
//
//	capture   v (the version, 1, and the first member of the line), program,
//	          owner (the user of the process), host, redact (a redactor was at work),
//	          envelopes (frames have no bytes), why (the cause, of a flight recorder's dump)
//	conn      a connection, or what is known of it by now, so that the last one of a number
//	          counts: conn (its number), transport, peer, label, command (array), tls,
//	          era (the revision of MCP), upstream (in a gateway: where it leads), closed
//	frame     one JSON text: conn, dir ("up" to the server, "down" to the client),
//	          x (over HTTP: the number of the exchange), and what follows from its bytes:
//	          kind ("request", "notification", "response", "batch" or "bad"), id (its JSON, as
//	          text), method, name (of the tool, prompt or resource), ref (seq of the request
//	          that it answers), dur (ns since that), code (of an error), tool_error (the result
//	          has isError), problem (of a bad one);
//	          of what farcall serve has recorded: call (the number of the call), parent (that of
//	          the call that has caused it: on the other side of a gateway), upstream (the server
//	          of a gateway), era, principal (who calls), outcome ("denied", "limited",
//	          "refused", or what else a guard has decided);
//	          n (its size in bytes), cut (how many of them were kept, when not all),
//	          sha256 (in hex, of the whole frame, if it was cut and not redacted),
//	          redacted (array of {path, why}), and, last in the line,
//	          raw (the bytes as a string) or b64 (when they are not UTF-8)
//	http      the envelope of an HTTP message: conn, dir, x, verb and path of a request, status
//	          of an answer, header (object; only harmless names)
//	stderr    what a process wrote to its standard error: conn, n, raw or b64
//	call      the end of a call that got no answer: conn, dir, id, method, name, ref (seq of its
//	          request), call, upstream, code, dur
//	event     something else that happened: conn, upstream, why
//	drop      frames that the recorder lost: n, why
//	end       the capture was ended in order: n (frames), why
//
// raw and b64 are the last member of their line, so that a reader can pass over them.
//
// # Redaction
//
// Secrets are replaced before a record gets to a file or to the ring of the flight recorder.
// Names, structure and types stay. In place of a secret there is [redacted:HASH:SIZE]: HASH is
// keyed with a random key of the process, so that equal secrets are equal within it, and SIZE is
// the next power of two.
package capture
