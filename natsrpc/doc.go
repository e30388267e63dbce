// Package natsrpc answers one question: how do requests of HTTP, and with them JSON-RPC and MCP,
// travel over NATS?
//
// A [Server] takes requests from a subject and gives them to an http.Handler. Servers of one
// subject share them: a request goes to one of its queue group. A [Transport] sends requests there
// for an http.Client:
//
//	Transport ── request ──> subject ── queue group ──> Server ──> http.Handler
//	    ^ answer, in pieces <── inbox of the call <──────┘
//	    └ credit, cancel, ping ──> inbox of the server ──^
//
// A client that knows nothing of this package publishes a message of JSON-RPC with a subject for
// the answer, as every NATS client can, and gets one message of JSON-RPC: such answers are bounded
// by the payload that the engine allows. Between a Transport and a Server, answers are of any size:
// they come in pieces with numbers, so that a lost one is noticed, and the server sends no more
// than a window ahead of the reader.
//
// The headers of a message are those of the request. The path is that of JSON-RPC unless the
// message has the header Rpc-Path; the method is POST unless it has Rpc-Method. A guard in the
// handler finds the credentials where it finds them over HTTP: Authorization, for example.
//
// The server announces itself by the protocol of NATS services ($SRV.PING, INFO and STATS).
package natsrpc

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// The headers of messages that are not those of HTTP.
const (
	headerMethod = "Rpc-Method" // of the request; none: POST
	headerPath   = "Rpc-Path"   // with the query; none: defaultPath
	headerStream = "Rpc-Stream" // the caller takes an answer in pieces
	headerStatus = "Rpc-Status" // of the answer, in its first piece
	headerPiece  = "Rpc-Piece"  // its number, from 0 on
	headerEnd    = "Rpc-End"    // the last piece: "1", or why the answer ends before its end

	headerError     = "Nats-Service-Error" // NATS ADR-32
	headerErrorCode = "Nats-Service-Error-Code"
)

// What a Transport tells the inbox of a server.
const (
	tellCancel = "cancel"
	tellCredit = "credit " // and the bytes that were read
	tellPing   = "ping"    // answered with alive or gone
	alive      = "alive"
	gone       = "gone"
)

const (
	defaultPath = "/rpc"
	// window bounds what a server sends ahead of the reader, in bytes, with overhead for each piece.
	window   = 1 << 20
	piece    = 64 << 10
	overhead = 1 << 10
)

// An address is a URL nats://HOST/SUBJECT/PATH.
type address struct {
	server  string // as nats.Connect takes it
	subject string
	path    string // with the query; "": none
}

// parse reads an address.
func parse(u *url.URL) (a address, err error) {
	server := url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host}
	switch {
	case u.Scheme == "nats+tls":
		server.Scheme = "tls"
	case u.Scheme != "nats":
		return a, fmt.Errorf("natsrpc: the scheme of %s is neither nats nor nats+tls", u.Redacted())
	}
	if u.Hostname() == "" {
		return a, fmt.Errorf("natsrpc: %s has no host", u.Redacted())
	}
	a.server = server.String()
	subject, rest, found := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if a.subject = subject; found {
		rest := url.URL{Path: "/" + rest, RawQuery: u.RawQuery}
		a.path = rest.RequestURI()
	}
	if why := checkSubject(subject); why != "" {
		return a, fmt.Errorf("natsrpc: %s: the subject %q %s; write nats://HOST/SUBJECT",
			u.Redacted(), subject, why)
	}
	return a, nil
}

// checkSubject returns what is wrong with a subject to send to, "" if it is right.
func checkSubject(s string) (why string) {
	if s == "" {
		return "is empty"
	}
	for token := range strings.SplitSeq(s, ".") {
		switch {
		case token == "":
			return "has an empty part"
		case strings.ContainsAny(token, "*> \t\r\n"):
			return "has a wildcard or a space"
		}
	}
	return ""
}

// copyHeader adds the headers of a message to those of HTTP, or the other way round.
func copyHeader(to, from map[string][]string) {
	for name, values := range from {
		name = http.CanonicalHeaderKey(name)
		ours := strings.HasPrefix(name, "Rpc-") || strings.HasPrefix(name, "Nats-")
		if !ours && name != "Connection" {
			to[name] = append(to[name], values...)
		}
	}
}

// pieceOf returns the number of a piece; ok is false for a message that has none: all of an answer.
func pieceOf(m *nats.Msg) (n uint64, ok bool) {
	n, err := strconv.ParseUint(m.Header.Get(headerPiece), 10, 64)
	return n, err == nil
}
