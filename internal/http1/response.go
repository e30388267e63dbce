package http1

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxPending is how much of an answer is held back, as net/http does: an answer
	// of no more has a Content-Length, a longer one is chunked.
	maxPending = 2048
	// maxOut is how much is copied to be sent with one write.
	maxOut = 16 << 10
	// maxDiscard is how much of a body that a handler has not read is read for the
	// sake of the connection, as in net/http.
	maxDiscard = 256 << 10
)

// A response is the http.ResponseWriter of a request. It does as that of net/http
// does, but for trailers and hijacking. Like that one it is for one goroutine at a
// time; deadlines may be set by any.
type response struct {
	x       *exchange
	header  http.Header // of the handler; nil: it has not asked
	status  int         // 0: not yet
	said    declaration // with the status
	length  int64       // Content-Length; -1: unknown
	written int64

	committed  bool // the head is in the output
	chunked    bool
	close      bool // the connection, after this answer
	tooMuch    bool // of the body was left unread
	fullDuplex bool
	finishing  bool
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	switch {
	case w.x.over.Load():
		return
	case w.status != 0:
		w.x.conn.s.logf("http: superfluous WriteHeader(%d) after WriteHeader(%d) for %s", status,
			w.status, w.x.conn.target)
		return
	case status < 100 || status > 999:
		panic("http1: invalid status " + strconv.Itoa(status)) //nolint:forbidigo // as net/http does
	case status < 200 && status != http.StatusSwitchingProtocols:
		out := w.x.conn.out()
		out.status(status)
		_ = w.header.WriteSubset(out, withoutLength) // it does not fail
		out.text("\r\n")
		_ = w.x.flush() // sticky
		return
	}
	w.status = status
	w.declare()
	if text := first(w.header["Content-Length"]); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			w.x.conn.s.logf("http: invalid Content-Length of %q", text)
			delete(w.header, "Content-Length")
			return
		}
		w.length = n
	}
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) { return write(w, p, (*response).emit) }

// WriteString implements io.StringWriter.
func (w *response) WriteString(p string) (int, error) { return write(w, p, nil) }

// write holds a part of the body back, or sends it. Where there is direct, it gets what
// is too large to be held back; chunks are then as in net/http.
func write[T []byte | string](w *response, p T, direct func(*response, T) error) (int, error) {
	if w.x.over.Load() {
		return 0, errOver
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case !hasBody(w.status):
		return 0, http.ErrBodyNotAllowed
	}
	if w.written += int64(len(p)); w.length != -1 && w.written > w.length {
		return 0, http.ErrContentLength
	}
	buf := w.x.conn.buf
	rest := p
	for len(rest) > maxPending-len(buf.pending) {
		if len(buf.pending) == 0 && direct != nil {
			if err := direct(w, rest); err != nil {
				return len(p) - len(rest), err
			}
			return len(p), nil
		}
		n := maxPending - len(buf.pending)
		buf.pending = append(buf.pending, rest[:n]...)
		rest = rest[n:]
		if err := w.emitPending(); err != nil {
			return len(p) - len(rest), err
		}
	}
	buf.pending = append(buf.pending, rest...)
	return len(p), nil
}

func (w *response) emitPending() error {
	buf := w.x.conn.buf
	p := buf.pending
	buf.pending = buf.pending[:0]
	return w.emit(p)
}

// emit sends a part of the body, or puts it with what is to be sent.
func (w *response) emit(p []byte) error {
	w.commit(p)
	out := w.x.conn.out()
	if w.chunked {
		out.b = strconv.AppendInt(out.b, int64(len(p)), 16)
		out.text("\r\n")
	}
	if len(out.b)+len(p) <= maxOut {
		out.b = append(out.b, p...)
	} else if err := errors.Join(w.x.flush(), w.x.send(p)); err != nil {
		return err
	}
	if w.chunked {
		out.text("\r\n")
	}
	return w.x.conn.writeErr
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController.
func (w *response) FlushError() error {
	if w.x.over.Load() {
		return errOver
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if len(w.x.conn.buf.pending) > 0 {
		if err := w.emitPending(); err != nil {
			return err
		}
	}
	w.commit(nil)
	return w.x.flush()
}

// EnableFullDuplex is for http.ResponseController.
func (w *response) EnableFullDuplex() error {
	w.fullDuplex = true
	return nil
}

// SetReadDeadline is for http.ResponseController.
func (w *response) SetReadDeadline(t time.Time) error { return w.x.setReadDeadline(t) }

// SetWriteDeadline is for http.ResponseController.
func (w *response) SetWriteDeadline(t time.Time) error { return w.x.setWriteDeadline(t) }

// finish ends the answer. The handler has returned.
func (w *response) finish() {
	w.finishing = true
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if len(w.x.conn.buf.pending) > 0 {
		_ = w.emitPending() // sticky
	}
	w.commit(nil)
	if w.chunked {
		w.x.conn.out().text("0\r\n\r\n")
	}
	_ = w.x.flush() // sticky
}

// reusable reports whether the connection may serve another request.
func (w *response) reusable() bool {
	short := w.length != -1 && hasBody(w.status) && w.length != w.written
	return !w.close && !short && w.x.conn.writeErr == nil && !w.x.body.early
}

// A declaration is what the handler's header said about the answer in WriteHeader:
// later changes do not count.
type declaration struct {
	connection, coding, encoding string
	sized, typed, dated          bool
}

// declare puts the status line and the header of the handler into the output.
func (w *response) declare() {
	h := w.header
	_, sized := h["Content-Length"]
	_, typed := h["Content-Type"]
	_, dated := h["Date"]
	w.said = declaration{
		first(h["Connection"]), first(h["Transfer-Encoding"]),
		first(h["Content-Encoding"]), sized, typed, dated,
	}
	out := w.x.conn.out()
	out.status(w.status)
	_ = h.WriteSubset(out, withoutTrailer) // it does not fail
}

var (
	withoutTrailer = map[string]bool{"Trailer": true}
	withoutLength  = map[string]bool{"Content-Length": true, "Transfer-Encoding": true}
)

// commit ends the head of the answer. p are the first bytes of the body, which are not
// put into the output.
//
// It decides in the order of net/http's chunkWriter.writeHeader.
func (w *response) commit(p []byte) {
	if w.committed {
		return
	}
	w.committed = true
	said, out := &w.said, w.x.conn.out()
	body := hasBody(w.status)
	var add extra
	if w.finishing && said.coding == "" && body && !said.sized {
		w.length, add.sized, add.size = int64(len(p)), true, len(p)
	}
	draining := w.x.conn.s.draining.Load()
	w.readRest(draining)
	switch {
	case !body:
		out.cut("Content-Length")
		if w.status == http.StatusNotModified {
			out.cut("Content-Type")
		}
	case !said.typed && said.coding == "" && said.encoding == "" && len(p) > 0:
		add.contentType = http.DetectContentType(p)
	}
	w.frame(body, out)
	add.close = w.close && (draining || w.tooMuch || !hasToken(said.connection, "close"))
	if add.close {
		out.cut("Connection")
	}
	add.chunked, add.date = w.chunked, !said.dated
	out.end(&add, w.x.conn.s)
}

// readRest decides whether the connection goes on, and reads what the handler has not
// read of the body: a client may send all of it before it reads.
func (w *response) readRest(draining bool) {
	if draining || w.said.connection == "close" {
		w.close = true
	}
	if !w.close && !w.fullDuplex {
		all, tooMuch := w.x.body.discard()
		w.tooMuch = tooMuch
		w.close = !all
	}
}

// frame decides how the end of the answer is found.
func (w *response) frame(body bool, out *output) {
	coding, sized := w.said.coding, w.length != -1
	if sized && coding != "" && coding != "identity" {
		w.x.conn.s.logf("http: both Transfer-Encoding %q and Content-Length %d are set", coding, w.length)
		sized = false
	}
	switch {
	case !body, sized:
		out.cut("Transfer-Encoding")
	case coding == "identity":
		w.close = true
		out.cut("Transfer-Encoding")
	default:
		w.chunked = true
		out.cut("Content-Length")
		if coding == "chunked" {
			out.cut("Transfer-Encoding")
		}
	}
}

// extra is what net/http adds to the header of a handler.
type extra struct {
	contentType                 string
	date, sized, chunked, close bool
	size                        int // where it is sized
}

// An output is what is to be sent.
type output struct{ b []byte }

// Write implements io.Writer, for http.Header.
func (o *output) Write(p []byte) (int, error) {
	o.b = append(o.b, p...)
	return len(p), nil
}

// WriteString implements io.StringWriter.
func (o *output) WriteString(s string) (int, error) {
	o.b = append(o.b, s...)
	return len(s), nil
}

func (o *output) text(s string) { o.b = append(o.b, s...) }

// status writes a status line.
func (o *output) status(code int) {
	o.text("HTTP/1.1 ")
	o.b = strconv.AppendInt(o.b, int64(code), 10)
	if text := http.StatusText(code); text != "" {
		o.text(" ")
		o.text(text)
		o.text("\r\n")
		return
	}
	o.text(" status code " + strconv.Itoa(code) + "\r\n")
}

// cut removes a field from a head that is not complete.
func (o *output) cut(name string) {
	mark := []byte("\r\n" + name + ": ")
	for {
		at := bytes.Index(o.b, mark)
		if at < 0 {
			return
		}
		n := bytes.IndexByte(o.b[at+2:], '\n') + 1
		o.b = append(o.b[:at+2], o.b[at+2+n:]...)
	}
}

// end writes what net/http adds to the header of a handler, in the order of net/http.
func (o *output) end(add *extra, s *Server) {
	if add.date {
		o.text("Date: ")
		o.text(s.dateText())
		o.text("\r\n")
	}
	if add.sized {
		o.text("Content-Length: ")
		o.b = strconv.AppendInt(o.b, int64(add.size), 10)
		o.text("\r\n")
	}
	if add.contentType != "" {
		o.text("Content-Type: ")
		o.text(add.contentType)
		o.text("\r\n")
	}
	if add.close {
		o.text("Connection: close\r\n")
	}
	if add.chunked {
		o.text("Transfer-Encoding: chunked\r\n")
	}
	o.text("\r\n")
}

// hasBody reports whether the answer with a status has a body (RFC 9110, section 6.4.1).
func hasBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// hasToken reports whether a list has a token.
func hasToken(list, token string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.Trim(item, " \t"), token) {
			return true
		}
	}
	return false
}
