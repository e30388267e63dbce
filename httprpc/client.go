package httprpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/oneway"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// linger is how long what needs no answer goes on when its context has ended.
const linger = 2 * time.Second

// Dial returns the calling end for farcall.NewClient. It fails when the address is no http or https
// URL, unless Options.Client sends others; nothing is connected before the first call.
//
// Calls fail with an error that wraps [ErrConnect], context.DeadlineExceeded or
// farcall.ErrProtocol, see there.
func Dial(address string, o *Options) (farcall.Exchanger, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("httprpc: %w", err)
	}
	others := o != nil && o.Client != nil
	if u.Scheme != "http" && u.Scheme != "https" && !others || u.Host == "" {
		return nil, fmt.Errorf("httprpc: %q is not a URL like http://host:port/path", address)
	}
	opts := o.withDefaults()
	opts.Budget = budget.Named(opts.Budget, "server "+u.Host) // its answers have one share
	c := &client{url: u.String(), opts: opts, header: opts.Header.Clone()}
	if c.header == nil {
		c.header = http.Header{}
	}
	c.header["Content-Type"] = onhttp.JSONHeader
	c.header["Accept"] = []string{acceptBoth}
	if opts.Client != nil {
		c.http = *opts.Client
	} else {
		own := onhttp.Transport()
		own.DisableCompression = true // net/http asks for it unasked
		c.http.Transport, c.own = own, own
	}
	switch {
	case opts.Gzip:
		c.header["Accept-Encoding"] = gzipHeader
	case opts.Client != nil && c.header["Accept-Encoding"] == nil:
		c.header["Accept-Encoding"] = []string{"identity"} // or its transport asks for gzip
	}
	c.http.CheckRedirect = checkRedirect
	//nolint:forbidigo // a client lives until it is closed, not as long as the call that made it
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

type client struct {
	url    string
	opts   Options
	header http.Header
	http   http.Client
	own    *http.Transport // to be closed with the client
	ctx    context.Context //nolint:containedctx // ends when the client is closed
	cancel context.CancelFunc

	mu    sync.Mutex
	tasks sync.WaitGroup // what is sent, and not waited for

	takesGzip atomic.Bool // the server has said that it reads requests in gzip
}

// Close ends the calls that are under way.
func (c *client) Close() error {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.tasks.Wait()
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

// Exchange posts a frame and gives the frames of the answer to reply.
func (c *client) Exchange(ctx context.Context, frame []byte, reply func(frame []byte) error) error {
	if c.ctx.Err() != nil {
		return farcall.ErrClosed
	}
	var refused error
	giving := func(frame []byte) error {
		refused = reply(frame)
		return refused
	}
	var err error
	if unanswered(frame) {
		err = c.tell(ctx, bytes.Clone(frame), giving)
	} else {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)() //nolint:contextcheck // Close ends the call, too
		body := &requestBody{frame: frame}
		defer body.detach()
		err = c.roundTrip(inner, body, giving)
	}
	switch {
	case err == nil:
		return nil
	case refused != nil:
		return refused
	case ctx.Err() != nil:
		return ctx.Err()
	case c.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", farcall.ErrClosed, err)
	}
	return classify(err)
}

// roundTrip posts a body and reads the response.
func (c *client) roundTrip(
	ctx context.Context, body *requestBody, reply func(frame []byte) error,
) error {
	resp, err := c.send(ctx, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.answer(resp, reply)
}

// tell posts a frame that needs no answer. Should one come, it is given to reply, but not once tell
// has returned.
func (c *client) tell(ctx context.Context, frame []byte, reply func(frame []byte) error) error {
	var mu sync.Mutex
	gone := false
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		gone = true
	}()
	return oneway.Send(ctx, c.ctx, linger, c.start, farcall.ErrClosed, func(ctx context.Context) error { //nolint:contextcheck // Close ends it, too
		return c.roundTrip(ctx, &requestBody{frame: frame}, func(frame []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if gone {
				return errDetached
			}
			return reply(frame)
		})
	})
}

// unanswered reports whether a frame is a notification, or an answer.
func unanswered(frame []byte) bool {
	i := scan.Space(frame, 0)
	return i < len(frame) && frame[i] == '{' &&
		(scan.Member(frame, "id") == nil || scan.Member(frame, "method") == nil)
}

// start begins what Close waits for, unless that has begun.
func (c *client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.tasks.Go(f)
	return true
}

// send posts a body, compressed where the server takes that.
func (c *client) send(ctx context.Context, body *requestBody) (*http.Response, error) {
	if c.opts.Gzip && c.takesGzip.Load() {
		if z := compressed(body.frame); z != nil {
			resp, err := c.post(ctx, &requestBody{frame: z, gzipped: true})
			if err != nil || resp.StatusCode != http.StatusUnsupportedMediaType {
				return resp, err
			}
			_ = resp.Body.Close() // it no longer does, and has not read it
			c.takesGzip.Store(false)
		}
	}
	return c.post(ctx, body)
}

// oneWrite is the largest body that net/http sends in one write with its head, if it is a
// *bytes.Reader. Of other bodies it sends the head first: a second write for each call, which
// fails when the server answers the head alone, and hides that answer.
const oneWrite = 2 << 10

func (c *client) post(ctx context.Context, body *requestBody) (*http.Response, error) {
	var from io.Reader = body
	if len(body.frame) <= oneWrite {
		from = bytes.NewReader(bytes.Clone(body.frame)) // NewRequest knows it, and how to read it again
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, from)
	if err != nil {
		return nil, err
	}
	if from == io.Reader(body) {
		req.ContentLength = int64(len(body.frame))
		req.GetBody = func() (io.ReadCloser, error) { return body.again(), nil }
	}
	maps.Copy(req.Header, c.header)
	if body.gzipped {
		req.Header["Content-Encoding"] = gzipHeader
	}
	req.Host = c.header.Get("Host") // net/http ignores the header itself; empty means that of the URL
	farcall.TraceFrom(ctx).SetHeader(req.Header)
	return c.http.Do(req)
}

// answer reads a response.
func (c *client) answer(resp *http.Response, reply func(frame []byte) error) error {
	if err := c.decode(resp); err != nil {
		return err
	}
	contentType := resp.Header.Get("Content-Type")
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	switch {
	case ok && (resp.StatusCode == http.StatusNoContent || resp.ContentLength == 0):
		return nil
	case ok && onhttp.MediaType(contentType) == mediaSSE:
		return c.stream(resp, reply)
	case !ok:
		return c.failed(resp, reply)
	}
	loan := c.lend(resp)
	defer loan.Close()
	body, err := c.read(resp, loan)
	switch {
	case err != nil:
		return err
	case firstByte(body) == 0:
		return nil // 202 as a rule
	case !c.takes(contentType):
		return fmt.Errorf("%w: the answer is %s instead of JSON: %s", farcall.ErrProtocol, contentType,
			onhttp.Excerpt(body))
	}
	if err := onhttp.Complete(resp, body, ErrConnect); err != nil {
		return err
	}
	return reply(body)
}

// takes reports whether an answer of that media type is read as JSON. Many servers
// call theirs text/plain, or by their own type.
func (c *client) takes(contentType string) bool {
	if contentType == "" || isJSON(contentType) {
		return true
	}
	t := onhttp.MediaType(contentType)
	return !c.opts.StrictAnswers && (t == "text/plain" || strings.HasSuffix(t, "/json") ||
		strings.HasSuffix(t, "+json") || isJSON(t))
}

// lend returns what holds an answer that may be large, else nil.
func (c *client) lend(resp *http.Response) *budget.Loan {
	if resp.ContentLength >= 0 && resp.ContentLength <= budget.Free {
		return nil
	}
	loan := budget.Lend(c.opts.Budget)
	return &loan
}

func (c *client) read(resp *http.Response, loan *budget.Loan) ([]byte, error) {
	body, err := loan.ReadAll(nil, resp.Body, resp.ContentLength, c.opts.MaxMessage, nil)
	if errors.Is(err, budget.ErrTooLarge) {
		return nil, fmt.Errorf("%w: the answer has more than %d bytes; raise Options.MaxMessage",
			farcall.ErrProtocol, c.opts.MaxMessage)
	}
	return body, err
}

// stream reads an answer that is an event stream.
func (c *client) stream(resp *http.Response, reply func(frame []byte) error) error {
	loan := budget.Lend(c.opts.Budget)
	defer loan.Close()
	r := sse.NewReader(resp.Body, c.opts.MaxEvent, &loan)
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, sse.ErrTooLarge):
			return fmt.Errorf("%w: %w; raise Options.MaxEvent", farcall.ErrProtocol, err)
		case err == io.EOF: //nolint:errorlint // the reader returns it bare; a wrapped one is a broken connection
			return nil
		case err != nil:
			return err
		case len(e.Data) == 0 || e.Type != "" && e.Type != "message":
			continue // a keep-alive, or not meant for us
		case string(e.Data) == "[DONE]":
			return nil
		}
		if err := reply(e.Data); err != nil {
			return err
		}
	}
}

// failed handles a status other than 2xx. A JSON-RPC answer counts all the
// same; the status is for those who wait for no answer.
func (c *client) failed(resp *http.Response, reply func(frame []byte) error) error {
	status := &StatusError{
		Code: resp.StatusCode, Challenge: onhttp.Challenge(resp),
		RetryAfter: backoff.RetryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
	loan := c.lend(resp)
	defer loan.Close()
	body, err := c.read(resp, loan)
	status.Body = onhttp.Excerpt(body)
	if err == nil && c.takes(resp.Header.Get("Content-Type")) && isAnswer(body) {
		if err := reply(body); err != nil {
			return err
		}
	}
	return status
}

// isAnswer reports whether a body is a JSON-RPC answer.
func isAnswer(body []byte) bool {
	var d jsonrpc.Decoder
	var b jsonrpc.Batch
	return d.Decode(body, &b) == nil && len(b.Messages) > 0 && b.Messages[0].Kind == jsonrpc.Response
}

// requestBody is a frame on its way out. net/http may read a body after it has
// returned the response, but the frame is lent for the exchange only: after
// detach the client does not read it.
type requestBody struct {
	mu    sync.Mutex
	frame []byte
	at    int
	gone  bool
	next  *requestBody // the same frame, sent again

	gzipped bool // frame is not the one that is lent
}

var errDetached = errors.New("httprpc: the exchange has ended")

func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.gone:
		return 0, errDetached
	case b.at == len(b.frame):
		return 0, io.EOF
	}
	n := copy(p, b.frame[b.at:])
	b.at += n
	return n, nil
}

func (b *requestBody) Close() error { return nil }

// again returns the body from its start, for a redirect or a second attempt.
func (b *requestBody) again() *requestBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = &requestBody{frame: b.frame, gone: b.gone, next: b.next}
	return b.next
}

func (b *requestBody) detach() {
	for b != nil {
		b.mu.Lock()
		b.gone = true
		next := b.next
		b.mu.Unlock()
		b = next
	}
}

// checkRedirect lets a POST follow a redirect that keeps it a POST (307, 308)
// to the same host, or from http to https there. Anything else would turn the
// call into a GET, or hand it, with its credentials, to another server.
func checkRedirect(req *http.Request, via []*http.Request) error {
	from := via[len(via)-1].URL
	sameScheme := req.URL.Scheme == from.Scheme && req.URL.Host == from.Host
	upgrade := from.Scheme == "http" && req.URL.Scheme == "https" &&
		req.URL.Hostname() == from.Hostname()
	switch {
	case req.Method != http.MethodPost:
		return fmt.Errorf("%w: the server redirects to %s and loses the request; use that address",
			farcall.ErrProtocol, req.URL.Redacted())
	case !sameScheme && !upgrade:
		return fmt.Errorf("%w: the server redirects to %s, another host; use that address if it is meant",
			farcall.ErrProtocol, req.URL.Redacted())
	case len(via) >= 10:
		return fmt.Errorf("%w: more than 10 redirects", farcall.ErrProtocol)
	}
	return nil
}

// ErrConnect is wrapped by the failure of a call that reached no server: the
// connection could not be made, it broke before the answer was complete, or a
// proxy could not reach the server (502, 503, 504).
//
// A call that took too long fails with context.DeadlineExceeded, and one with an
// answer that is not JSON-RPC over HTTP with farcall.ErrProtocol.
var ErrConnect = errors.New("httprpc: cannot reach the server")

// StatusError is an HTTP status without a JSON-RPC answer. It wraps
// farcall.ErrProtocol, or [ErrConnect] for 502, 503 and 504.
type StatusError struct {
	Code int    // the HTTP status
	Body string // the begin of the body, quoted
	// Challenge is the header WWW-Authenticate of a 401, which names the credentials that the server
	// wants (RFC 9110, section 11.6.1), at most 200 bytes of it. "": there is none.
	Challenge string
	// RetryAfter is what the header Retry-After says: at least a millisecond and at most an hour. 0:
	// the server does not say when to come back.
	RetryAfter time.Duration
}

// Error says what came. It does not guess why.
func (e *StatusError) Error() string {
	s := onhttp.Status(e.Code)
	if e.Challenge != "" {
		s += fmt.Sprintf(" (the server wants credentials: %q)", e.Challenge)
	}
	return s + ": " + e.Body
}

// Unwrap returns the class of the failure.
func (e *StatusError) Unwrap() error {
	switch e.Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ErrConnect
	}
	return farcall.ErrProtocol
}

// classify gives an error of net/http its class.
func classify(err error) error {
	switch {
	case errors.Is(err, farcall.ErrProtocol), errors.Is(err, ErrConnect),
		errors.Is(err, budget.ErrNoRoom),
		errors.Is(err, context.DeadlineExceeded): // http.Client.Timeout
		return err
	case errors.Is(err, errGzip):
		return fmt.Errorf("%w: %w", farcall.ErrProtocol, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the answer is incomplete: %w", ErrConnect, err)
	case strings.Contains(err.Error(), "malformed"): // net/http has no type for it
		return fmt.Errorf("%w: not an HTTP server: %w", farcall.ErrProtocol, err)
	}
	return fmt.Errorf("%w: %w", ErrConnect, err)
}
