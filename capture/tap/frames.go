package tap

import (
	"bytes"
	"strconv"
	"strings"
)

const (
	// maxFrame is how many bytes of a frame are kept for the recorder, which may keep fewer.
	maxFrame = 64 << 20
	// maxHeader bounds the header of a frame that has one.
	maxHeader = 8 << 10
)

// splitter finds frames in a stream of bytes.
type splitter interface {
	// Write takes the next bytes. It never fails.
	Write(p []byte) (int, error)
	// end takes the end of the stream: a frame may be incomplete.
	end()
}

// bounded collects a frame. It keeps only the beginning of one that is too long.
type bounded struct {
	emit func(data []byte, size int) // takes it, at its end
	data []byte
	size int
}

// end hands over the frame, if there is one.
func (b *bounded) end() {
	if b.size > 0 {
		b.emit(b.data, b.size)
	}
	b.reset()
}

func (b *bounded) add(p []byte) {
	b.size += len(p)
	b.data = append(b.data, p[:min(len(p), maxFrame-len(b.data))]...)
}

func (b *bounded) reset() {
	if cap(b.data) > 1<<20 {
		b.data = nil
	}
	b.data, b.size = b.data[:0], 0
}

// lines finds frames that are lines, or that have a header with their length, as those of LSP. The
// first byte tells which.
type lines struct {
	bounded

	decided, headers bool
	left             int // of the body that a header has announced
}

// Write implements splitter.
func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if !l.decided {
			if p = bytes.TrimLeft(p, " \t\r\n"); len(p) == 0 {
				break
			}
			l.decided, l.headers = true, p[0]|0x20 == 'c'
		}
		switch {
		case l.left > 0:
			part := p[:min(l.left, len(p))]
			l.add(part)
			p = p[len(part):]
			if l.left -= len(part); l.left == 0 {
				l.end()
			}
		case l.headers:
			p = l.header(p)
		default:
			p = l.line(p)
		}
	}
	return n, nil
}

// line takes the rest of a line.
func (l *lines) line(p []byte) []byte {
	before, after, ok := bytes.Cut(p, []byte{'\n'})
	if !ok {
		l.add(p)
		return nil
	}
	l.add(before)
	if n := len(l.data); n > 0 && n == l.size && l.data[n-1] == '\r' {
		l.data, l.size = l.data[:n-1], l.size-1
	}
	l.end()
	return after
}

// header takes the rest of a header, which ends with an empty line.
func (l *lines) header(p []byte) []byte {
	for i, c := range p {
		l.data = append(l.data, c)
		l.size++
		if c == '\n' && emptyLine(l.data) {
			if l.left = contentLength(l.data); l.left > 0 {
				l.reset()
			} else {
				l.end() // it is something else
			}
			return p[i+1:]
		}
		if l.size > maxHeader {
			l.headers = false
			return p[i+1:]
		}
	}
	return nil
}

// emptyLine reports whether a header ends with an empty line.
func emptyLine(header []byte) bool {
	return bytes.HasSuffix(header, []byte("\r\n\r\n")) || bytes.HasSuffix(header, []byte("\n\n"))
}

func contentLength(header []byte) int {
	for line := range strings.Lines(string(header)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(strings.TrimSpace(name), "content-length") {
			if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
				return n
			}
		}
	}
	return 0
}

// body finds the one frame that the body of an HTTP message is.
type body struct{ bounded }

// Write implements splitter.
func (b *body) Write(p []byte) (int, error) {
	b.add(p)
	return len(p), nil
}

// events finds the frames in a stream of server-sent events (HTML Standard, "Interpreting an event
// stream"): the data of each.
type events struct {
	bounded

	rest bounded // of a line
	cr   bool    // a line feed that follows belongs to the carriage return before
}

// Write implements splitter.
func (e *events) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if e.cr && p[0] == '\n' {
			e.cr, p = false, p[1:]
			continue
		}
		i := bytes.IndexAny(p, "\r\n")
		if e.cr = i >= 0 && p[i] == '\r'; i < 0 {
			e.rest.add(p)
			break
		}
		e.rest.add(p[:i])
		e.line()
		e.rest.reset()
		p = p[i+1:]
	}
	return n, nil
}

func (e *events) line() {
	if e.rest.size == 0 {
		e.end()
		return
	}
	value, ok := bytes.CutPrefix(e.rest.data, []byte("data:"))
	if !ok {
		return
	}
	if e.size > 0 {
		e.add([]byte("\n"))
	}
	value = bytes.TrimPrefix(value, []byte(" "))
	e.add(value)
	e.size += e.rest.size - len(e.rest.data)
}

// messages finds the frames on one side of a WebSocket without extensions (RFC 6455, 5.2).
type messages struct {
	bounded

	head    []byte // of a frame that is not complete
	left    uint64 // of the payload of a frame
	mask    [4]byte
	masked  bool
	at      int // in the mask
	control bool
	last    bool
}

// Write implements splitter.
func (m *messages) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if m.left == 0 {
			m.head, p = append(m.head, p[0]), p[1:]
			if !m.begin() {
				continue
			}
			m.head = m.head[:0]
		} else {
			part := p[:min(uint64(len(p)), m.left)]
			p = p[len(part):]
			m.left -= uint64(len(part))
			m.payload(part)
		}
		if m.left == 0 && m.last && !m.control {
			m.end()
		}
	}
	return n, nil
}

// begin reads the header of a frame, and reports whether it is complete.
func (m *messages) begin() bool {
	h := m.head
	if len(h) < 2 {
		return false
	}
	size, length := 2, uint64(h[1]&0x7f)
	switch length {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	m.masked = h[1]&0x80 != 0
	if m.masked {
		size += 4
	}
	if len(h) < size {
		return false
	}
	if extended := h[2 : size-map[bool]int{true: 4}[m.masked]]; len(extended) > 0 {
		length = 0
		for _, c := range extended {
			length = length<<8 | uint64(c)
		}
	}
	if m.masked {
		m.mask = [4]byte(h[size-4:])
	}
	m.left, m.at, m.control, m.last = length, 0, h[0]&0x08 != 0, h[0]&0x80 != 0
	return true
}

func (m *messages) payload(p []byte) {
	if m.control {
		return
	}
	start := len(m.data)
	m.add(p)
	if m.masked {
		for i := range m.data[start:] {
			m.data[start+i] ^= m.mask[(m.at+i)&3]
		}
		m.at += len(p)
	}
}
