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
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// attempts is how many connections may end under a call that was not sent before
// it is given up.
const attempts = 3

// ServeRPC makes the call, or sends the notification, over the shared
// connection, or an exchange. It implements [farcall.Handler].
//
// Results, and errors with their data, are passed on as they came. Progress is
// passed on when the caller asks for it, and a trace context always; of other
// members of the message that JSON-RPC does not define nothing is known here. What
// the upstream asks or notifies reaches the caller from an Exchanger, for that
// belongs to a call; over a shared connection its call is not known:
// requests are answered with -32601, notifications dropped. So is a notification
// that cancels: its id means nothing here. A call is cancelled by its context.
//
// A call that was surely not sent, because the connection had ended, is made
// again on a new one.
func (u *Upstream) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	if !u.begin() {
		return nil, u.failure(errShuttingDown, false)
	}
	defer u.work.Done()
	front := ctx
	ctx, cancel := context.WithTimeout(ctx, u.opts.Timeout)
	defer cancel()
	defer context.AfterFunc(u.ctx, cancel)()
	if u.client != nil {
		ctx = context.WithValue(ctx, frontKey{}, ctx)
	}
	if req.IsNotification() {
		if err := u.notify(ctx, req); err != nil {
			return nil, &wayError{err}
		}
		return nil, nil
	}
	u.meter.begin()
	began := time.Now()
	var result jsonrpc.Raw
	var err error
	if scarce, ok := u.serving.enter(ctx); ok {
		result, err = u.call(ctx, front, req)
		u.serving.leave(scarce)
	} else {
		err = u.failure(errFull, false)
	}
	u.meter.end(err != nil, time.Since(began))
	if err != nil {
		return nil, err
	}
	return result, nil
}

// notify passes a notification on.
func (u *Upstream) notify(ctx context.Context, req *farcall.Request) error {
	var err error
	switch req.Method {
	case cancelMethod, "notifications/cancelled":
		u.meter.dropped.Add(1)
		return nil
	}
	if u.client != nil {
		err = u.client.Notify(ctx, req.Method, req.Params)
	} else {
		var l *line
		if l, err = u.lineOf(ctx); err == nil {
			err = l.peer.Notify(ctx, req.Method, req.Params)
			u.done(l)
		}
	}
	if err != nil {
		u.meter.dropped.Add(1)
	}
	return err
}

// lineOf returns the line for a call. It is to be given back to done.
func (u *Upstream) lineOf(ctx context.Context) (*line, error) {
	p, _ := ctx.Value(pipeKey{}).(*pipe)
	switch {
	case u.opts.Lifetime == "call":
		return u.open(ctx, u.asked)
	case p != nil && u.opts.Lifetime != "shared":
		return p.line(ctx)
	}
	return u.shared(ctx)
}

func (u *Upstream) done(l *line) {
	if u.opts.Lifetime == "call" {
		u.work.Go(l.close) // anyone who calls is booked
	}
}

// call makes a call. Its errors are those to answer with.
func (u *Upstream) call(ctx, front context.Context, req *farcall.Request) (jsonrpc.Raw, error) {
	if u.client != nil {
		result, err := u.exchange(ctx, front, req)
		u.outcome(ctx, err)
		return result, u.explain(ctx, front, err, !neverSent(err))
	}
	for n := 1; ; n++ {
		l, err := u.lineOf(ctx)
		if err != nil {
			return nil, u.explain(ctx, front, err, false)
		}
		mark := l.tap.writes.Load()
		result, err := u.over(ctx, front, l, req)
		sent := l.tap.writes.Load() != mark
		if errors.Is(err, farcall.ErrClosed) {
			// The end of a child is known to the writing or the reading, whichever found it out first.
			if cause := l.tap.cause(); cause != nil {
				err = fmt.Errorf("%w: %w", err, cause)
			}
		}
		u.done(l)
		if sent || n == attempts || !errors.Is(err, farcall.ErrClosed) {
			return result, u.explain(ctx, front, err, sent)
		}
	}
}

// explain turns the failure of a call into the error to answer with.
func (u *Upstream) explain(ctx, front context.Context, err error, sent bool) error {
	switch wire := new(jsonrpc.Error); {
	case err == nil:
		return nil
	case errors.As(err, &wire):
		return farcall.PassOn(err) // the upstream's
	case front.Err() != nil:
		return front.Err() // no caller waits
	case u.ctx.Err() != nil:
		return u.failure(errShuttingDown, sent)
	case ctx.Err() != nil:
		return u.failure(fmt.Errorf("%w: %w", ctx.Err(), err), sent)
	}
	return u.failure(err, sent)
}

// wantsProgress says where the caller of a call wants its progress marked.
func wantsProgress(req *farcall.Request) (member, meta bool) {
	return req.Member("progressToken") != nil,
		scan.Member(scan.Member(req.Params, "_meta"), "progressToken") != nil
}

// over makes a call over a line.
func (u *Upstream) over(
	ctx, front context.Context, l *line, req *farcall.Request,
) (result jsonrpc.Raw, err error) {
	member, meta := wantsProgress(req)
	params := req.Params
	if !member && !meta {
		err = l.peer.Call(ctx, req.Method, params, &result)
		return result, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := newProgress(cancel)
	if member {
		ctx = farcall.OnProgress(ctx, q.put)
	}
	if meta {
		token, stop := l.tap.token(q.put)
		defer stop()
		params = replaced(params, "_meta", func(meta []byte) []byte {
			return replaced(meta, "progressToken", func([]byte) []byte { return token })
		})
	}
	pumped := make(chan struct{})
	go func() { defer close(pumped); q.pump(front) }()
	err = l.peer.Call(ctx, req.Method, params, &result)
	q.end()
	<-pumped
	if err != nil && q.failed() != nil {
		err = q.failed()
	}
	return result, err
}

// exchange makes a call by an exchange.
func (u *Upstream) exchange(
	ctx, front context.Context, req *farcall.Request,
) (result jsonrpc.Raw, err error) {
	if member, _ := wantsProgress(req); member {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		// It may block: who reads here reads for this call alone.
		ctx = farcall.OnProgress(ctx, func(value jsonrpc.Raw) {
			if farcall.Progress(front, value) != nil {
				cancel()
			}
		})
	}
	err = u.client.Call(ctx, req.Method, req.Params, &result)
	return result, err
}

// outcome notes how an exchange went.
func (u *Upstream) outcome(ctx context.Context, err error) {
	switch {
	case err == nil || errors.As(err, new(*jsonrpc.Error)):
		u.health.set("up", nil)
	case ctx.Err() == nil || errors.Is(err, context.DeadlineExceeded):
		u.health.set("down", err)
	}
}

// frontKey is where the context of an exchange holds that of its caller.
type frontKey struct{}

// asked answers what the upstream asks, or passes it on to the one that it concerns.
func (u *Upstream) asked(ctx context.Context, req *farcall.Request) (any, error) {
	front, _ := ctx.Value(frontKey{}).(context.Context)
	switch {
	case front == nil && req.IsNotification():
		u.meter.dropped.Add(1)
		return nil, nil
	case front == nil:
		return nil, &jsonrpc.Error{
			Code: jsonrpc.MethodNotFound, Message: "Method not found",
			Cause: errors.New("raw: over a connection that clients share, none of them can be asked"),
		}
	}
	return u.pass(front, farcall.CallerFrom(front), req)
}

// pass passes what the upstream asks on to a client.
func (u *Upstream) pass(
	ctx context.Context, client farcall.Caller, req *farcall.Request,
) (any, error) {
	if req.IsNotification() {
		err := client.Notify(ctx, req.Method, req.Params)
		if err != nil {
			u.meter.dropped.Add(1)
		}
		return nil, err
	}
	var result jsonrpc.Raw
	err := client.Call(ctx, req.Method, req.Params, &result)
	if errors.Is(err, farcall.ErrNoCallback) {
		err = &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "Method not found", Cause: err}
	}
	return result, farcall.PassOn(err)
}

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
	return fmt.Sprintf("raw: not tried again for another %v: %v", e.after.Round(time.Millisecond),
		e.err)
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
		e.Message = "The upstream " + u.opts.Name +
			" takes no calls at the moment and has not begun this one; call it again in " +
			comeBack(cause).String()
	case errors.Is(cause, farcall.ErrProtocol):
		e.Code, e.Message = jsonrpc.InternalError,
			"The upstream "+u.opts.Name+" has answered what is no JSON-RPC"
	case sent:
		e.Message = "The upstream " + u.opts.Name +
			" went away; whether the call had an effect is not known"
	default:
		e.Message = "The upstream " + u.opts.Name + " cannot be reached; the call was not sent"
	}
	data := jsonrpc.AppendString([]byte(`{"upstream":`), u.opts.Name)
	switch {
	case errors.Is(cause, errShuttingDown):
		data = append(data, `,"reason":"the gateway is shutting down"`...)
	case errors.Is(cause, errFull):
		data = fmt.Appendf(data,
			`,"reason":"the limit of %d calls in flight at the upstream, or the caller's share `+
				`of it, is reached"`, u.opts.MaxInFlight)
	case errors.Is(cause, errCrowded):
		data = fmt.Appendf(data,
			`,"reason":"the limit of %d connections to the upstream, or the caller's share `+
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
