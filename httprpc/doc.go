// Package httprpc answers one question: how do messages travel over HTTP?
//
// [NewHandler] serves JSON-RPC by POST, [NewStreamHandler] runs a streaming
// method by GET for browsers, and [Dial] is the calling end.
//
//	http.Handle("POST /rpc", httprpc.NewHandler(mux, nil))
//
//	x, err := httprpc.Dial("http://127.0.0.1:7331/rpc", nil)
//	peer := farcall.NewClient(x, nil, nil)
//
// # Status codes
//
// The status speaks of HTTP only. A body that was read is answered with 200,
// also when the answer is a JSON-RPC error, a parse error included: an HTTP
// client that treats other statuses as failures would hide the answer. 204 is
// the answer to notifications. What HTTP itself refuses (403, 405, 413, 415) has
// a JSON-RPC error with id null as its body. No answer is ever text/plain.
//
// # Event streams
//
// When the caller accepts text/event-stream and the handler sends something
// before it answers (progress, notifications), the answer is an event stream:
// each message one event, the response last. Otherwise it is plain JSON.
//
// A connection that the caller closes cancels the context of the handlers.
//
// # Compression
//
// [Options].Gzip compresses bodies both ways. It is off by default: where an answer
// holds a secret beside text that an attacker chooses, such as an echo of the
// params, its length says how much the two have in common, also under TLS
// (the BREACH attack, CVE-2013-3587). Switch it on for large answers without
// secrets, or between ends where no third party can choose the calls.
//
// A body that is decompressed counts against MaxMessage and the budget as it
// grows, so a small one that becomes large is refused like a large one. Other
// encodings are answered with 415.
//
// # Browsers
//
// Pages of other hosts are refused unless [Options].Origins names them. Requests
// for a DNS name other than localhost are refused unless [Options].Hosts has the
// name (against DNS rebinding). A POST must be declared as JSON, which a foreign
// page cannot do without asking first (CORS).
//
// # Concurrency
//
// Handlers and clients may be used by any number of goroutines at once.
package httprpc
