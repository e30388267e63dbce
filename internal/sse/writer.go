package sse

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

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
