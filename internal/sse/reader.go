package sse

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/farcall-dev/farcall/internal/budget"
)

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
	if maxEvent <= 0 {
		maxEvent = DefaultMaxEvent
	}
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
	if size := len(r.line) + len(r.data) + n; r.loan == nil || size <= budget.Free || r.loan.Grow(size) {
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
