package wirelog

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"strings"
)

const (
	mediaJSON   = "application/json"
	mediaEvents = "text/event-stream"
)

func mediaType(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type")) // "" if it is not valid
	return kind
}

// RoundTripper returns next (nil: the default of net/http) with the frames of the
// bodies that it carries in the log. next itself when the log is nil.
func (l *Log) RoundTripper(next http.RoundTripper) http.RoundTripper {
	if l == nil {
		return next
	}
	if next == nil {
		next = http.DefaultTransport
	}
	return &roundTripper{next, l}
}

type roundTripper struct {
	next http.RoundTripper
	log  *Log
}

// CloseIdleConnections is for http.Client.
func (t *roundTripper) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (t *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	conn := t.log.connection()
	if mediaType(r.Header) == mediaJSON && r.GetBody != nil {
		if body, err := r.GetBody(); err == nil {
			frame, _ := io.ReadAll(io.LimitReader(body, maxLine+1)) // it is in memory
			t.log.Frame(conn, Sent, frame)
		}
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		t.log.note(conn, "no answer: %v", err)
		return nil, err
	}
	if b := newBody(t.log, conn, Received, mediaType(resp.Header), resp.StatusCode, resp.ContentLength == 0); b != nil {
		resp.Body = &responseBody{resp.Body, b}
	}
	return resp, nil
}

// responseBody logs what is read of an answer.
type responseBody struct {
	io.ReadCloser

	log *body
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.log.add(p[:n])
	if err != nil {
		b.log.end()
	}
	return n, err
}

// Close logs what was read of a body, which the reader may know to be all of it.
func (b *responseBody) Close() error {
	b.log.end()
	return b.ReadCloser.Close()
}

// Exchange returns w with what a handler writes to it in the log, and puts what the
// handler reads of r there, too. end is to be called when the handler returns.
func (l *Log) Exchange(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, end func()) {
	if l == nil {
		return w, func() {}
	}
	conn := l.connection()
	x := &exchange{ResponseWriter: w, log: l, conn: conn}
	if r.Body != nil && mediaType(r.Header) == mediaJSON {
		x.request = &body{log: l, conn: conn, mark: Received}
		r.Body = &responseBody{r.Body, x.request}
	}
	return x, x.end
}

// exchange is one request that is being answered, by one goroutine at a time.
type exchange struct {
	http.ResponseWriter

	log     *Log
	conn    uint64
	request *body // nil: there is none
	answer  *body // nil: not yet, or without a frame
	begun   bool
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if status >= http.StatusOK {
		x.begin(status)
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(p []byte) (int, error) {
	x.begin(http.StatusOK)
	x.answer.add(p)
	return x.ResponseWriter.Write(p)
}

// begin logs the request, which comes before its answer, and finds out what that is.
func (x *exchange) begin(status int) {
	if x.begun {
		return
	}
	x.begun = true
	x.request.end()
	x.answer = newBody(x.log, x.conn, Sent, mediaType(x.Header()), status, false)
}

func (x *exchange) end() {
	x.request.end()
	x.answer.end()
}

// newBody returns what logs the frames of an answer, nil and a note when it has none.
func newBody(l *Log, conn uint64, mark byte, kind string, status int, empty bool) *body {
	switch {
	case kind == mediaEvents && !empty:
		return &body{log: l, conn: conn, mark: mark, events: true}
	case kind == mediaJSON && !empty:
		return &body{log: l, conn: conn, mark: mark}
	}
	l.note(conn, "HTTP status %d %s", status, http.StatusText(status))
	return nil
}

// body collects the frame of a body, or those of its events. The methods of a nil
// body do nothing.
type body struct {
	log    *Log
	conn   uint64
	mark   byte
	events bool
	over   bool
	cr     bool   // the last line ended with CR: a LF after it belongs to that
	rest   []byte // a body, or a line, that is not whole yet
	data   []byte // of the event that is not whole yet
	kind   string // of that event
}

// add takes the next bytes, and keeps as much of a frame as is shown.
func (b *body) add(p []byte) {
	switch {
	case b == nil || b.over:
		return
	case !b.events:
		b.rest = appendBounded(b.rest, p)
		return
	}
	for len(p) > 0 {
		if b.cr && p[0] == '\n' {
			b.cr = false
			p = p[1:]
			continue
		}
		i := bytes.IndexAny(p, "\r\n")
		if b.cr = i >= 0 && p[i] == '\r'; i < 0 {
			b.rest = appendBounded(b.rest, p)
			return
		}
		b.line(appendBounded(b.rest, p[:i]))
		b.rest, p = b.rest[:0], p[i+1:]
	}
}

// line takes a line of an event stream (HTML Standard, "Interpreting an event stream").
func (b *body) line(line []byte) {
	if len(line) == 0 {
		b.event()
		return
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "data":
		b.data = append(appendBounded(b.data, value), '\n')
	case "event":
		b.kind = strings.Clone(string(value))
	}
}

// event ends an event. What is no message is not shown: it may be the address of a session.
func (b *body) event() {
	if b.kind == "" || b.kind == "message" {
		b.log.Frame(b.conn, b.mark, b.data)
	} else if len(b.data) > 0 {
		b.log.note(b.conn, "event %s", b.kind)
	}
	b.data, b.kind = b.data[:0], ""
}

// end logs a frame that is whole because the body is.
func (b *body) end() {
	if b == nil || b.over {
		return
	}
	b.over = true
	if !b.events {
		b.log.Frame(b.conn, b.mark, b.rest)
	}
	b.rest, b.data = nil, nil
}

// appendBounded appends what is shown of a frame, and a little more.
func appendBounded(b, p []byte) []byte {
	return append(b, p[:min(len(p), max(0, maxLine+1-len(b)))]...)
}
