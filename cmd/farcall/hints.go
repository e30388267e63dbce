package main

import (
	"context"
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
		return &exitError{
			code: exitProtocol, err: fmt.Errorf("%s: %s sent what is not JSON-RPC: %s", what, t, noise),
			hint: noiseHint(t, raw),
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &exitError{
			code: exitTimeout, err: fmt.Errorf("%s: no answer from %s in time", what, t),
			hint: silenceHint(t, s.received()),
		}
	case errors.Is(err, httprpc.ErrConnect) && !errors.Is(err, io.EOF):
		return connectFailure(t, err)
	case errors.Is(err, farcall.ErrProtocol):
		return &exitError{code: exitProtocol, err: fmt.Errorf("%s: %w", what, trim(err)), hint: protocolHint(t, err)}
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
	return &exitError{code: code, err: fmt.Errorf("cannot connect to %s: %w", t, bareReason(err)), hint: connectHint(t, err)}
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
	case t.Kind == target.Command && (errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist)):
		return commandHint(t.Command[0])
	case errors.Is(err, syscall.ECONNREFUSED):
		return "Nothing listens there. 'farcall serve' starts a server on " + defaultAddress + "."
	case t.Scheme == "unix" && errors.Is(err, os.ErrNotExist):
		return "There is no such socket. 'farcall serve --listen unix:" + t.Address + "' makes one."
	case errors.As(err, &dns) && dns.IsNotFound:
		return "The name of the host is not known."
	case errors.As(err, &authority):
		return "No known authority signed the certificate. --cacert FILE trusts one; --insecure does not check."
	case errors.As(err, &host):
		return "The certificate is for another name. --insecure does not check."
	case errors.Is(err, context.DeadlineExceeded):
		return unconnectedHint(t, err)
	}
	return handshakeHint(t, err)
}
