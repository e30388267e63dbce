package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
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

// codeHint says what may help against an error of a method. It says that a call may work later only where
// the server says so: codes mean different things in different servers.
func codeHint(method string, t *target.Target, e *jsonrpc.Error) string {
	where := t.String()
	if t.Kind == target.Command {
		where = "TARGET"
	}
	c := e.Code
	switch c {
	case jsonrpc.MethodNotFound:
		return fmt.Sprintf("'farcall discover %s' lists the methods, if the server describes itself.", where)
	case jsonrpc.InvalidParams:
		if strings.ContainsAny(method, ", ") { // a place in a batch
			method = "METHOD"
		}
		return fmt.Sprintf("'farcall discover %s %s' shows the params, if the server describes itself.", where, tame(method))
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
	case len(known) > 0 && !slices.ContainsFunc(known, func(k jsonrpc.Condition) bool { return k.Category != "auth" }):
		return fmt.Sprintf("--bearer FILE sends a key or token, --cert FILE a client certificate. 'farcall errors %d' says what the code means.", int(c))
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
	return len(e.Data) > 0 && e.Data[0] == '{' && jsonv2.Unmarshal(e.Data, &data) == nil && (data.Retryable || data.RetryAfterMs != nil)
}

// methodFailure is callFailure with the name of the method that was probably meant, where the server has no
// such method and describes itself.
func (q *invocation) methodFailure(ctx context.Context, s *session, err error) error {
	failure := callFailure(ctx, q.method, q.target, s, err)
	exit, wire := (*exitError)(nil), (*jsonrpc.Error)(nil)
	if !errors.As(failure, &exit) || !errors.As(err, &wire) || wire.Code != jsonrpc.MethodNotFound {
		return failure
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
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
	if noise := s.noise(); noise != "" {
		return &exitError{
			code: exitProtocol, err: fmt.Errorf("%s: %s sent what is not JSON-RPC: %s", what, t, noise),
			hint: noiseHint(t, noise),
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &exitError{
			code: exitTimeout, err: fmt.Errorf("%s: no answer from %s in time", what, t),
			hint: "Wait longer with --timeout 2m, or for ever with --timeout 0." + framingAlso(t),
		}
	case errors.Is(err, httprpc.ErrConnect):
		return connectFailure(t, err)
	case errors.Is(err, farcall.ErrProtocol):
		return &exitError{code: exitProtocol, err: fmt.Errorf("%s: %w", what, trim(err)), hint: protocolHint(t, err)}
	case errors.Is(err, farcall.ErrClosed), errors.Is(err, io.EOF):
		return &exitError{
			code: exitProtocol, err: fmt.Errorf("%s: %s closed the connection without an answer", what, t),
			hint: closedHint(t),
		}
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

func noiseHint(t *target.Target, noise string) string {
	if noise[0] == '{' || noise[0] == '[' {
		return "'farcall conform " + t.String() + "' finds out what is wrong."
	}
	return framingHint(t)
}

func framingHint(t *target.Target) string {
	switch {
	case t.Kind == target.Command && t.Framing != stream.Header:
		return "A server on standard output prints messages only; logs belong on standard error. Language servers need --framing header."
	case t.Framing == stream.Header:
		return "The Content-Length framing was asked for. Without it, messages are one a line."
	case t.Kind == target.Stream:
		return "Does it frame messages with Content-Length headers? Then add ?framing=header to the target."
	}
	return ""
}

// framingAlso is for a server that is silent because it waits for a header.
func framingAlso(t *target.Target) string {
	if t.Framing == stream.Header || t.Kind == target.HTTP || t.Kind == target.WebSocket {
		return ""
	}
	return " " + framingHint(t)
}

func closedHint(t *target.Target) string {
	switch {
	case t.Kind == target.Command:
		return "What the command printed on standard error, if anything, is above."
	case t.Scheme == "tcp":
		return "It may want TLS (tls://), another framing (?framing=header), or be no JSON-RPC server."
	case t.Kind == target.Stream:
		return "It may want another framing (?framing=header), or be no JSON-RPC server."
	}
	return ""
}

func protocolHint(t *target.Target, err error) string {
	var status *httprpc.StatusError
	if errors.As(err, &status) && t.Kind == target.HTTP && (status.Code == 404 || status.Code == 405) {
		return "Give the path that JSON-RPC is posted to, for example " + t.URL.Scheme + "://" + t.URL.Host + "/rpc."
	}
	return "--raw shows what comes back. 'farcall conform " + t.String() + "' finds out what is wrong."
}

// connectFailure is the exit for a target that could not be reached.
func connectFailure(t *target.Target, err error) error {
	code := exitConnect
	if errors.Is(err, context.DeadlineExceeded) {
		code = exitTimeout
	}
	return &exitError{code: code, err: fmt.Errorf("cannot connect to %s: %w", t, bareReason(err)), hint: connectHint(t, err)}
}

// bareReason leaves out which address it was: that has been said.
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
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.Is(err, exec.ErrNotFound), t.Kind == target.Command && errors.Is(err, os.ErrNotExist):
		return "The command behind -- is not there; is it spelt right and on the PATH?"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "Nothing listens there. 'farcall serve' starts a server on " + defaultAddress + "."
	case t.Scheme == "unix" && errors.Is(err, os.ErrNotExist):
		return "There is no such socket. 'farcall serve --listen unix:" + t.Address + "' makes one."
	case errors.As(err, &dns):
		return "The name of the host is not known."
	case errors.As(err, &authority):
		return "No known authority signed the certificate. --cacert FILE trusts one; --insecure does not check."
	case errors.As(err, &host):
		return "The certificate is for another name. --insecure does not check."
	case errors.As(err, &record), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return "The other end does not speak TLS there. Use http://, ws:// or tcp://."
	case strings.Contains(err.Error(), "tls: certificate required"):
		return "The other end requires a client certificate: --cert FILE --key FILE."
	case errors.As(err, &op) && op.Op == "remote error": // that is how crypto/tls reports an alert
		return "The other end refused the handshake. If it does not speak TLS there, use http://, ws:// or tcp://."
	case errors.Is(err, context.DeadlineExceeded):
		return "Is the address right, and nothing in between that drops the packets?"
	}
	return ""
}
