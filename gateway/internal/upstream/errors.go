package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/wording"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

// A wayError is the cause of an error about the way to the server.
type wayError struct{ cause error }

func (e *wayError) Error() string { return textOf(e.cause) }
func (e *wayError) Unwrap() error { return e.cause }

// outcome is what has become of an attempt.
type outcome uint8

const (
	answered    outcome = iota // by the server, with a result or an error
	unreachable                // it has surely seen nothing
	busy                       // it says that it has not begun the call, and when to come back
	unknown                    // the connection has failed
	late                       // it has not answered in time
	given                      // the caller has given up
	wrong                      // anything else
)

func outcomeOf(pc *pendingCall, err error) outcome {
	switch {
	case pc != nil && pc.call.Method == describing:
		return wrong // says nothing
	case err == nil:
		return answered
	case pc != nil && pc.failed != nil:
		return wrong
	case comeBack(err) > 0:
		return busy
	case errors.As(err, new(*jsonrpc.Error)):
		return answered
	case pc != nil && pc.ctx.Err() != nil:
		return given
	case errors.Is(err, farcall.ErrNotSent):
		return unreachable
	case errors.Is(err, farcall.ErrClosed), errors.Is(err, mcphttp.ErrConnect), broken(err):
		return unknown
	case errors.Is(err, context.DeadlineExceeded):
		return late
	}
	return wrong
}

// broken reports whether a server over HTTP, or a proxy before it, has failed at a call and does
// not say how: a status of 5xx without an error of JSON-RPC, but for the two that are about the
// request (RFC 9110, sections 15.6.2 and 15.6.6).
func broken(err error) bool {
	status, ok := errors.AsType[*mcphttp.StatusError](err)
	return ok && status.RPC == nil && status.Status >= http.StatusInternalServerError &&
		status.Status != http.StatusNotImplemented && status.Status != http.StatusHTTPVersionNotSupported
}

// comeBack returns when a server that has not begun a call wants it again. It says so by the status
// 503 or 429 with Retry-After (RFC 9110, section 15.6.4; RFC 6585, section 4), or by an error with
// data that has sent and retryAfterMs as those of a gateway do. 0: the error says nothing of the
// kind.
func comeBack(err error) time.Duration {
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && wire.Cause == nil {
		if wire.Code != jsonrpc.Overloaded || string(scan.Member(wire.Data, "sent")) != `"no"` {
			return 0
		}
		ms, _ := strconv.ParseUint(string(scan.Member(wire.Data, "retryAfterMs")), 10, 31)
		return min(time.Duration(ms)*time.Millisecond, time.Hour)
	}
	if status, ok := errors.AsType[*mcphttp.StatusError](err); ok {
		switch status.Status {
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			return status.RetryAfter
		}
	}
	return 0
}

// failure makes the error of a call of that of its last attempt.
func (u *Upstream) failure(pc *pendingCall, err error) error {
	switch o := outcomeOf(pc, err); {
	case pc.failed != nil:
		return pc.failed
	case errors.Is(err, mcp.ErrAsked):
		return err
	// The caller would take an answer about the connection to the server for one about their own, and
	// give that up.
	case o == answered &&
		(errors.Is(err, spec.UnsupportedProtocolVersion) || errors.Is(err, spec.HeaderMismatch)):
		return u.fault(jsonrpc.InternalError, "unknown", false, err,
			"%s does not agree with the way in which it is called", u.opts.Name)
	case o == answered:
		wire, _ := errors.AsType[*jsonrpc.Error](err)
		return wire
	case o == given:
		return u.ended(pc)
	case o == unreachable:
		return u.unreached(err)
	case o == busy:
		code := jsonrpc.Unavailable
		if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
			code = wire.Code
		}
		return u.fault(code, "no", true, err,
			"%s takes no calls at the moment and has not begun %s; call it again in %v",
			u.opts.Name, pc.call.Method, comeBack(err))
	case o == unknown && pc.call.Idempotent:
		return u.fault(jsonrpc.Unavailable, "unknown", true, err,
			"the connection to %s failed while %s was under way; it changes nothing, so call it again",
			u.opts.Name, pc.call.Method)
	case o == unknown:
		return u.fault(jsonrpc.Unavailable, "unknown", false, err,
			"the connection to %s failed while %s was under way, which may or may not have had its "+
				"effect; find out before you call it again",
			u.opts.Name, pc.call.Method)
	case o == late:
		return u.fault(jsonrpc.Timeout, "unknown", pc.call.Idempotent, err,
			"%s did not answer %s in time", u.opts.Name, pc.call.Method)
	}
	return u.fault(jsonrpc.InternalError, "unknown", false, err, "%s could not be carried out by %s",
		pc.call.Method, u.opts.Name)
}

// ended is the error of a call with a context that has ended.
func (u *Upstream) ended(pc *pendingCall) error {
	return fmt.Errorf("upstream %s: %s: %w", u.opts.Name, pc.call.Method, pc.ctx.Err())
}

// unreached is the error of a call that the server has not seen.
func (u *Upstream) unreached(err error) error {
	return u.fault(jsonrpc.Unavailable, "no", true, err, "%s cannot be reached", u.opts.Name)
}

// brokenLocked is the error of a call that is not tried.
func (u *Upstream) brokenLocked(wait time.Duration) error {
	e := u.refusal(jsonrpc.Unavailable, "%s cannot be reached and is not tried again for now",
		u.opts.Name)
	if !u.opts.Plain() {
		e.Message += ": " + u.pool.lastError
	}
	e.Data = u.data("no", true, wait, nil)
	return e
}

func (u *Upstream) shuttingDown() error {
	return u.refusal(jsonrpc.ShuttingDown.Condition().Modern, "Shutting down: %s takes no more calls",
		u.opts.Name)
}

// Refused is the error of each call of a server that takes none: see Options.Held.
func (u *Upstream) Refused() error {
	e := u.refusal(jsonrpc.Unavailable, "%s %s", u.opts.Name, u.opts.Held)
	e.Data = u.data("no", false, 0, nil)
	return e
}

// refusal is the error of a call that is not made.
func (u *Upstream) refusal(code jsonrpc.Code, format string, args ...any) *jsonrpc.Error {
	err := fmt.Errorf(format, args...)
	return &jsonrpc.Error{
		Code: code, Message: err.Error(), Data: u.data("no", true, 0, nil),
		Cause: &wayError{err},
	}
}

// fault is the error of the way to the server, with its reason if callers may
// know it.
func (u *Upstream) fault(
	code jsonrpc.Code, sent string, retryable bool, cause error, format string, args ...any,
) *jsonrpc.Error {
	after, stderr := u.explain(cause)
	e := &jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...), Cause: &wayError{cause}}
	if u.opts.Plain() {
		stderr = nil
	} else {
		e.Message += ": " + textOf(cause)
	}
	e.Data = u.data(sent, retryable, after, stderr)
	return e
}

func (u *Upstream) data(
	sent string, retryable bool, after time.Duration, stderr []string,
) jsonrpc.Raw {
	raw := jsonrpc.AppendString(jsonrpc.Raw(`{"upstream":`), u.opts.Name)
	raw = append(raw, `,"sent":"`+sent+`","retryable":`...)
	raw = strconv.AppendBool(raw, retryable)
	if after > 0 {
		raw = append(raw, `,"retryAfterMs":`...)
		raw = strconv.AppendInt(raw, int64((after+time.Millisecond-1)/time.Millisecond), 10)
	}
	if len(stderr) > 0 {
		raw = append(raw, `,"stderr":[`...)
		for i, line := range stderr {
			if i > 0 {
				raw = append(raw, ',')
			}
			raw = jsonrpc.AppendString(raw, line)
		}
		raw = append(raw, ']')
	}
	return append(raw, '}')
}

// The lines of standard error in an error, and the bytes of its text, at most.
const (
	maxLines = 20
	maxText  = 500
)

// explain tells more about the failure of a connection.
func (u *Upstream) explain(err error) (after time.Duration, stderr []string) {
	if u.opts.Explain != nil {
		after, stderr = u.opts.Explain(err)
	}
	after = cmp.Or(after, comeBack(err))
	if exit, ok := errors.AsType[*stream.ExitError](err); ok && len(stderr) == 0 {
		if text := strings.TrimSpace(exit.Stderr); text != "" {
			stderr = strings.Split(visible.Log(text), "\n")
		}
	}
	return after, stderr[max(0, len(stderr)-maxLines):]
}

// textOf returns the text of an error without the secrets of an address.
func textOf(err error) string {
	text := wording.Text(err)
	if wire, ok := err.(*jsonrpc.Error); ok { //nolint:errorlint // one that is wrapped has a text around it
		text = wire.Message
	}
	if exit, ok := errors.AsType[*stream.ExitError](err); ok {
		text = strings.TrimPrefix(exit.Error(), "stream: ")
	}
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}
