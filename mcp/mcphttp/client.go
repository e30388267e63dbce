package mcphttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/oneway"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/internal/wirelog"
	"github.com/farcall-dev/farcall/mcp/era"
)

const (
	// maxChallenges bounds how often one request is sent again with better
	// credentials: once for the first, once for wider ones.
	maxChallenges = 3
	// endTimeout bounds what Close, and a call that was cancelled, still send.
	endTimeout = 2 * time.Second
)

// A Client is the calling end of MCP over HTTP, in every revision. It is a
// farcall.Exchanger, and may be used by any number of goroutines at once.
type Client struct {
	url    *url.URL
	opts   DialOptions
	header http.Header // of every request
	http   http.Client
	own    *http.Transport // to be closed with the client
	ctx    context.Context //nolint:containedctx // ends when the client is closed
	cancel context.CancelFunc
	tasks  sync.WaitGroup // goroutines of the client's own

	mu     sync.Mutex
	closed bool
	st     state
	trips  map[string]*trip // see expect
}

// state is what the client knows of the server at one moment. It is copied, and
// what it holds is never changed.
type state struct {
	rev     *era.Revision
	version []string // rev's name, as the value of a header
	session []string // the session, as the value of a header; nil: none
	events  *eventChannel

	lastEvent string // the last event of the session that Listen has handled; "": none
	// the last event that an earlier client has handled, for the first Listen; "": none
	resumeFrom string
	attached   bool // the session is from Attach, and the server has accepted no request in it yet
	detached   bool // Close leaves the session on the server
}

// legacyHeader adds what every legacy request but initialize carries.
func (st *state) legacyHeader(h http.Header) {
	if st.session != nil {
		h[headerSession] = st.session
	}
	if st.rev != nil && st.rev.VersionHeader {
		h[headerVersion] = st.version
	}
}

// Use says which revision is spoken from now on; nil: none is agreed upon. A
// message with params._meta that names a revision has headers of that.
func (c *Client) Use(rev *era.Revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.st.rev, c.st.version = rev, nil
	if rev != nil {
		c.st.version = []string{rev.Name}
	}
}

// Session returns the id of the legacy session, or "". When an exchange fails
// with [ErrSessionLost] and the session has changed meanwhile, another call has
// begun a new one already.
func (c *Client) Session() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.st.session == nil {
		return ""
	}
	return c.st.session[0]
}

// Detach makes Close leave the legacy session with that id on the server, so that
// another Client, or another process, can go on with it; see [Client.Attach]. It
// sends nothing. It returns the id of the last event that Listen has handled, or
// "". It fails with [ErrSessionLost] when the client is in another session, and
// with farcall.ErrClosed after Close.
func (c *Client) Detach(session string) (lastEvent string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return "", farcall.ErrClosed
	case len(c.st.session) == 0 || c.st.session[0] != session:
		return "", ErrSessionLost
	}
	c.st.detached = true
	return c.st.lastEvent, nil
}

// Attach makes a client that has sent nothing yet go on with the legacy session of
// an earlier client: its [Client.Detach] has returned lastEvent. The first Listen
// asks the server for the events after that one, and for later events only when the
// server does not keep them. [Client.Use] says which revision the session has.
// Attach sends nothing. It fails when an id is not valid in a header.
//
// Until the server has accepted a request in the session, 400 means
// [ErrSessionLost], too: many servers answer it, in place of 404, to a session that
// they do not know.
func (c *Client) Attach(session, lastEvent string) error {
	switch {
	case !visible(session):
		return errors.New(
			"mcphttp: the id of the session is not valid: it must be visible ASCII characters")
	case !validEventID(lastEvent):
		return fmt.Errorf(
			"mcphttp: the id of the event is not valid: it must be printable ASCII characters, at most %d",
			maxEventID)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.st.session, c.st.attached = []string{session}, true
	c.st.lastEvent, c.st.resumeFrom = lastEvent, lastEvent
	return nil
}

// takeResumeFrom returns the last event that an earlier client has handled, to the
// first caller only.
func (c *Client) takeResumeFrom() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	event := c.st.resumeFrom
	c.st.resumeFrom = ""
	return event
}

// handled stores the id of the last event that Listen has handled in a session.
func (c *Client) handled(session []string, event string) {
	if !validEventID(event) {
		event = "" // a later client gets later events only
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Equal(c.st.session, session) {
		c.st.lastEvent = event
	}
}

// accepted stores that the server knows the session of a request.
func (c *Client) accepted(st *state) {
	if !st.attached {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Equal(c.st.session, st.session) {
		c.st.attached = false
	}
}

// unproven reports whether the session of a request is from Attach and the server
// has accepted no request in it, or has begun another one meanwhile.
func (c *Client) unproven(st *state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return st.attached && (c.st.attached || !slices.Equal(c.st.session, st.session))
}

// EndSession tells the server that the legacy session is needed no more. It
// does nothing when there is none. A server that does not let clients end
// sessions, or has forgotten this one, is no failure.
func (c *Client) EndSession(ctx context.Context) error {
	c.mu.Lock()
	st := c.st
	c.st.session = nil
	c.mu.Unlock()
	if st.session == nil {
		return nil
	}
	resp, err := c.do(ctx, func() (*http.Request, error) {
		r := c.request(ctx, http.MethodDelete, c.url, nil)
		st.legacyHeader(r.Header)
		return r, nil
	})
	if err != nil {
		return classify(err)
	}
	defer discard(resp)
	if succeeded(resp) || resp.StatusCode == http.StatusMethodNotAllowed ||
		resp.StatusCode == http.StatusNotFound {
		return nil
	}
	return newStatusError(resp)
}

// Close ends the exchanges and streams that are under way, and then the session,
// for which it waits two seconds at most. After [Client.Detach] it leaves the
// session on the server. It is safe to call more than once.
func (c *Client) Close() error {
	c.mu.Lock()
	was, detached := c.closed, c.st.detached
	c.closed = true
	c.mu.Unlock()
	if was {
		c.tasks.Wait()
		return nil
	}
	c.cancel()
	if !detached {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), endTimeout)
		defer cancel()
		_ = c.EndSession(ctx) // the client has ended: no caller can handle it
	}
	c.tasks.Wait()
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

// now returns what is known of the server.
func (c *Client) now() (state, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return state{}, farcall.ErrClosed
	}
	return c.st, nil
}

// spawn runs f in a goroutine that Close waits for, unless that has begun.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.tasks.Go(f)
	}
	return !c.closed
}

// bind returns a context that ends with ctx and with the client.
func (c *Client) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel) //nolint:contextcheck // Close ends it, too
	return inner, func() {
		stop()
		cancel()
	}
}

// oneWay runs send, which sends what is answered without a body. It may go on when ctx has ended.
func (c *Client) oneWay(ctx context.Context, send func(context.Context) error) error {
	return oneway.Send(ctx, c.ctx, endTimeout, c.spawn, farcall.ErrClosed, send) //nolint:contextcheck // Close ends it, too
}

// ended says why something that was bound to ctx and the client has failed, in
// the words of anyone who has ended it.
func (c *Client) ended(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case c.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", farcall.ErrClosed, err)
	}
	return classify(err)
}

// request returns a request with the headers that all have. The body must not
// change any more.
func (c *Client) request(
	ctx context.Context, method string, u *url.URL, body []byte,
) *http.Request {
	r := &http.Request{
		Method: method, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header, len(c.header)+8),
	}
	maps.Copy(r.Header, c.header)
	if more, ok := ctx.Value(headerKey{}).(http.Header); ok {
		maps.Copy(r.Header, more)
	}
	if host := c.header.Get("Host"); host != "" {
		r.Host = host // net/http ignores the header itself
	}
	farcall.TraceFrom(ctx).SetHeader(r.Header)
	if body != nil {
		r.Header["Content-Type"] = onhttp.JSONHeader
		r.Header["Accept"] = bothHeader
		// net/http sends a bytes.Reader in one piece with the headers.
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return r.WithContext(ctx)
}

// The values are shared by all requests, and net/http does not change them.
var (
	bothHeader   = []string{"application/json, text/event-stream"}
	eventsHeader = []string{"text/event-stream"}
)

// do sends a request, with credentials, and again when the server asks for
// better ones. The caller closes the body.
func (c *Client) do(
	ctx context.Context, build func() (*http.Request, error),
) (*http.Response, error) {
	auth := c.opts.Authorize
	for try := 0; ; try++ {
		r, err := build()
		if err != nil {
			return nil, err
		}
		if auth != nil {
			u := *r.URL // all requests share it, and the Authorizer may change its own
			r.URL = &u
			if err := auth.Authorize(ctx, r); err != nil {
				return nil, &authError{err}
			}
		}
		resp, err := c.http.Do(r)
		refused := err == nil &&
			(resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden)
		if auth == nil || !refused || try == maxChallenges {
			return resp, err
		}
		again, err := auth.Challenge(ctx, resp)
		if err != nil {
			resp.Body.Close()
			return nil, &authError{err}
		}
		if !again {
			return resp, nil
		}
		discard(resp)
	}
}

// authError keeps classify from taking an Authorizer's failure for one of the
// connection.
type authError struct{ err error }

func (e *authError) Error() string {
	return "mcphttp: cannot authorize the request: " + e.err.Error()
}
func (e *authError) Unwrap() error { return e.err }

func succeeded(r *http.Response) bool { return r.StatusCode >= 200 && r.StatusCode < 300 }

// discard ends an unneeded answer. When its end comes soon, the
// connection can be used again.
func discard(r *http.Response) {
	if r.ContentLength <= maxExcerpt && !isEvents(r.Header.Get("Content-Type")) {
		t := time.AfterFunc(linger, func() { r.Body.Close() })
		_, _ = io.CopyN(io.Discard, r.Body, maxExcerpt+1) // one more, to see the end
		t.Stop()
	}
	r.Body.Close()
}

const (
	// maxResponseHeader bounds the headers of an answer, in bytes.
	maxResponseHeader = 256 << 10
	maxAnswer         = 50 << 20
	maxRedirects      = 10
)

// DialOptions adjust a Client. The zero value, and nil, mean the defaults. They
// are copied; later changes have no effect.
type DialOptions struct {
	// HTTP sends the requests; its CheckRedirect is not used, and its Timeout
	// would end event streams. Default: its own client, with the proxy of
	// the environment.
	HTTP *http.Client
	// TLS is used for https when HTTP is nil.
	TLS *tls.Config
	// Header is sent with every request.
	Header http.Header
	// Authorize adds credentials to requests and gets new ones.
	Authorize Authorizer
	// MaxMessage bounds an answer that is no event stream, in bytes. Default
	// 50 MB.
	MaxMessage int
	// MaxEvent bounds one event of an answer in bytes. Default 10 MB, or MaxMessage if more is
	// set there.
	MaxEvent int
	// Budget has the memory for answers and events of more than 64 KiB. The server
	// has one share. Default: that of the process, see [farcall.Budget].
	Budget *farcall.Budget
	// Trace gets a line for each frame that is sent or received; nil: none. See
	// mcp.ClientOptions.Trace.
	Trace io.Writer
}

// An Authorizer gives requests their credentials. It is used by several
// goroutines at once.
type Authorizer interface {
	// Authorize is called with each request before it is sent, and adds headers
	// to it. An error is the error of the call.
	Authorize(ctx context.Context, r *http.Request) error
	// Challenge is called with an answer of status 401 or 403. It reports whether
	// the request shall be sent again, with what Authorize adds now; otherwise
	// the answer counts. It may read the body, which it does not close, when it
	// reports true.
	Challenge(ctx context.Context, r *http.Response) (retry bool, err error)
}

// Dial returns a client of the server at an http or https URL, or one that the client of
// DialOptions.HTTP sends. It fails when the address is invalid; nothing is connected before the
// first exchange.
func Dial(address string, o *DialOptions) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("mcphttp: %w", err)
	}
	others := o != nil && o.HTTP != nil
	if u.Scheme != "http" && u.Scheme != "https" && !others || u.Host == "" {
		return nil, fmt.Errorf("mcphttp: %q is not a URL like http://host:port/mcp", address)
	}
	u.Fragment, u.RawFragment = "", ""
	c := &Client{url: u, trips: map[string]*trip{}}
	if o != nil {
		c.opts = *o
	}
	c.opts.MaxEvent = cmp.Or(c.opts.MaxEvent, max(sse.DefaultMaxEvent, c.opts.MaxMessage))
	c.opts.MaxMessage = cmp.Or(c.opts.MaxMessage, maxAnswer)
	c.opts.Budget = budget.Named(c.opts.Budget, "server "+u.Host)
	c.header = canonical(c.opts.Header)
	if c.opts.HTTP != nil {
		c.http = *c.opts.HTTP
	} else {
		c.own = newTransport(c.opts.TLS)
		c.http.Transport = c.own
	}
	c.http.Transport = wirelog.New(c.opts.Trace, nil).RoundTripper(c.http.Transport)
	c.http.CheckRedirect = checkRedirect
	//nolint:forbidigo // a client lives until it is closed, not as long as the call that made it
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

func newTransport(config *tls.Config) *http.Transport {
	t := onhttp.Transport()
	t.MaxResponseHeaderBytes = maxResponseHeader
	if config != nil {
		t.TLSClientConfig = config.Clone()
	}
	return t
}

// checkRedirect follows a redirect that keeps the method (a POST needs 307 or
// 308) and the origin. Anything else would lose the message, or hand it, with
// its session and its credentials, to another.
func checkRedirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case !sameOrigin(r.URL, first.URL):
		return fmt.Errorf(
			"%w: the server redirects to %s, another origin; use that address if it is meant",
			farcall.ErrProtocol, r.URL.Redacted())
	case r.Method != first.Method:
		return fmt.Errorf("%w: the server redirects to %s and loses the %s; use that address",
			farcall.ErrProtocol, r.URL.Redacted(), first.Method)
	case len(via) >= maxRedirects:
		return fmt.Errorf("%w: more than %d redirects", farcall.ErrProtocol, maxRedirects)
	}
	return nil
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && a.Hostname() == b.Hostname() && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

type headerKey struct{}

// WithHeader returns a context with exchanges that carry more headers: those that
// mirror a tool's arguments, for example. They come before what the protocol
// itself demands.
func WithHeader(ctx context.Context, h http.Header) context.Context {
	all := canonical(h)
	if outer, ok := ctx.Value(headerKey{}).(http.Header); ok {
		for name, values := range outer {
			if _, given := all[name]; !given {
				all[name] = values
			}
		}
	}
	return context.WithValue(ctx, headerKey{}, all)
}

// canonical returns a copy with names that are as net/http writes them, so that
// nothing is sent twice.
func canonical(h http.Header) http.Header {
	c := make(http.Header, len(h))
	for name, values := range h {
		name = textproto.CanonicalMIMEHeaderKey(name)
		c[name] = append(slices.Clip(c[name]), values...)
	}
	return c
}
