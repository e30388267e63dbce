// Package http1 answers one question: can this HTTP/1.1 request be served
// without net/http?
//
// A [Server] reads the requests of a connection in front of an http.Server. It
// serves a request itself when the head is exactly the common case (see head.go):
// POST, HTTP/1.1, a path that the program has registered, well-formed lines, one
// Host, one decimal Content-Length, and no field that changes how a message is framed.
// At the first request that is anything else, [Server.Serve] returns every byte
// that was not consumed, and net/http serves the connection from there on. So no
// leniency exists here, and net/http answers for all that is unusual.
//
// The handler is that of the http.Server, and cannot tell the difference: the
// fields of the request, the framing and headers of the answer, deadlines, unread
// bodies, panics and the end of the context are those of net/http. Not offered
// are hijacking and trailers of an answer.
//
//	         first byte           head complete        answered
//	(idle) ────────────> reading ───────────────> busy ─────────> (idle)
//	  │ IdleTimeout        │ ReadHeaderTimeout     │ Connection: close
//	  └──────────> closed <┴───────────────────────┘
//
// # What a request costs
//
// A request of a kept connection takes one read and one write, and no goroutine,
// timer, or deadline of the connection. One timer for the whole server bounds idle
// connections and heads; a deadline that a handler sets is applied when something
// has to wait; and a read that notices a client that leaves begins after a
// millisecond. The request, its context and what it consists of are one
// allocation, never reused: handlers may keep them. An idle connection holds no
// buffer after some seconds.
package http1
