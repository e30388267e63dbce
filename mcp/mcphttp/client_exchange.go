package mcphttp

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
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/cancel"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	// linger is how long an exchange that has its response waits for the end of
	// the event stream, so that the connection can be used again.
	linger = 20 * time.Millisecond
	// maxResumes bounds how many connections in a row may bring nothing before an
	// exchange gives its stream up: about a minute.
	maxResumes = 8
)

// Exchange posts a frame and gives the frames of the answer to reply: JSON, or
// the events of a stream until each request of the frame has its response.
//
// A legacy stream that ends before that is resumed where it broke off, by GET
// with Last-Event-ID, when the server has given its events ids. In a stateless
// revision the request is lost. When ctx ends, the stream is closed, and a
// legacy server gets notifications/cancelled.
//
// An answer other than 2xx is a [*StatusError], also when it has a JSON-RPC
// error, which that wraps; nothing is given to reply then. The error wraps
// [ErrSessionLost] when the session is gone, [ErrConnect], farcall.ErrProtocol
// when the answer is not MCP, or it is that of ctx or of reply.
func (c *Client) Exchange(ctx context.Context, frame []byte, reply func(frame []byte) error) error {
	st, err := c.now()
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	inner, cancel := c.bind(ctx)
	defer cancel()
	x := &trip{c: c, ctx: inner, cancel: cancel, st: st, reply: reply}
	// net/http may read a body after it has returned the response, but the frame
	// is lent for the exchange only.
	body := bytes.Clone(frame)
	x.out.read(body)
	switch {
	case st.events != nil:
		err = st.events.exchange(x, body)
	case len(x.out.open) == 0:
		err = c.oneWay(inner, func(ctx context.Context) error { return x.run(ctx, body) })
	default:
		stop := c.expect(x)
		err = x.run(inner, body)
		stop()
		err = x.withResponse(err)
	}
	switch {
	case err == nil:
		return nil
	case x.refused != nil:
		return x.refused
	case ctx.Err() != nil && !x.out.modern(&st) && !x.out.initialize:
		c.sendCancelled(ctx, st, x.out.open)
	}
	return c.ended(ctx, err)
}

// trip is one exchange that is under way.
type trip struct {
	c       *Client
	ctx     context.Context //nolint:containedctx // lives as long as the exchange
	cancel  context.CancelFunc
	st      state // when it began
	out     outgoing
	reply   func(frame []byte) error
	refused error       // by reply
	late    chan []byte // see expect
}

// expect has the response to a legacy request given to x when Listen meets it:
// some servers send it on a stream that was not opened for it.
func (c *Client) expect(x *trip) (stop func()) {
	if x.out.modern(&x.st) || x.out.method == nil || len(x.out.open) == 0 {
		return func() {}
	}
	x.late = make(chan []byte, 1)
	key := responseKey(x.out.open[0])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trips[key] = x
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.trips[key] == x {
			delete(c.trips, key)
		}
	}
}

// deliver gives a frame to the exchange that waits for it, if one does.
func (c *Client) deliver(frame []byte) bool {
	key := addressee(frame)
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.trips[key]
	if x == nil {
		return false
	}
	delete(c.trips, key)
	x.late <- frame
	x.cancel()
	return true
}

// withResponse ends an exchange that has failed with the response that was found
// elsewhere, if any.
func (x *trip) withResponse(err error) error {
	select {
	case frame := <-x.late:
		if len(x.out.open) > 0 {
			return x.give(frame)
		}
	default:
	}
	return err
}

func (x *trip) run(ctx context.Context, body []byte) error {
	resp, err := x.c.post(ctx, x.c.url, &x.out, &x.st, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	contentType := resp.Header.Get("Content-Type")
	switch {
	case !succeeded(resp):
		return x.c.statusError(resp, &x.st, !x.out.initialize)
	case x.out.initialize:
		if x.st.session, err = x.c.begin(resp); err != nil {
			return err
		}
	default:
		x.c.accepted(&x.st)
	}
	switch {
	case len(x.out.open) == 0, resp.StatusCode == http.StatusAccepted,
		resp.StatusCode == http.StatusNoContent:
		discard(resp)
		return nil
	case isEvents(contentType):
		return x.follow(resp)
	}
	var loan *budget.Loan // what holds an answer that may be large
	if resp.ContentLength < 0 || resp.ContentLength > budget.Free {
		large := budget.Lend(x.c.opts.Budget)
		loan = &large
	}
	defer loan.Close()
	answer, err := x.c.read(resp, loan)
	switch {
	case err != nil:
		return err
	case contentType == "" && looksJSON(answer), onhttp.MediaType(contentType) == onhttp.JSON:
		if err := onhttp.Complete(resp, answer, ErrConnect); err != nil {
			return err
		}
		return x.give(answer)
	}
	return &StatusError{
		Status: resp.StatusCode, ContentType: contentType,
		Body: answer[:min(len(answer), maxExcerpt)],
	}
}

// give hands a frame to the one that waits for it.
func (x *trip) give(frame []byte) error {
	x.out.strike(frame)
	x.refused = x.reply(frame)
	return x.refused
}

// follow reads the answer from an event stream, over as many connections as it
// takes.
func (x *trip) follow(resp *http.Response) error {
	var lingering *time.Timer
	s := eventStream{c: x.c, st: &x.st, tries: maxResumes}
	for {
		err := s.read(resp.Body, func(frame []byte) error {
			if err := x.give(frame); err != nil {
				return err
			}
			if len(x.out.open) == 0 && lingering == nil {
				lingering = time.AfterFunc(linger, x.cancel)
			}
			return nil
		})
		resp.Body.Close()
		if lingering != nil {
			lingering.Stop()
		}
		switch {
		case x.refused != nil:
			return x.refused
		case len(x.out.open) == 0:
			return nil
		case x.ctx.Err() != nil, errors.Is(err, farcall.ErrProtocol):
			return err
		case x.out.modern(&x.st):
			return fmt.Errorf(
				"%w: the event stream ended before the response and the request is lost; call again if that "+
					"does no harm: %w", ErrConnect, err)
		case s.lastID == "":
			return fmt.Errorf(
				"%w: the event stream ended before the response, and its events have no ids to "+
					"resume it by: %w", ErrConnect, err)
		}
		if resp, err = s.open(x.ctx, err); err != nil {
			return fmt.Errorf("the event stream ended before the response and cannot be resumed: %w", err)
		}
	}
}

// post sends a frame.
func (c *Client) post(
	ctx context.Context, to *url.URL, out *outgoing, st *state, body []byte,
) (*http.Response, error) {
	return c.do(ctx, func() (*http.Request, error) {
		r := c.request(ctx, http.MethodPost, to, body)
		return r, out.header(r.Header, st)
	})
}

// begin notes the session that the answer to an initialize gives, if any.
func (c *Client) begin(resp *http.Response) ([]string, error) {
	session := resp.Header[headerSession]
	if len(session) == 1 && session[0] == "" {
		session = nil
	}
	// 2025-11-25, Transports, "Session Management".
	if len(session) > 1 || len(session) == 1 && !visible(session[0]) {
		return nil,
			fmt.Errorf(
				"%w: the server gives the session %q, which is not one value of visible ASCII characters",
				farcall.ErrProtocol, session)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.st.session = session
	// of the session before
	c.st.lastEvent, c.st.resumeFrom, c.st.attached, c.st.detached = "", "", false, false
	return session, nil
}

// statusError returns the error of an answer other than 2xx. A 404 to a message
// of a session says that it is gone, unless it speaks of the method; and a 400
// where [Client.Attach] says so, unless it speaks of the request.
func (c *Client) statusError(resp *http.Response, st *state, inSession bool) error {
	e := newStatusError(resp)
	gone := false
	switch e.Status {
	case http.StatusNotFound:
		gone = e.RPC == nil || e.RPC.Code != jsonrpc.MethodNotFound
	case http.StatusBadRequest:
		gone = c.unproven(st) &&
			(e.RPC == nil || e.RPC.Code != jsonrpc.MethodNotFound && e.RPC.Code != jsonrpc.InvalidParams)
	}
	if gone && inSession && (st.session != nil || st.events != nil) {
		return fmt.Errorf("%w: %w", ErrSessionLost, e)
	}
	return e
}

func (c *Client) read(resp *http.Response, loan *budget.Loan) ([]byte, error) {
	body, err := loan.ReadAll(nil, resp.Body, resp.ContentLength, c.opts.MaxMessage, nil)
	if errors.Is(err, budget.ErrTooLarge) {
		return nil, fmt.Errorf("%w: the answer has more than %d bytes; raise DialOptions.MaxMessage",
			farcall.ErrProtocol, c.opts.MaxMessage)
	}
	return body, err
}

// sendCancelled tells a legacy server that the client does not wait for these requests any
// more. Its caller does not wait for it, Close does.
func (c *Client) sendCancelled(ctx context.Context, st state, ids [][]byte) {
	var frames [][]byte
	var why []byte
	if reason := cancel.Reason(ctx); reason != "" {
		why = jsonrpc.AppendString([]byte(`,"reason":`), reason)
	}
	for _, id := range ids {
		params := append(append(append([]byte(`{"requestId":`), id...), why...), '}')
		frames = append(frames,
			jsonrpc.V2.AppendRequest(nil, jsonrpc.ID{}, spec.NotificationCancelled, params))
	}
	c.spawn(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)() //nolint:contextcheck // Close ends it, too
		for _, frame := range frames {
			var out outgoing
			out.read(frame)
			to := c.url
			if st.events != nil {
				to = st.events.endpoint
			}
			if resp, err := c.post(ctx, to, &out, &st, frame); err == nil {
				discard(resp)
			}
		}
	})
}

func isEvents(contentType string) bool {
	return onhttp.MediaType(contentType) == sse.ContentType
}

// looksJSON reports whether a body without a Content-Type may be a message.
func looksJSON(body []byte) bool {
	i := scan.Space(body, 0)
	return i < len(body) && (body[i] == '{' || body[i] == '[')
}

var (
	// ErrConnect is wrapped by the failure of an exchange that reached no server, or
	// that lost its answer: the connection could not be made or did not last,
	// or a proxy could not reach the server (502, 503, 504).
	ErrConnect = errors.New("mcphttp: cannot reach the server")
	// ErrSessionLost is wrapped by the failure of an exchange in a session that
	// the server does not know, or knows no more. The next thing to send is
	// initialize.
	ErrSessionLost = errors.New("mcphttp: the server has ended the session")
)

// maxExcerpt bounds StatusError.Body.
const maxExcerpt = 4 << 10

// StatusError is an HTTP answer that does not carry an exchange: its status is
// not 2xx, or its content is neither JSON nor an event stream. It wraps the
// JSON-RPC error in its body when there is one, and otherwise
// farcall.ErrProtocol; and [ErrConnect] for 502, 503 and 504.
type StatusError struct {
	Status      int
	ContentType string
	Body        []byte         // its begin
	RPC         *jsonrpc.Error // the JSON-RPC error in the body, or nil
	// Challenge is the header WWW-Authenticate of a 401, which names the credentials that the server
	// wants (RFC 9110, section 11.6.1), at most 200 bytes of it. "": there is none.
	Challenge string
	// RetryAfter is what the header Retry-After says: at least a millisecond and at most an hour. 0:
	// the server does not say when to come back.
	RetryAfter time.Duration
}

// Error says what came. It does not guess why.
func (e *StatusError) Error() string {
	s := onhttp.Status(e.Status)
	if e.RPC != nil {
		return s + ": " + e.RPC.Error()
	}
	if e.Challenge != "" {
		s += fmt.Sprintf(" (the server wants credentials: %q)", e.Challenge)
	}
	if e.ContentType != "" {
		s += ", " + e.ContentType
	}
	return s + ": " + onhttp.Excerpt(e.Body)
}

// Unwrap returns the JSON-RPC error, or the class of the failure.
func (e *StatusError) Unwrap() []error {
	var wrapped []error
	if e.RPC != nil {
		wrapped = append(wrapped, e.RPC)
	}
	switch e.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return append(wrapped, ErrConnect)
	}
	if e.RPC == nil {
		wrapped = append(wrapped, farcall.ErrProtocol)
	}
	return wrapped
}

// newStatusError reads the begin of the body, which it does not close.
func newStatusError(resp *http.Response) *StatusError {
	const most = 1 << 20 // more is no error message
	e := &StatusError{
		Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"),
		Challenge:  onhttp.Challenge(resp),
		RetryAfter: backoff.RetryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
	var loan *budget.Loan // so little needs none
	body, err := loan.ReadAll(nil, resp.Body, min(resp.ContentLength, most), most, nil)
	if err == nil {
		e.RPC = errorIn(body)
	}
	e.Body = body[:min(len(body), maxExcerpt)]
	return e
}

// errorIn returns the error of a body that is a JSON-RPC answer. In an answer
// to no request in particular the id may be missing (Streamable HTTP, "Sending
// Messages").
func errorIn(body []byte) *jsonrpc.Error {
	var answer struct {
		Version string         `json:"jsonrpc"`
		Error   *jsonrpc.Error `json:"error"`
	}
	if err := jsonv2.Unmarshal(body, &answer); err == nil && answer.Version == "2.0" {
		return answer.Error
	}
	return nil
}

// classify gives an error of net/http its class, and says what to do about it.
func classify(err error) error {
	var (
		auth   *authError
		status *StatusError
		dns    *net.DNSError
		record tls.RecordHeaderError
		cert   *tls.CertificateVerificationError
		hint   string
	)
	switch {
	case errors.As(err, &auth), errors.As(err, &status), errors.Is(err, farcall.ErrProtocol),
		errors.Is(err, ErrConnect), errors.Is(err, budget.ErrNoRoom),
		errors.Is(err, farcall.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		// http.Client.Timeout
		return err
	case strings.Contains(err.Error(), "malformed HTTP"): // net/http has no type for it
		return fmt.Errorf("%w: not an HTTP server: %w", farcall.ErrProtocol, err)
	case strings.Contains(err.Error(), "server response headers exceeded"): // nor for this
		return fmt.Errorf("%w: %w", farcall.ErrProtocol, err)
	case errors.As(err, &record),
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		hint = "it does not speak TLS: "
	case errors.As(err, &cert) && errors.As(err, new(x509.UnknownAuthorityError)):
		hint = "its certificate is not signed by an authority known here; if it is meant, set " +
			"DialOptions.TLS.RootCAs: "
	case errors.As(err, &cert):
		hint = "its certificate is not valid for it: "
	case errors.As(err, &dns):
		hint = "its name is not known: "
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = "no server listens there: "
	case errors.Is(err, io.ErrUnexpectedEOF):
		hint = "the answer is incomplete: "
	}
	return fmt.Errorf("%w: %s%w", ErrConnect, hint, err)
}

// transient reports whether the same request may succeed in a moment.
func transient(err error) bool {
	if status, ok := errors.AsType[*StatusError](err); ok {
		switch status.Status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError:
			return true
		}
	}
	return errors.Is(err, ErrConnect)
}
