// Package sign answers one question: who signed this request?
//
// There are two signatures, for the same keys: HMAC-SHA-256 with a secret of at least 32 bytes, or
// Ed25519. A request over HTTP is signed as RFC 9421 says; a message on any
// transport, by a member of its params. Neither can be made into the other. Whether a signature
// is of now and its nonce new is for the caller to check; both are signed.
//
// # Messages
//
// Params are signed when they are an object with a member "_meta" that has the member
// "farcall.dev/signature", an object of exactly
//
//	keyid    1 to 256 characters of printable ASCII: which key
//	alg      "hmac-sha256" or "ed25519", the one that the key is for
//	created  when, in whole seconds since 1970, without fraction or exponent
//	nonce    16 to 256 characters of visible ASCII, never used before with this key
//	sig      the signature in base64url, without padding
//
// What is signed is UTF-8, in eight parts with one line feed (0x0A) between, and none at the end:
//
//	farcall-signature-v1
//	alg
//	keyid
//	created, in decimal
//	nonce
//	the audience: what the server calls itself, or nothing
//	the method
//	the params
//
// The method and the audience must not have control characters. The params are in the canonical
// form of RFC 8785, without the member "farcall.dev/signature"; "_meta" stays, as {} when nothing
// else is in it. So anyone who signs gives the params a "_meta" if they have none, makes the
// canonical form, signs, and puts the member in. The rest of "_meta" is signed: a progress token, a
// trace context. Who passes a message on must check it before changing any of that. Not signed are
// the id, and whether there is one.
//
// The canonical form (RFC 8785) has no white space; members in the order of the UTF-16 code units
// of their names; in strings no escapes but \" \\ \b \f \n \r \t and \u00xx, in lower case, for the
// other control characters; numbers as ECMAScript writes the double: 1e2 is 100, -0 is 0, 1E21 is
// 1e+21. Here it is stricter than the RFC about what can be signed at all, so that no reader gets
// something else than what was signed: a number must be what it becomes, and 9007199254740993,
// 1e400 or 0.10000000000000001 are refused (send them as strings); no member may be there twice, at
// any depth; no string may have half a surrogate pair. Refused too are a name that differs from
// "farcall.dev/signature" or, around one, from "_meta" in case only.
//
// An example: tools/call with {"name":"add","arguments":{"b":3,"a":2.0}}, by the key "ci", with a
// secret of the 32 bytes 0123456789abcdef0123456789abcdef, for no audience. These 127 bytes are
// signed, with the sixth line empty:
//
//	farcall-signature-v1
//	hmac-sha256
//	ci
//	1700000000
//	nonce-0123456789
//
//	tools/call
//	{"_meta":{},"arguments":{"a":2,"b":3},"name":"add"}
//
// Their HMAC is 739650803361d39f5493c266c2f05a7491152e695542bf288a915d0e859a6085 in hex, and this
// is sent:
//
//	{"_meta":{"farcall.dev/signature":{"alg":"hmac-sha256","created":1700000000,"keyid":"ci","nonce":"nonce-0123456789",
//	"sig":"c5ZQgDNh059Uk8JmwvBadJEVLmlVQr8oipFdDoWaYIU"}},"name":"add","arguments":{"b":3,"a":2.0}}
//
// More are in testdata/vectors.json.
//
// # HTTP
//
// Signature-Input and Signature are those of RFC 9421, Content-Digest that of RFC 9530 with sha-256
// or sha-512. Of what RFC 9421 leaves open, this is wanted:
//
//   - There is one signature, or one has tag="farcall"; a tag must be that.
//   - created, keyid and nonce (as above) are there; alg may be, and must be the key's. expires is
//     passed on. No other parameters.
//   - @method is covered, and @authority, @path and @query, or @target-uri in their place. The
//     latter has the scheme in it: behind a proxy where TLS ends it is not what the client signed,
//     so [HTTP] does not use it.
//   - content-digest is covered when there is a body, and right.
//   - Covered, when they are there, are Authorization, X-Api-Key, Content-Type, Content-Encoding,
//     Last-Event-Id and each header with a name that begins with Mcp-.
//   - Components have no parameters (bs, sf, key, req, tr, name), are not there twice, and are 32
//     at most.
//
// The host is taken in lower case without :443 if the connection has TLS, and without :80 or :443
// if not. A proxy must leave Host and path as they are.
package sign
