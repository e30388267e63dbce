// Package wirelog answers one question: which frames went over the wire?
//
// A Log watches connections of any transport and writes one line for each frame:
//
//	2026-11-22T21:30:55.123456Z #1 > {"jsonrpc":"2.0","method":"ping","id":1}
//
// the time (UTC), the number of the connection (over HTTP: of the exchange), who
// sent (> this end, < the other end) and the frame, cut after 1 MiB. Instead of
// a frame, ! begins what became of a connection. What a terminal would obey is
// escaped. Headers, URLs and cookies are never in it; the contents of frames are.
package wirelog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/beneath"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	maxLine  = 1 << 20 // bytes of a frame that are shown
	maxQueue = 4 << 20 // bytes that wait for the writer
)

// The marks of a line.
const (
	Sent     byte = '>'
	Received byte = '<'
	Note     byte = '!'
)

// A Log writes lines. Its methods may be called by any number of goroutines at
// once, and those of a nil Log do nothing.
//
// One goroutine writes while there is something to write, so that a slow writer
// never delays a frame: lines for which there is no room (4 MiB) are left out and
// counted in the next line. A writer that has failed gets nothing more.
type Log struct {
	see    func(conn uint64, mark byte, text []byte) // in place of all below but conns
	w      io.Writer
	failed func(error)
	conns  atomic.Uint64

	mu      sync.Mutex
	queue   []byte
	left    int           // lines that were left out
	writing chan struct{} // closed when the queue is empty; nil: nothing is being written
	broken  bool
}

// New returns a log that writes whole lines to w, one or more with each Write,
// which is called by one goroutine at a time. failed, which may be nil, gets the
// error of the first Write that fails. It returns nil when w is nil, and w itself
// when that is a *Log.
func New(w io.Writer, failed func(error)) *Log {
	if l, ok := w.(*Log); ok || w == nil {
		return l
	}
	return &Log{w: w, failed: failed}
}

// NewFunc returns a log that calls see with each frame as it is, instead of writing lines. see is
// called by the goroutines that send and receive, must not block, and must not keep text.
func NewFunc(see func(conn uint64, mark byte, text []byte)) *Log { return &Log{see: see} }

// Write makes a Log pass as an [io.Writer], for New to find it again: it adds whole lines.
func (l *Log) Write(p []byte) (int, error) {
	if l.see == nil {
		l.add(p)
	}
	return len(p), nil
}

// connection returns the number of the next connection.
func (l *Log) connection() uint64 { return l.conns.Add(1) }

// Frame adds a frame, or with Note what became of a connection.
func (l *Log) Frame(conn uint64, mark byte, text []byte) {
	text = bytes.TrimSpace(text)
	if l == nil || len(text) == 0 {
		return
	}
	if l.see != nil {
		l.see(conn, mark, text)
		return
	}
	l.add(appendLine(nil, time.Now(), conn, mark, text))
}

func (l *Log) note(conn uint64, format string, args ...any) {
	l.Frame(conn, Note, fmt.Appendf(nil, format, args...))
}

func appendLine(b []byte, now time.Time, conn uint64, mark byte, text []byte) []byte {
	cut := len(text) - maxLine
	if cut > 0 {
		text = text[:maxLine]
	}
	b = now.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z07:00")
	b = fmt.Appendf(b, " #%d %c ", conn, mark)
	if bytes.ContainsAny(text, "\r\n\t") { // white space between the parts of a JSON text
		text = bytes.Map(func(r rune) rune {
			if r == '\r' || r == '\n' || r == '\t' {
				return ' '
			}
			return r
		}, text)
	}
	b = append(b, visible.Text(string(text))...)
	if cut > 0 {
		b = append(b, " … (cut)"...)
	}
	return append(b, '\n')
}

// add queues whole lines.
func (l *Log) add(lines []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken:
		return
	case len(l.queue)+len(lines) > maxQueue:
		l.left += bytes.Count(lines, []byte("\n"))
		return
	}
	l.queue = append(l.queue, lines...)
	if l.writing == nil {
		l.writing = make(chan struct{})
		go l.drain(l.writing)
	}
}

// drain writes until the queue is empty.
func (l *Log) drain(done chan struct{}) {
	defer close(done)
	for lines := l.next(); lines != nil; lines = l.next() {
		if err := l.write(lines); err != nil {
			l.mu.Lock()
			l.broken, l.queue, l.writing = true, nil, nil
			l.mu.Unlock()
			if l.failed != nil {
				l.failed(err)
			}
			return
		}
	}
}

// next takes what is queued; nil: nothing is, and the goroutine ends.
func (l *Log) next() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.queue
	l.queue = nil
	if l.left > 0 {
		lines = fmt.Appendf(lines, "%s ! %d lines are left out: the writer is too slow\n",
			time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"), l.left)
		l.left = 0
	}
	if lines == nil {
		l.writing = nil
	}
	return lines
}

// write writes lines. A writer that panics has failed.
func (l *Log) write(lines []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the writer of the wire log panics: %v", v)
		}
	}()
	n, err := l.w.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err != nil {
		err = fmt.Errorf("the writer of the wire log fails, nothing more is logged: %w", err)
	}
	return err
}

// Flush waits until all that was added is written, at most as long as limit.
func (l *Log) Flush(limit time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	writing := l.writing
	l.mu.Unlock()
	if writing == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-writing:
	case <-timer.C:
	}
}

// Transport returns t with its frames in the log, t itself when the log is nil.
// A frame is logged before it is sent, and when it was received.
func (l *Log) Transport(t farcall.Transport) farcall.Transport {
	if l == nil {
		return t
	}
	w := &transport{Transport: beneath.Of(t), log: l, conn: l.connection()}
	if try, ok := t.(farcall.TryWriter); ok {
		return &tryTransport{w, try}
	}
	return w
}

// transport is one with its frames in the log.
type transport struct {
	beneath.Transport

	log  *Log
	conn uint64
	over sync.Once
}

// Read implements farcall.Transport.
func (t *transport) Read() ([]byte, error) {
	frame, err := t.Transport.Read()
	var refused *jsonrpc.Error
	switch {
	case err == nil:
		t.log.Frame(t.conn, Received, frame)
	case errors.As(err, &refused) && !errors.Is(err, io.EOF):
		t.log.note(t.conn, "a frame is refused: %v", err)
	default:
		t.ended(err)
	}
	return frame, err
}

// Write implements farcall.Transport.
func (t *transport) Write(frames ...[]byte) error {
	t.sent(frames)
	return t.wrote(t.Transport.Write(frames...))
}

func (t *transport) sent(frames [][]byte) {
	for _, frame := range frames {
		t.log.Frame(t.conn, Sent, frame)
	}
}

func (t *transport) wrote(err error) error {
	if err != nil {
		t.ended(err)
	}
	return err
}

// ended notes the end of the connection, once.
func (t *transport) ended(err error) {
	t.over.Do(func() { t.log.note(t.conn, "the connection has ended: %v", err) })
}

// tryTransport is a transport where there is a TryWriter.
type tryTransport struct {
	*transport

	try farcall.TryWriter
}

// TryWrite implements farcall.TryWriter.
func (t *tryTransport) TryWrite(frames ...[]byte) (done bool, err error) {
	t.sent(frames)
	done, err = t.try.TryWrite(frames...)
	return done, t.wrote(err)
}

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
	next = cmp.Or(next, http.DefaultTransport)
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
	if b := newBody(t.log, conn, Received, mediaType(resp.Header), resp.StatusCode,
		resp.ContentLength == 0); b != nil {
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
