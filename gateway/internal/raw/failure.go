package raw

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/wording"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

const (
	stderrLines = 10
	stderrLine  = 200 // bytes
)

// tooEarlyError is why no connection is made: the last attempts have failed.
type tooEarlyError struct {
	after time.Duration
	err   error // of the last attempt
}

func (e *tooEarlyError) Error() string {
	return fmt.Sprintf("raw: not tried again for another %v: %v", e.after.Round(time.Millisecond), e.err)
}

func (e *tooEarlyError) Unwrap() error { return e.err }

// A HeldError is what Options.Dial fails with when the upstream takes no calls. Its text follows
// the name of the upstream.
type HeldError string

func (e HeldError) Error() string { return "raw: the upstream " + string(e) }

// failure is the answer to a call that the upstream has not answered. sent says
// whether the upstream may have seen it. The cause stays private, but for what a
// child process has written to its standard error.
func (u *Upstream) failure(cause error, sent bool) *jsonrpc.Error {
	e := &jsonrpc.Error{Code: jsonrpc.Unavailable, Cause: &wayError{cause}}
	var held HeldError
	switch {
	case errors.Is(cause, errShuttingDown):
		e.Code, e.Message = jsonrpc.Overloaded, "Shutting down"
	case errors.Is(cause, errFull), errors.Is(cause, errCrowded):
		e.Code, e.Message = jsonrpc.Overloaded, "Overloaded"
	case errors.As(cause, &held):
		e.Message = "The upstream " + u.opts.Name + " " + string(held)
	case errors.Is(cause, context.DeadlineExceeded):
		e.Code, e.Message = jsonrpc.Timeout, "The upstream "+u.opts.Name+" has not answered in time"
	case comeBack(cause) > 0:
		sent = false
		e.Message = "The upstream " + u.opts.Name + " takes no calls at the moment and has not begun this one; call it again in " + comeBack(cause).String()
	case errors.Is(cause, farcall.ErrProtocol):
		e.Code, e.Message = jsonrpc.InternalError, "The upstream "+u.opts.Name+" has answered what is no JSON-RPC"
	case sent:
		e.Message = "The upstream " + u.opts.Name + " went away; whether the call had an effect is not known"
	default:
		e.Message = "The upstream " + u.opts.Name + " cannot be reached; the call was not sent"
	}
	data := jsonrpc.AppendString([]byte(`{"upstream":`), u.opts.Name)
	switch {
	case errors.Is(cause, errShuttingDown):
		data = append(data, `,"reason":"the gateway is shutting down"`...)
	case errors.Is(cause, errFull):
		data = fmt.Appendf(data, `,"reason":"the limit of %d calls in flight at the upstream, or the caller's share `+
			`of it, is reached"`, u.opts.MaxInFlight)
	case errors.Is(cause, errCrowded):
		data = fmt.Appendf(data, `,"reason":"the limit of %d connections to the upstream, or the caller's share `+
			`of it, is reached"`, u.opts.MaxConnections)
	}
	data = append(data, sentData(sent, held == "")...)
	after, stderr := u.opts.Explain(cause)
	after = max(after, comeBack(cause))
	if early := new(tooEarlyError); held == "" && errors.As(cause, &early) {
		after = early.after
	}
	if after > 0 {
		data = strconv.AppendInt(append(data, `,"retryAfterMs":`...), after.Milliseconds()+1, 10)
	}
	if len(stderr) > 0 && (u.opts.Plain == nil || !u.opts.Plain()) {
		data = append(data, `,"stderr":`...)
		for i, line := range stderr {
			data = jsonrpc.AppendString(append(data, "[,"[min(i, 1)]), line)
		}
		data = append(data, ']')
	}
	e.Data = append(data, '}')
	return e
}

// sentData says whether the upstream may have seen a call, and otherwise whether it is worth trying
// again.
func sentData(sent, again bool) string {
	if sent {
		return `,"sent":"unknown","retryable":false`
	}
	return `,"sent":"no","retryable":` + strconv.FormatBool(again)
}

// explain returns the last lines that a child process has written.
func explain(err error) (after time.Duration, stderr []string) {
	exit := new(stream.ExitError)
	if !errors.As(err, &exit) || strings.TrimSpace(exit.Stderr) == "" {
		return 0, nil
	}
	lines := strings.Split(visible.Log(strings.TrimSpace(exit.Stderr)), "\n")
	for _, line := range lines[max(0, len(lines)-stderrLines):] {
		stderr = append(stderr, strings.ToValidUTF8(line[:min(len(line), stderrLine)], ""))
	}
	return 0, stderr
}

// comeBack returns when a server over HTTP that has not begun a call wants it again, by the status
// 503 or 429 with Retry-After (RFC 9110, section 15.6.4; RFC 6585, section 4). 0: it says nothing
// of the kind.
func comeBack(err error) time.Duration {
	if status := new(httprpc.StatusError); errors.As(err, &status) &&
		(status.Code == http.StatusServiceUnavailable || status.Code == http.StatusTooManyRequests) {
		return status.RetryAfter
	}
	return 0
}

// neverSent reports whether an exchange has failed before anything was sent.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// A wayError is a failure of the way to the server, fit to be logged.
type wayError struct{ cause error }

func (e *wayError) Error() string { return textOf(e.cause) }
func (e *wayError) Unwrap() error { return e.cause }

// textOf returns the text of an error without the secrets of an address.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return wording.Text(err)
}
