package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

const exitInterrupted = 130 // as shells have it for SIGINT

// answeredError is the exit for an error that the other end answered.
func answeredError(what string, t *target.Target, e *jsonrpc.Error) error {
	text := fmt.Sprintf("%s: error %d: %s", what, int(e.Code), tame(e.Message))
	if len(e.Data) > 0 && string(e.Data) != "null" {
		text += "\n  data: " + string(appendTame(nil, compact(e.Data)))
	}
	return &exitError{code: exitAnswered, err: errors.New(text), hint: codeHint(what, t, e)}
}

// codeHint says what may help against an error of a method. It says that a call may work later only
// where the server says so: codes mean different things in different servers.
func codeHint(method string, t *target.Target, e *jsonrpc.Error) string {
	where := t.String()
	if t.Kind == target.Command {
		where = "TARGET"
	}
	c := e.Code
	switch c {
	case jsonrpc.MethodNotFound:
		return fmt.Sprintf("'farcall discover %s' lists the methods, if the server describes itself.",
			where)
	case jsonrpc.InvalidParams:
		if strings.ContainsAny(method, ", ") { // a place in a batch
			method = "METHOD"
		}
		return fmt.Sprintf("'farcall discover %s %s' shows the params, if the server describes itself.",
			where, tame(method))
	case jsonrpc.InternalError:
		return "The cause is in the server's log, if it has one."
	case jsonrpc.InvalidRequest, jsonrpc.ParseError:
		return "The server did not accept the message itself. --curl shows what is sent."
	default:
	}
	known := meanings(c)
	switch {
	case mayRetry(e):
		return fmt.Sprintf("It may work later. 'farcall errors %d' says what the code means.", int(c))
	case len(known) > 0 && !slices.ContainsFunc(known, func(k jsonrpc.Condition) bool {
		return k.Category != "auth"
	}):
		return fmt.Sprintf(
			"--bearer FILE sends a key or token, --cert FILE a client certificate. 'farcall errors %d' "+
				"says what the code means.", int(c))
	}
	if len(known) > 0 {
		return fmt.Sprintf("'farcall errors %d' says what the code means.", int(c))
	}
	return ""
}

// mayRetry reports whether the data of an error says that the call may be tried again.
func mayRetry(e *jsonrpc.Error) bool {
	var data struct {
		Retryable    bool        `json:"retryable"`
		RetryAfterMs jsonrpc.Raw `json:"retryAfterMs"`
	}
	return len(e.Data) > 0 && e.Data[0] == '{' && jsonv2.Unmarshal(e.Data, &data) == nil &&
		(data.Retryable || data.RetryAfterMs != nil)
}

// methodFailure is callFailure with the name of the method that was probably meant, where the
// server has no such method and describes itself.
func (q *invocation) methodFailure(ctx context.Context, s *session, err error) error {
	failure := callFailure(ctx, q.method, q.target, s, err)
	exit, wire := (*exitError)(nil), (*jsonrpc.Error)(nil)
	if !errors.As(failure, &exit) || !errors.As(err, &wire) || wire.Code != jsonrpc.MethodNotFound {
		return failure
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	doc, failed := discover(ctx, s)
	if failed != nil {
		return failure
	}
	names := doc.names()
	switch near := nearestWord(q.method, names); {
	case slices.Contains(names, q.method): // it is there, and something that it called is not
		exit.hint = ""
	case near != "":
		exit.hint = fmt.Sprintf("Did you mean %q? %s", tame(near), exit.hint)
	}
	return exit
}

// callFailure turns the failure of a call, or of anything else that was asked
// of the other end, into the exit that says why.
func callFailure(ctx context.Context, what string, t *target.Target, s *session, err error) error {
	var wire *jsonrpc.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wire):
		return answeredError(what, t, wire)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return &exitError{code: exitInterrupted, err: fmt.Errorf("%s: interrupted", what)}
	}
	if noise, raw := s.noise(); noise != "" {
		return failf(exitProtocol, noiseHint(t, raw), "%s: %s sent what is not JSON-RPC: %s", what,
			t, noise)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return silent(what, t, s.received())
	case errors.Is(err, httprpc.ErrConnect) && !errors.Is(err, io.EOF):
		return connectFailure(t, err)
	case errors.Is(err, farcall.ErrProtocol):
		return &exitError{
			code: exitProtocol, err: fmt.Errorf("%s: %w", what, trim(err)),
			hint: protocolHint(t, err),
		}
	case errors.Is(err, farcall.ErrClosed), errors.Is(err, io.EOF):
		return closedFailure(what, t, s.received(), err)
	}
	return fmt.Errorf("%s: %w", what, trim(err))
}

// trim takes away the layers that repeat which call it was.
func trim(err error) error {
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "farcall: call ") {
		return inner
	}
	return err
}

func protocolHint(t *target.Target, err error) string {
	var status *httprpc.StatusError
	if errors.As(err, &status) && status.Challenge != "" {
		return "Send a key or a token: --bearer FILE, or -H 'Authorization: Bearer TOKEN'."
	}
	if status != nil && t.Kind == target.HTTP && (status.Code == 404 || status.Code == 405) {
		hint := "Give the path that JSON-RPC is posted to"
		if t.URL.Path != rpcPath {
			hint += ", for example " + t.URL.Scheme + "://" + t.URL.Host + rpcPath
		}
		return hint + "."
	}
	if hint := malformedHint(t, err); hint != "" {
		return hint
	}
	return "--raw shows what comes back. 'farcall conform " + t.String() + "' finds out what is wrong."
}

// connectFailure is the exit for a target that could not be reached.
func connectFailure(t *target.Target, err error) error {
	code := exitConnect
	if errors.Is(err, context.DeadlineExceeded) {
		code = exitTimeout
	}
	return &exitError{
		code: code, err: fmt.Errorf("cannot connect to %s: %w", t, bareReason(err)),
		hint: connectHint(t, err),
	}
}

// bareReason leaves out the address, which the message has already.
func bareReason(err error) error {
	var op *net.OpError
	var execError *exec.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("no answer in time")
	case errors.As(err, &op):
		return op.Err
	case errors.As(err, &execError):
		return execError.Err
	}
	return err
}

func connectHint(t *target.Target, err error) string {
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case t.Kind == target.Command &&
		(errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist)):
		return commandHint(t.Command[0])
	case errors.Is(err, syscall.ECONNREFUSED):
		return "Nothing listens there. 'farcall serve' starts a server on " + defaultAddress + "."
	case t.Scheme == "unix" && errors.Is(err, os.ErrNotExist):
		return "There is no such socket. 'farcall serve --listen unix:" + t.Address + "' makes one."
	case errors.As(err, &dns) && dns.IsNotFound:
		return "The name of the host is not known."
	case errors.As(err, &authority):
		return "No known authority signed the certificate. --cacert FILE trusts one; --insecure " +
			"does not check."
	case errors.As(err, &host):
		return "The certificate is for another name. --insecure does not check."
	case errors.Is(err, context.DeadlineExceeded):
		return unconnectedHint(t, err)
	}
	return handshakeHint(t, err)
}

// The hints of this file follow from what came from the other end. Where nothing came, or what
// came says nothing, there is no hint.

// rpcPath is where JSON-RPC is, unless the target says.
const rpcPath = "/rpc"

// beginning is how many of the first bytes of a connection are kept for hints.
const beginning = 64

// A watchedConn keeps the first bytes that arrive.
type watchedConn struct {
	net.Conn

	mu    sync.Mutex
	first []byte
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = append(c.first, p[:min(n, beginning-len(c.first))]...)
	return n, err
}

func (c *watchedConn) received() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.first)
}

// isTLS reports whether p is the head of a TLS record (RFC 8446, section 5.1).
func isTLS(p []byte) bool {
	return len(p) >= 3 && p[0] >= 20 && p[0] <= 23 && p[1] == 3 && p[2] <= 4
}

// isHTTP reports whether p is the head of a response of HTTP/1.
func isHTTP(p []byte) bool { return bytes.HasPrefix(p, []byte("HTTP/")) }

// isHeader reports whether p begins with a header of the base protocol of language servers.
func isHeader(p []byte) bool {
	name, _, found := strings.Cut(string(p), ":")
	return found &&
		(strings.EqualFold(name, "Content-Length") || strings.EqualFold(name, "Content-Type"))
}

// isJSON reports whether p begins as a message does.
func isJSON(p []byte) bool {
	p = bytes.TrimLeft(p, " \t\r\n")
	return len(p) > 0 && (p[0] == '{' || p[0] == '[')
}

// seenHint says what follows from the first bytes of the other end, which are no message in the
// framing that was asked for.
func seenHint(t *target.Target, p []byte) string {
	switch {
	case isTLS(p) && t.Scheme == "tcp":
		return "The other end sent a TLS record: use tls://" + t.Address + "."
	case isHTTP(p) && t.Scheme == "tcp":
		return "The other end answered in HTTP: use http://" + t.Address + "."
	case isHTTP(p) && t.Scheme == "tls":
		return "The other end answered in HTTP: use https://" + t.Address + "."
	case isHeader(p) && t.Framing != stream.Header:
		return "The other end sent a header before its message: add --framing header."
	case isJSON(p) && t.Framing == stream.Header:
		return "The other end sent a message without a header: leave out the framing header."
	}
	return ""
}

// noiseHint is for a frame that is not JSON-RPC.
func noiseHint(t *target.Target, p []byte) string {
	if isJSON(p) {
		return "'farcall conform " + t.String() + "' finds out what is wrong."
	}
	if hint := seenHint(t, p); hint != "" {
		return hint
	}
	if t.Kind == target.Command {
		return "A server on standard output prints messages only; logs belong on standard error."
	}
	return ""
}

// silent is the exit for an answer that did not come in time. The bytes p came, and no message.
func silent(what string, t *target.Target, p []byte) error {
	hint := "Wait longer with --timeout 2m, or for ever with --timeout 0."
	switch seen := seenHint(t, p); {
	case seen != "":
		hint = seen
	case len(p) > 0:
		hint += " What came is no whole message: " + excerpt(p)
	}
	return failf(exitTimeout, hint, "%s: no answer from %s in time", what, t)
}

// closedFailure is the exit for a connection that ended before the answer. The bytes p came, and
// no message.
func closedFailure(what string, t *target.Target, p []byte, err error) error {
	if exit, ok := errors.AsType[*stream.ExitError](err); ok {
		return failf(exitProtocol, stderrHint(exit), "%s: %s ended without an answer: %v", what, t,
			exit.State)
	}
	text := fmt.Sprintf("%s: %s closed the connection without an answer", what, t)
	if cause := closeCause(err); cause != "" {
		text += ": " + cause
	}
	return &exitError{code: exitProtocol, err: errors.New(text), hint: seenHint(t, p)}
}

// stderrHint is for a command that has ended.
func stderrHint(e *stream.ExitError) string {
	if strings.TrimSpace(e.Stderr) == "" {
		return ""
	}
	return "What it printed on standard error is above."
}

// closeCause is why a connection ended, where it ended in another way than in order: a close code
// of WebSocket, a reset, a header that cannot be read.
func closeCause(err error) string {
	for err != nil {
		switch x := err.(type) { //nolint:errorlint // each layer is looked at
		case interface{ Unwrap() []error }:
			all := x.Unwrap()
			cause := all[len(all)-1]
			if errors.Is(cause, io.EOF) && !errors.Is(cause, io.ErrUnexpectedEOF) {
				return ""
			}
			return tame(strings.TrimPrefix(strings.TrimPrefix(cause.Error(), "wsrpc: "), "stream: "))
		case interface{ Unwrap() error }:
			err = x.Unwrap()
		default:
			return ""
		}
	}
	return ""
}

// noGatewayHint is for an HTTP status in place of what a gateway answers.
func noGatewayHint(status int) string {
	if status != http.StatusNotFound {
		return ""
	}
	return "No gateway of farcall answers at this address."
}

// commandHint is for a program that could not be started because a file is missing.
func commandHint(name string) string {
	if !strings.ContainsRune(name, os.PathSeparator) && !strings.Contains(name, "/") {
		return "No directory of PATH has a program of this name."
	}
	if _, err := os.Stat(name); err == nil {
		return "The file is there; the interpreter or loader that it names is not."
	}
	return "There is no such file."
}

// malformedHint is for an answer that is not HTTP. net/http has no type for it, and quotes the
// first line.
func malformedHint(t *target.Target, err error) string {
	const before = "malformed HTTP response \""
	_, quoted, found := strings.Cut(err.Error(), before)
	tls := found && strings.HasPrefix(quoted, `\x15\x03`) && t.URL != nil
	if !tls || t.URL.Scheme != "http" && t.URL.Scheme != "ws" {
		return ""
	}
	at := t.URL.Host + t.URL.Path
	return "The other end sent a TLS record: use " + t.URL.Scheme + "s://" + at + "."
}

// handshakeHint is for a TLS handshake that failed.
func handshakeHint(t *target.Target, err error) string {
	var record tls.RecordHeaderError
	switch {
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		scheme := "http://"
		if t.Kind == target.WebSocket {
			scheme = "ws://"
		}
		return "The other end answered without TLS, in HTTP: use " + scheme + "."
	case errors.As(err, &record) && isHTTP(record.RecordHeader[:]):
		return "The other end answered without TLS, in HTTP: use http:// or ws://."
	case errors.As(err, &record) && isJSON(record.RecordHeader[:]):
		return "The other end answered without TLS, with JSON: use tcp://."
	case errors.As(err, &record):
		return "The other end answered without TLS."
	case strings.Contains(err.Error(), "tls: certificate required"):
		return "The other end requires a client certificate: --cert FILE --key FILE."
	case strings.HasSuffix(err.Error(), tls.AlertError(40).Error()): // the type of it has no name
		return "The other end sent the TLS alert handshake_failure, " +
			"as a port of farcall without a certificate does."
	}
	return malformedHint(t, err)
}

// unconnectedHint is for a connection that was not made in time.
func unconnectedHint(t *target.Target, err error) string {
	op, dialing := errors.AsType[*net.OpError](err)
	switch {
	case dialing && op.Op == "dial":
		return "The address did not answer the request to connect."
	case t.Scheme == "tls":
		return "The connection was accepted, and the TLS handshake was not answered."
	}
	return ""
}

// dialTapped connects, and shows the tap what comes.
func (r *remote) dialTapped(
	ctx context.Context, t *target.Target, tap *tap,
) (farcall.Transport, error) {
	tr, err := r.dialWatched(ctx, t, tap)
	if err != nil {
		return nil, dialFailure(ctx, t, err)
	}
	return tapped{tr, tap}, nil
}

// dialWatched connects, and keeps the first bytes that come over a byte stream for the tap.
func (r *remote) dialWatched(
	ctx context.Context, t *target.Target, tap *tap,
) (farcall.Transport, error) {
	if t.Kind != target.Stream {
		return r.dial(ctx, t)
	}
	rwc, err := r.dialBytes(ctx, t)
	if err != nil {
		return nil, err
	}
	if conn, ok := rwc.(net.Conn); ok {
		w := &watchedConn{Conn: conn}
		tap.watch(w)
		rwc = w
	}
	return stream.New(rwc, t.Framing, nil), nil
}
