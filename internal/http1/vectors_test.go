package http1

import "strings"

// A vector is a request that has told two implementations of HTTP apart, or could.
// smuggled is what an implementation that is wrong takes for another request.
type vector struct {
	name, text string
	ours       bool
}

// post makes the head and body of a request that is ours but for what lines add.
func post(lines ...string) string {
	return "POST /rpc HTTP/1.1\r\nHost: a\r\n" + strings.Join(lines, "") + "\r\n"
}

const (
	cl5      = "Content-Length: 5\r\n"
	te       = "Transfer-Encoding: chunked\r\n"
	last     = "0\r\n\r\n"
	smuggled = "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"
)

// vectors are from RFC 9112 (sections 2.2, 3.2, 5, 6.1, 6.3, 9.6, 11.1 and 11.2) and
// from what was published about request smuggling and desynchronisation: CL.TE,
// TE.CL, TE.TE, CL.0, 0.CL, duplicate and signed lengths, line ends, and targets.
var vectors = []vector{
	{"usual", post(cl5) + "hello", true},
	{"lower case names", "POST /rpc HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello", true},
	{"odd case names", "POST /rpc HTTP/1.1\r\nHOST: a\r\nCoNtEnT-LeNgTh: 5\r\n\r\nhello", true},
	{
		"no space after the colon", "POST /rpc HTTP/1.1\r\nHost:a\r\nContent-Length:5\r\n\r\nhello", true,
	},
	{"spaces around a value", post("Content-Length:   5   \r\n") + "hello", true},
	{"empty value", post(cl5, "X:\r\n") + "hello", true},
	{"the same field twice", post(cl5, "X: 1\r\nX: 2\r\n") + "hello", true},
	{"no body", post("Content-Length: 0\r\n"), true},
	{"early pipelining", post(cl5) + "hello" + post(cl5) + "world", true},
	{"a body that looks like a request", post("Content-Length: 33\r\n") + smuggled, true},
	{"Connection: keep-alive", post(cl5, "Connection: Keep-Alive\r\n") + "hello", true},
	{"a name with every token character", post(cl5, "!#$%&'*+-.^_`|~09azAZ: 1\r\n") + "hello", true},

	// Framing: Transfer-Encoding and Content-Length (RFC 9112, section 6).
	{"CL.TE", post("Content-Length: 6\r\n", te) + last + "G", false},
	{"TE.CL", post(te, "Content-Length: 4\r\n") + "5c\r\n" + smuggled + last, false},
	{"TE alone", post(te) + last, false},
	{"TE.TE, the second odd", post(cl5, te, "Transfer-Encoding: cow\r\n") + last, false},
	{"TE xchunked", post(cl5, "Transfer-Encoding: xchunked\r\n") + last, false},
	{"TE with a tab", post(cl5, "Transfer-Encoding:\tchunked\r\n") + last, false},
	{"TE with a vertical tab", post(cl5, "Transfer-Encoding:\x0bchunked\r\n") + last, false},
	{"TE with a form feed behind", post(cl5, "Transfer-Encoding: chunked\x0c\r\n") + last, false},
	{"TE identity", post(cl5, "Transfer-Encoding: identity\r\n") + "hello", false},
	{"TE chunked twice", post("Transfer-Encoding: chunked, chunked\r\n") + last, false},
	{"TE with quotes", post(cl5, "Transfer-Encoding: \"chunked\"\r\n") + last, false},
	{"TE, upper case", post(cl5, "TRANSFER-ENCODING: CHUNKED\r\n") + last, false},
	{"TE with a space before the colon", post(cl5, "Transfer-Encoding : chunked\r\n") + last, false},
	{"TE in a folded line", post(cl5, "X: a\r\n Transfer-Encoding: chunked\r\n") + last, false},
	{"TE, the value folded", post(cl5, "Transfer-Encoding:\r\n chunked\r\n") + last, false},
	{"TE behind a bare CR", post(cl5, "X: a\rTransfer-Encoding: chunked\r\n") + last, false},
	{"TE behind a bare LF", post(cl5, "X: a\nTransfer-Encoding: chunked\r\n") + last, false},
	{"TE behind NUL", post(cl5, "X: a\x00\r\nTransfer-Encoding: chunked\r\n") + last, false},
	{"TE: a name with NUL", post(cl5, "Transfer\x00-Encoding: chunked\r\n") + last, false},
	{"TE: a name with 0x80", post(cl5, "Transfer-Encoding\x80: chunked\r\n") + last, false},
	{"length twice, the same", post(cl5, cl5) + "hello", false},
	{"length twice, different", post(cl5, "Content-Length: 0\r\n") + "hello", false},
	{"length twice, in one line", post("Content-Length: 5, 5\r\n") + "hello", false},
	{"length +5", post("Content-Length: +5\r\n") + "hello", false},
	{"length -5", post("Content-Length: -5\r\n") + "hello", false},
	{"length 05", post("Content-Length: 05\r\n") + "hello", false},
	{"length 0x5", post("Content-Length: 0x5\r\n") + "hello", false},
	{"length 5.0", post("Content-Length: 5.0\r\n") + "hello", false},
	{"length 5e0", post("Content-Length: 5e0\r\n") + "hello", false},
	{"length 5_0", post("Content-Length: 5_0\r\n") + "hello", false},
	{"length 5 6", post("Content-Length: 5 6\r\n") + "hello", false},
	{"length empty", post("Content-Length:\r\n"), false},
	{"length of other digits", post("Content-Length: \xd9\xa5\r\n") + "hello", false},
	{"length that overflows", post("Content-Length: 18446744073709551621\r\n") + "hello", false},
	{"length of 2^63", post("Content-Length: 9223372036854775808\r\n") + "hello", false},
	{"length with a tab", post("Content-Length:\t5\r\n") + "hello", false},
	{"length with a space before the colon", post("Content-Length : 5\r\n") + "hello", false},
	{"length with a space before the name", post(" Content-Length: 5\r\n") + "hello", false},
	{"no length (CL.0)", post() + smuggled, false},

	// Lines (RFC 9112, sections 2.2, 5.1 and 5.2).
	{"LF only", strings.ReplaceAll(post(cl5), "\r\n", "\n") + "hello", false},
	{
		"LF at the end of the request line", strings.Replace(post(cl5), "\r\n", "\n", 1) + "hello", false,
	},
	{
		"LF at the end of the head", "POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\nhello",
		false,
	},
	{"CR CR LF", "POST /rpc HTTP/1.1\r\nHost: a\r\r\nContent-Length: 5\r\n\r\nhello", false},
	{
		"CR CR LF at the end of the head",
		"POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\r\nhello", false,
	},
	{"bare CR in a value", post(cl5, "X: a\rb\r\n") + "hello", false},
	{"NUL in a value", post(cl5, "X: a\x00b\r\n") + "hello", false},
	{"vertical tab in a value", post(cl5, "X: a\x0bb\r\n") + "hello", false},
	{"tab in a value", post(cl5, "X: a\tb\r\n") + "hello", false},
	{"DEL in a value", post(cl5, "X: a\x7fb\r\n") + "hello", false},
	{"obs-text", post(cl5, "X: \xe9\r\n") + "hello", false},
	{"obs-fold", post(cl5, "X: a\r\n b\r\n") + "hello", false},
	{"obs-fold with a tab", post(cl5, "X: a\r\n\tb\r\n") + "hello", false},
	{
		"obs-fold in the first field", "POST /rpc HTTP/1.1\r\n Host: a\r\nContent-Length: 5\r\n\r\nhello",
		false,
	},
	{"no colon", post(cl5, "X\r\n") + "hello", false},
	{"no name", post(cl5, ": a\r\n") + "hello", false},
	{"a space in a name", post(cl5, "X Y: a\r\n") + "hello", false},
	{"a line of spaces", post(cl5, "   \r\n") + "hello", false},
	{"CRLF before the request", "\r\n" + post(cl5) + "hello", false},
	{"a space before the request", " " + post(cl5) + "hello", false},
	{"65,536 fields", post(cl5, strings.Repeat("a:\r\n", 1<<16)) + "hello", false},
	{"a field of 64 KB", post(cl5, "X: "+strings.Repeat("a", 1<<16)+"\r\n") + "hello", false},
	{"a request line of 64 KB", "POST /" + strings.Repeat("a", 1<<16) + " HTTP/1.1\r\nHost: a\r\n" +
		cl5 + "\r\nhello", false},

	// The request line and the target (RFC 9112, section 3).
	{"GET", "GET /rpc HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"post", "post /rpc HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"POSTX", "POSTX /rpc HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"two spaces before the target", "POST  /rpc HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"two spaces behind the target", "POST /rpc  HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"a tab in the request line", "POST /rpc\tHTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{
		"a vertical tab in the request line", "POST /rpc\x0bHTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello",
		false,
	},
	{
		"a space at the end of the request line",
		"POST /rpc HTTP/1.1 \r\nHost: a\r\n" + cl5 + "\r\nhello", false,
	},
	{"HTTP/1.0", "POST /rpc HTTP/1.0\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"HTTP/1.2", "POST /rpc HTTP/1.2\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"HTTP/0.9", "POST /rpc\r\n\r\n", false},
	{"HTTP/2.0", "POST /rpc HTTP/2.0\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"http/1.1", "POST /rpc http/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"HTTP/1.10", "POST /rpc HTTP/1.10\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"HTTP/+1.1", "POST /rpc HTTP/+1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"absolute target", "POST http://b/rpc HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"asterisk target", "POST * HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"authority target", "POST a:80 HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"target //b/rpc", "POST //b/rpc HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"target with a query", "POST /rpc?a=b HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"target with a fragment", "POST /rpc#a HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"target with an escape", "POST /%72pc HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"target with a backslash", "POST /\\rpc HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"target with a semicolon", "POST /rpc;a HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"target with NUL", "POST /rpc\x00 HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},
	{"target without a slash", "POST rpc HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\nhello", false},

	// Host (RFC 9112, section 3.2).
	{"no Host", "POST /rpc HTTP/1.1\r\n" + cl5 + "\r\nhello", false},
	{"Host twice, the same", post(cl5, "Host: a\r\n") + "hello", false},
	{"Host twice, different", post(cl5, "Host: b\r\n") + "hello", false},
	{"Host empty", "POST /rpc HTTP/1.1\r\nHost:\r\n" + cl5 + "\r\nhello", false},
	{"Host with user", "POST /rpc HTTP/1.1\r\nHost: u@a\r\n" + cl5 + "\r\nhello", false},
	{"Host with a path", "POST /rpc HTTP/1.1\r\nHost: a/b\r\n" + cl5 + "\r\nhello", false},
	{"Host, two in one", "POST /rpc HTTP/1.1\r\nHost: a, b\r\n" + cl5 + "\r\nhello", false},

	// What changes the connection or how a message is framed.
	{"Expect", post(cl5, "Expect: 100-continue\r\n") + "hello", false},
	{"Expect, odd", post(cl5, "Expect: 100-continue, x\r\n") + "hello", false},
	{"Upgrade: h2c", post(cl5, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"+
		"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n") + "hello", false},
	{"Upgrade without Connection", post(cl5, "Upgrade: websocket\r\n") + "hello", false},
	{"Trailer", post(cl5, "Trailer: Content-Length\r\n") + "hello", false},
	{"TE: trailers", post(cl5, "TE: trailers\r\n") + "hello", false},
	{"Connection: close", post(cl5, "Connection: close\r\n") + "hello", false},
	{"Connection: Content-Length", post(cl5, "Connection: Content-Length\r\n") + "hello", false},
	{"Connection: keep-alive, close", post(cl5, "Connection: keep-alive, close\r\n") + "hello", false},
	{"Proxy-Connection", post(cl5, "Proxy-Connection: keep-alive\r\n") + "hello", false},
	{"Pragma", post(cl5, "Pragma: no-cache\r\n") + "hello", false},
	{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false},
}
