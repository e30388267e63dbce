package main

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/farcall-dev/farcall/stream"
)

// targetForms lists what a TARGET may be; it is part of the help.
const targetForms = `TARGET is one of:
  http://host[:port][/path]            https too; without a path: /rpc
  ws://host[:port][/path]              wss too; without a path: /rpc/ws
  tcp://host:port[?framing=FRAMING]    tls:// for TCP with TLS
  unix:PATH[?framing=FRAMING]          a socket
  host:port                            the same as http://host:port
  -- command args...                   a child process, over its standard input and output
FRAMING is how a byte stream marks messages (for a child --framing FRAMING): line,
the default, has one a line; header has the Content-Length headers of language
servers; raw has JSON texts one after another, with or without line ends.`

// Kinds of target.
const (
	kindHTTP  = "http"
	kindWS    = "ws"
	kindTCP   = "tcp"
	kindTLS   = "tls"
	kindUnix  = "unix"
	kindChild = "stdio"
)

// target is the other end of a call.
type target struct {
	kind    string
	url     *url.URL       // of http and ws
	address string         // of tcp, tls and unix
	framing stream.Framing // of a byte stream
	command []string       // of a child
}

// String is the target as it may be typed.
func (t target) String() string {
	switch t.kind {
	case kindHTTP, kindWS:
		return t.url.Redacted()
	case kindChild:
		return "-- " + strings.Join(t.command, " ")
	}
	s := t.kind + "://" + t.address
	if t.kind == kindUnix {
		s = "unix:" + t.address
	}
	if t.framing != stream.NDJSON {
		s += "?framing=" + framingName(t.framing)
	}
	return s
}

// secure reports whether the connection is made with TLS.
func (t target) secure() bool {
	return t.kind == kindTLS || t.url != nil && (t.url.Scheme == "https" || t.url.Scheme == "wss")
}

// parseTarget reads a TARGET other than a command.
func parseTarget(text string) (target, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return parseUnix(text, path)
	}
	scheme, _, ok := strings.Cut(text, "://")
	if !ok {
		return parseBare(text)
	}
	u, err := url.Parse(text)
	if err != nil {
		return target{}, badTarget(text, "it is not a URL")
	}
	t := target{kind: strings.ToLower(scheme), url: u}
	var path string
	switch t.kind {
	case "http", "https":
		t.kind, path = kindHTTP, "/rpc"
	case "ws", "wss":
		t.kind, path = kindWS, "/rpc/ws"
	case kindTCP, kindTLS:
		return parseStream(t, text, u)
	default:
		return target{}, badTarget(text, fmt.Sprintf("there is no transport %q", scheme))
	}
	if u.Hostname() == "" {
		return target{}, badTarget(text, "it has no host")
	}
	if u.Path == "" {
		u.Path = path
	}
	return t, nil
}

func parseStream(t target, text string, u *url.URL) (target, error) {
	t.url = nil
	t.address = u.Host
	if u.Hostname() == "" || u.Port() == "" {
		return target{}, badTarget(text, "it needs a host and a port")
	}
	if u.Path != "" && u.Path != "/" {
		return target{}, badTarget(text, "a byte stream has no path")
	}
	return t.withQuery(text, u.RawQuery)
}

func parseUnix(text, path string) (target, error) {
	path, query, _ := strings.Cut(path, "?")
	path = strings.TrimPrefix(path, "//") // unix:///run/x.sock is common
	if path == "" {
		return target{}, badTarget(text, "it has no path")
	}
	return target{kind: kindUnix, address: path}.withQuery(text, query)
}

// withQuery applies what stands behind the question mark.
func (t target) withQuery(text, query string) (target, error) {
	name, ok := strings.CutPrefix(query, "framing=")
	if ok {
		t.framing, ok = parseFraming(name)
	}
	if !ok && query != "" {
		return target{}, badTarget(text, fmt.Sprintf("%q is not an option; there is framing=header and framing=raw", query))
	}
	return t, nil
}

// withFraming applies the option --framing.
func (t target) withFraming(name string) (target, error) {
	if name == "" {
		return t, nil
	}
	var ok bool
	if t.framing, ok = parseFraming(name); !ok {
		return t, usagef("Use --framing line, --framing header or --framing raw.", "there is no framing %q", name)
	}
	return t, nil
}

func parseFraming(name string) (f stream.Framing, ok bool) {
	switch name {
	case "line", "lines":
		return stream.NDJSON, true
	case "header", "headers":
		return stream.Header, true
	case "raw":
		return stream.Raw, true
	}
	return stream.NDJSON, false
}

// framingName is the name that parseFraming reads.
func framingName(f stream.Framing) string {
	switch f {
	case stream.Header:
		return "header"
	case stream.Raw:
		return "raw"
	default:
		return "line"
	}
}

// parseBare reads host:port, with or without a path.
func parseBare(text string) (target, error) {
	hostport, _, _ := strings.Cut(text, "/")
	host, port, err := net.SplitHostPort(hostport)
	if err != nil || port == "" || strings.ContainsAny(host, " {}\"") {
		return target{}, badTarget(text, "it is neither a URL nor host:port")
	}
	if host == "" {
		text = "localhost" + text
	}
	return parseTarget("http://" + text)
}

func badTarget(text, why string) error {
	hint := "Try http://host:port, ws://host:port, tcp://host:port, unix:PATH, or put a command behind --."
	return usagef(hint, "cannot use %q as the target: %s", text, why)
}
