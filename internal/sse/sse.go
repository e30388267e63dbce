// Package sse reads and writes event streams, the text/event-stream format of
// the WHATWG HTML standard, section 9.2 (Server-Sent Events).
//
// It knows nothing of JSON-RPC and nothing of HTTP: a [Reader] takes bytes from
// an io.Reader, a [Writer] gives each event to an io.Writer in one Write.
package sse

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/budget"
)

// ErrTooLarge says that one event, or one line, is longer than the limit of the
// Reader. The stream cannot be read on.
var ErrTooLarge = errors.New("sse: event too large")

// ContentType is the media type of an event stream.
const ContentType = "text/event-stream"

// DefaultMaxEvent bounds one event when the caller gives no limit: 10 MB.
const DefaultMaxEvent = 10 << 20

// An Event is one event of a stream.
type Event struct {
	// ID is the last event id (WHATWG HTML 9.2.6): when read, it is that of the
	// latest event that had one; when written, empty writes none.
	ID string
	// Type is the event's name. Empty means "message".
	Type string
	// Data has no trailing line break. Its line breaks are LF when read.
	Data []byte
}

const (
	readSize   = 4 << 10
	fieldExtra = 16 // room for "data: " beside the limit of the data
)

// A Reader reads the events of a stream. It must not be used by two goroutines
// at once.
type Reader struct {
	src  io.Reader
	max  int
	loan *budget.Loan // holds line and data; may be nil

	buf    []byte // what was read and not consumed is buf[start:end]
	start  int
	end    int
	err    error // of src, or ErrTooLarge; sticky
	begun  bool  // the byte order mark was looked for
	skipLF bool  // the last line ended with CR: a following LF belongs to it

	line    []byte // the begin of a line that goes beyond buf
	data    []byte
	hasData bool
	typ     string
	lastID  string
	retry   time.Duration
}

// NewReader reads events of at most maxEvent bytes of data from src. Zero means
// [DefaultMaxEvent]. An event holds its bytes of the loan, unless that is nil,
// until the next one is read; closing the loan is up to the caller.
func NewReader(src io.Reader, maxEvent int, loan *budget.Loan) *Reader {
	maxEvent = cmp.Or(max(maxEvent, 0), DefaultMaxEvent)
	return &Reader{src: src, max: maxEvent, loan: loan, buf: make([]byte, readSize)}
}

// LastID returns the last event id, also when it came with no data.
func (r *Reader) LastID() string { return r.lastID }

// Retry returns the reconnection time that the stream asked for, or 0.
func (r *Reader) Retry() time.Duration { return r.retry }

// Next returns the next event; its data belong to the caller. It fails with
// io.EOF at the end of the stream, where an event without its closing blank line
// is dropped (WHATWG HTML 9.2.6), with [ErrTooLarge], and with [budget.ErrNoRoom].
func (r *Reader) Next() (Event, error) {
	if r.loan != nil {
		r.loan.Grow(0)
	}
	for {
		line, err := r.readLine()
		if err != nil {
			return Event{}, err
		}
		if len(line) > 0 {
			if err := r.field(line); err != nil {
				return Event{}, err
			}
			continue
		}
		if e, ok := r.dispatch(); ok {
			return e, nil
		}
	}
}

// dispatch ends an event at a blank line. One without data is no event.
func (r *Reader) dispatch() (Event, bool) {
	e, ok := Event{ID: r.lastID, Type: r.typ, Data: r.data}, r.hasData
	r.data, r.typ, r.hasData = nil, "", false
	return e, ok
}

// field interprets one line (WHATWG HTML 9.2.6). It may keep the line's memory.
func (r *Reader) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		return r.addData(value)
	case "event":
		r.typ = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.lastID = string(value)
		}
	case "retry":
		if ms, ok := digits(value); ok {
			r.retry = time.Duration(ms) * time.Millisecond
		}
	}
	return nil // a comment has an empty name; unknown fields are ignored
}

func (r *Reader) addData(value []byte) error {
	if len(r.data)+len(value)+1 > r.max+1 {
		return r.tooLarge()
	}
	if !r.hasData {
		r.hasData = true
		if r.line != nil { // the value lies in separate memory: hand it over
			r.data, r.line = value, nil
			return nil
		}
		r.data = append(make([]byte, 0, len(value)), value...)
		return nil
	}
	if err := r.grow(len(value) + 1); err != nil {
		return err
	}
	r.data = append(append(r.data, '\n'), value...)
	return nil
}

// grow draws for n more bytes of the event.
func (r *Reader) grow(n int) error {
	if size := len(r.line) + len(r.data) + n; r.loan == nil || size <= budget.Free ||
		r.loan.Grow(size) {
		return nil
	}
	return r.fail(budget.ErrNoRoom)
}

func (r *Reader) tooLarge() error {
	return r.fail(fmt.Errorf("%w: more than %d bytes", ErrTooLarge, r.max))
}

func (r *Reader) fail(err error) error {
	r.err = err
	r.line, r.data, r.hasData = nil, nil, false
	r.start, r.end = 0, 0 // nothing is read on
	return r.err
}

// readLine returns the next line without its end, which is LF, CR or CRLF. The
// line is valid until the next call. It does not wait for the byte after a CR.
func (r *Reader) readLine() ([]byte, error) {
	r.line = nil
	for {
		if r.skipLF && r.start < r.end {
			if r.buf[r.start] == '\n' {
				r.start++
			}
			r.skipLF = false
		}
		chunk := r.buf[r.start:r.end]
		if i := lineEnd(chunk); i >= 0 {
			r.start += i + 1
			r.skipLF = chunk[i] == '\r'
			if len(r.line)+i > r.max+fieldExtra {
				return nil, r.tooLarge()
			}
			if r.line == nil {
				return chunk[:i], nil
			}
			if err := r.grow(i); err != nil {
				return nil, err
			}
			r.line = append(r.line, chunk[:i]...)
			return r.line, nil
		}
		if len(r.line)+len(chunk) > r.max+fieldExtra {
			return nil, r.tooLarge()
		}
		if r.err != nil {
			return nil, r.err
		}
		r.fill()
	}
}

// lineEnd returns the place of the first CR or LF, or -1.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// fill reads more. A line that fills the buffer moves to r.line.
func (r *Reader) fill() {
	rest := r.buf[r.start:r.end]
	if len(rest) == len(r.buf) {
		if r.grow(len(rest)) != nil {
			return
		}
		r.line = append(r.line, rest...)
		r.start, r.end = 0, 0
	} else if r.start > 0 {
		r.end = copy(r.buf, rest)
		r.start = 0
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	r.err = err
	r.skipBOM()
}

// skipBOM drops one leading byte order mark (WHATWG HTML 9.2.5).
func (r *Reader) skipBOM() {
	const bom = "\xef\xbb\xbf"
	if r.begun {
		return
	}
	have := r.buf[:r.end]
	if len(have) < len(bom) && bytes.HasPrefix([]byte(bom), have) && r.err == nil {
		return // not yet known
	}
	r.begun = true
	if bytes.HasPrefix(have, []byte(bom)) {
		r.start = len(bom)
	}
}

// digits reads ASCII digits only, and no more than nine of them.
func digits(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// keepCap is the largest buffer that a Writer keeps between events.
const keepCap = 64 << 10

// A Writer writes events. It must not be used by two goroutines at once.
type Writer struct {
	dst   io.Writer
	flush func() error
	buf   []byte
}

// NewWriter writes to dst, one Write for each event, and calls flush after it.
// flush may be nil.
func NewWriter(dst io.Writer, flush func() error) *Writer {
	return &Writer{dst: dst, flush: flush}
}

// Event writes one event. Line breaks in the data (CR, LF or CRLF) become one
// data line each, so that no data can end the event or forge a field; a reader
// sees them as LF. An id or a type with a line break is refused.
func (w *Writer) Event(e Event) error {
	if strings.ContainsAny(e.ID, "\r\n\x00") || strings.ContainsAny(e.Type, "\r\n") {
		return fmt.Errorf("sse: line break in the id %q or type %q of an event", e.ID, e.Type)
	}
	b := w.buf[:0]
	if e.ID != "" {
		b = append(append(append(b, "id: "...), e.ID...), '\n')
	}
	if e.Type != "" {
		b = append(append(append(b, "event: "...), e.Type...), '\n')
	}
	return w.write(append(appendLines(b, "data: ", e.Data), '\n'))
}

// Comment writes a comment, which readers ignore: it keeps a connection alive.
func (w *Writer) Comment(text string) error {
	return w.write(append(appendLines(w.buf[:0], ": ", []byte(text)), '\n'))
}

// Retry tells the reader how long to wait before it connects again.
func (w *Writer) Retry(d time.Duration) error {
	return w.write(fmt.Appendf(w.buf[:0], "retry: %d\n\n", d.Milliseconds()))
}

func (w *Writer) write(b []byte) error {
	if w.buf = b[:0]; cap(b) > keepCap {
		w.buf = nil
	}
	if _, err := w.dst.Write(b); err != nil {
		return err
	}
	if w.flush == nil {
		return nil
	}
	return w.flush()
}

// appendLines appends each line of text after the prefix.
func appendLines(dst []byte, prefix string, text []byte) []byte {
	for {
		i := lineEnd(text)
		if i < 0 {
			return append(append(append(dst, prefix...), text...), '\n')
		}
		dst = append(append(append(dst, prefix...), text[:i]...), '\n')
		if bytes.HasPrefix(text[i:], []byte("\r\n")) {
			i++
		}
		text = text[i+1:]
	}
}
