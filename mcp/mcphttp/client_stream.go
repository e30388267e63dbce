package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	// firstDelay is how long to wait before a stream is resumed with a server that does
	// not say how long; with each connection that brings nothing it doubles, up
	// to maxDelay. minDelay is for a server that wants it at once.
	firstDelay = 250 * time.Millisecond
	maxDelay   = 30 * time.Second
	minDelay   = 20 * time.Millisecond
)

// Listen opens the legacy stream of what the server sends without being asked,
// and gives its messages to reply, in order. It connects again when the stream
// ends, with back-off, and resumes where that broke off. It blocks until ctx
// ends, reply fails or the server is no use any more: [ErrSessionLost], or a
// [*StatusError] that will not change. It returns nil at once when the server
// has no such stream, as in every stateless revision.
//
// After [Client.SSE], Listen waits for the end of that stream instead: what comes
// there is given to SSE's take.
//
// opened, unless nil, is called once: when the server has answered for the first
// time, or cannot be asked. A server may drop what it has to say before.
func (c *Client) Listen(ctx context.Context, opened func(), reply func(frame []byte) error) error {
	if opened == nil {
		opened = func() {}
	}
	opened = sync.OnceFunc(opened)
	defer opened()
	st, err := c.now()
	switch {
	case err != nil:
		return err
	case st.rev != nil && !st.rev.Handshake:
		return nil
	}
	inner, cancel := c.bind(ctx)
	defer cancel()
	var refused error
	give := func(frame []byte) error {
		refused = reply(frame)
		return refused
	}
	if st.events != nil {
		opened()
		err = st.events.wait(inner)
	} else {
		err = c.listen(inner, &st, opened, give)
	}
	if refused != nil {
		return refused
	}
	return c.ended(ctx, err)
}

func (c *Client) listen(
	ctx context.Context, st *state, opened func(), reply func(frame []byte) error,
) error {
	s := eventStream{c: c, st: st, tried: opened, lastID: c.takeResumeFrom()}
	s.handled = func(event string) { c.handled(st.session, event) }
	resumed := s.lastID != ""
	var last error
	for {
		resp, err := s.open(ctx, last)
		if resumed && badRequest(err) { // the server may know the session, but not the event
			s.lastID = ""
			s.handled("")
			resp, err = s.open(ctx, nil)
		}
		resumed = false
		if noStream(err) {
			return nil
		}
		if err != nil {
			return err
		}
		var refused error
		last = s.read(resp.Body, func(frame []byte) error {
			if !c.deliver(frame) {
				refused = reply(frame)
			}
			return refused
		})
		resp.Body.Close()
		if refused != nil || ctx.Err() != nil || errors.Is(last, farcall.ErrProtocol) {
			return last
		}
	}
}

// noStream reports whether a server says that it has no stream, or nothing at
// all to GET where there is no session that it may not know.
func noStream(err error) bool {
	var status *StatusError
	if !errors.As(err, &status) || errors.Is(err, ErrSessionLost) {
		return false
	}
	return status.Status == http.StatusMethodNotAllowed || status.Status == http.StatusNotFound
}

// badRequest reports whether a server has answered 400, as to a Last-Event-ID that
// it does not know.
func badRequest(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Status == http.StatusBadRequest
}

// eventStream is one stream of events over a row of connections.
type eventStream struct {
	c     *Client
	st    *state
	tries int    // how many connections in a row may fail; 0: any number
	tried func() // unless nil, called when the server has answered, or not

	handled func(event string) // unless nil, gets the id of each event after message has returned

	lastID string        // of the last event that came whole
	retry  time.Duration // what the server wants to be left alone for; 0: it did not say
	idle   int           // connections in a row that brought nothing
	failed int           // those of them that did not end in order: a server may let us poll
}

var errStreamEnd = errors.New("the server closed it")

// endOf names the end of a stream, which is no separate failure.
func endOf(err error) error {
	if err == io.EOF { //nolint:errorlint // the reader returns it bare; a wrapped one is a broken connection
		return errStreamEnd
	}
	return err
}

// read gives the messages of a connection to message until the connection ends,
// with an error in any case. Events without data, and of other types, only
// count for their ids.
func (s *eventStream) read(body io.Reader, message func(data []byte) error) error {
	loan := budget.Lend(s.c.opts.Budget)
	defer loan.Close()
	r := sse.NewReader(body, s.c.opts.MaxEvent, &loan)
	s.idle, s.failed = s.idle+1, s.failed+1
	for {
		e, err := r.Next()
		if d := r.Retry(); d > 0 {
			s.retry = d
		}
		switch {
		case errors.Is(err, sse.ErrTooLarge):
			return fmt.Errorf("%w: %w; raise DialOptions.MaxEvent", farcall.ErrProtocol, err)
		case err != nil:
			if err = endOf(err); err == errStreamEnd { //nolint:errorlint // ours, and bare
				s.failed = 0
			}
			return err
		}
		if s.idle, s.failed = 0, 0; e.ID != "" {
			s.lastID = e.ID
		}
		if len(e.Data) > 0 && (e.Type == "" || e.Type == "message") {
			if err := message(e.Data); err != nil {
				return err
			}
		}
		if e.ID != "" && s.handled != nil {
			s.handled(e.ID)
		}
	}
}

// open connects, again if need be, and returns an answer that is an event
// stream. last is how the connection before has ended; nil: there was none.
func (s *eventStream) open(ctx context.Context, last error) (*http.Response, error) {
	for {
		if last != nil {
			if s.tries > 0 && s.failed > s.tries {
				return nil, fmt.Errorf("%d attempts have failed: %w", s.failed, classify(last))
			}
			if err := backoff.Sleep(ctx, s.delay()); err != nil {
				return nil, err
			}
		}
		resp, err := s.get(ctx)
		if s.tried != nil {
			s.tried()
		}
		if err == nil {
			return resp, nil
		}
		last = classify(err)
		s.idle, s.failed = s.idle+1, s.failed+1
		if ctx.Err() != nil || !transient(last) {
			return nil, last
		}
	}
}

func (s *eventStream) get(ctx context.Context) (*http.Response, error) {
	resp, err := s.c.getEvents(ctx, func(h http.Header) {
		s.st.legacyHeader(h)
		if s.lastID != "" {
			h["Last-Event-Id"] = []string{s.lastID}
		}
	})
	if err != nil {
		return nil, err
	}
	switch {
	case !succeeded(resp):
		defer discard(resp)
		return nil, s.c.statusError(resp, s.st, true)
	case !isEvents(resp.Header.Get("Content-Type")):
		defer discard(resp)
		return nil, newStatusError(resp)
	}
	s.c.accepted(s.st)
	return resp, nil
}

// getEvents asks for an event stream.
func (c *Client) getEvents(ctx context.Context, header func(http.Header)) (*http.Response, error) {
	return c.do(ctx, func() (*http.Request, error) {
		r := c.request(ctx, http.MethodGet, c.url, nil)
		r.Header["Accept"] = eventsHeader
		r.Header["Cache-Control"] = []string{"no-store"}
		header(r.Header)
		return r, nil
	})
}

// delay is how long to wait before the next connection: never less than the
// server wants (2025-11-25, Transports, "Sending Messages"), and a little more,
// so that not all clients of a server that restarts come at once.
func (s *eventStream) delay() time.Duration {
	d := max(s.retry, minDelay)
	if s.retry == 0 {
		d = firstDelay
	}
	if s.retry == 0 || s.failed > 0 {
		d = max(s.retry, min(d<<min(s.idle, 10), maxDelay))
	}
	return d + rand.N(d/4+1) //nolint:gosec // nothing to guess
}

// outgoing is what the transport must know of a frame that is sent. Its slices
// are parts of the frame.
type outgoing struct {
	method     []byte // of a frame that is no batch; nil when it is a response
	name       []byte // what its params are about, still quoted, see nameParam
	version    []byte // the revision in its params._meta, still quoted
	token      []byte // the progressToken there, as written
	initialize bool

	open [][]byte // ids of the requests that are not answered yet
	one  [1][]byte
}

// read looks at a frame.
func (o *outgoing) read(frame []byte) {
	o.open = o.one[:0]
	if i := scan.Space(frame, 0); i < len(frame) && frame[i] == '[' {
		for message := range scan.Elements(frame) {
			if method, id, _ := envelope(message); method != nil && id != nil {
				o.open = append(o.open, id)
			}
		}
		return
	}
	var id, params []byte
	o.method, id, params = envelope(frame)
	if o.method == nil {
		return
	}
	if id != nil {
		o.open = append(o.open, id)
	}
	o.initialize = string(o.method) == spec.MethodInitialize
	about := nameParam(string(o.method))
	for key, value := range scan.Members(params) {
		switch {
		case string(key) == "_meta":
			o.readMeta(value)
		case about != "" && string(key) == about && value[0] == '"':
			o.name = value
		}
	}
}

func (o *outgoing) readMeta(meta []byte) {
	for key, value := range scan.Members(meta) {
		switch string(key) {
		case spec.MetaProtocolVersion:
			if value[0] == '"' {
				o.version = value
			}
		case "progressToken":
			o.token = value
		}
	}
}

// envelope returns the parts of a message: its method, unescaped, its id as
// written, and its params. What is not there is nil.
func envelope(message []byte) (method, id, params []byte) {
	for key, value := range scan.Members(message) {
		switch string(key) {
		case "method":
			if value[0] == '"' {
				method = scan.Unquote(value)
			}
		case "id":
			id = value
		case "params":
			params = value
		}
	}
	return method, id, params
}

// strike notes which requests a frame of the answer responds to.
func (o *outgoing) strike(frame []byte) {
	if i := scan.Space(frame, 0); i < len(frame) && frame[i] == '[' {
		for message := range scan.Elements(frame) {
			o.strikeOne(message)
		}
		return
	}
	o.strikeOne(frame)
}

func (o *outgoing) strikeOne(message []byte) {
	method, id, _ := envelope(message)
	switch {
	case method != nil:
	case string(id) == "null":
		o.open = nil // the server could not read the request
	default:
		for i, open := range o.open {
			if bytes.Equal(open, id) {
				o.open = append(o.open[:i:i], o.open[i+1:]...)
				return
			}
		}
	}
}

// modern reports whether the frame is of a stateless revision.
func (o *outgoing) modern(st *state) bool {
	return o.version != nil || st.rev != nil && !st.rev.Handshake
}

// header adds what the protocol demands to the headers of a POST.
func (o *outgoing) header(h http.Header, st *state) error {
	if !o.modern(st) {
		if !o.initialize { // which begins a session
			st.legacyHeader(h)
		}
		return nil
	}
	// 2026-07-28, Streamable HTTP, "Request Metadata".
	version := st.version
	if o.version != nil {
		if v := scan.Unquote(o.version); len(version) == 0 || version[0] != string(v) {
			version = []string{string(v)}
		}
	}
	if !visible(version[0]) {
		return fmt.Errorf("%w: params._meta has the revision %q, which no header can carry",
			farcall.ErrProtocol, version[0])
	}
	h[headerVersion] = version
	if o.method == nil {
		return nil
	}
	values := make([]string, 2)
	if values[0] = string(o.method); !visible(values[0]) {
		return fmt.Errorf("%w: no header can carry the method %q", farcall.ErrProtocol, o.method)
	}
	h[headerMethod] = values[0:1:1]
	if o.name != nil {
		values[1] = spec.EncodeHeader(string(scan.Unquote(o.name)))
		h[headerName] = values[1:2:2]
	}
	return nil
}

// The headers of MCP, as net/http writes names.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerSession = "Mcp-Session-Id"
)

// maxEventID bounds the id of an event that Detach returns and Attach takes.
const maxEventID = 4 << 10

// validEventID reports whether a later client may send s as Last-Event-ID.
func validEventID(s string) bool {
	return len(s) <= maxEventID &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// visible reports whether s is not empty and all visible ASCII, as a session id
// must be.
func visible(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x21 || r > 0x7e })
}
