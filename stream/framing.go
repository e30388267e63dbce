package stream

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/farcall-dev/farcall/jsonrpc"
)

var carriageReturn = []byte("\r")

// locateLine finds the next line in what was read. Blank lines are dropped on
// the way.
func (c *conn) locateLine() {
	for {
		p := c.in.unread()
		i := bytes.IndexByte(p[c.scanned:], '\n')
		if i < 0 {
			c.scanned = len(p)
			// One byte more than the limit may be the \r of the line end.
			if c.noEnd || len(p) > c.max+1 {
				if !c.noEnd && !c.skips(p, false) {
					c.refuse(c.tooLarge("a line"), p)
				}
				c.noEnd = true
				c.in.take(len(p))
				c.scanned = 0
			}
			return
		}
		i += c.scanned
		c.scanned = 0
		line := trimCR(p[:i])
		switch {
		case c.noEnd:
			c.noEnd = false
			c.drop(i + 1)
		case blank(line):
			c.drop(i + 1)
		case len(line) > c.max:
			c.drop(i + 1)
			if !c.skips(line, false) {
				c.refuse(c.tooLarge("a line"), line)
				return
			}
		case c.skips(line, true):
			c.drop(i + 1)
		default:
			c.ready, c.size, c.step = true, len(line), i+1
			return
		}
	}
}

// tooLarge refuses a message before it is parsed. The rest of it is skipped.
func (c *conn) tooLarge(what string) *jsonrpc.Error {
	e := jsonrpc.Oversize("Request", int64(c.max), "bytes")
	e.Cause = fmt.Errorf(
		"stream: %s is longer than the limit of %d bytes; send less at once, or raise Options.MaxMessage",
		what, c.max)
	return e
}

// locateMessage finds the next header and the message after it in what was
// read (Language Server Protocol, base protocol).
func (c *conn) locateMessage() {
	for c.refusal == nil {
		if c.skip > 0 {
			n := min(c.skip, int64(len(c.in.unread())))
			c.in.take(int(n))
			if c.skip -= n; c.skip > 0 {
				return
			}
			c.complete()
		}
		if c.need < 0 && !c.locateHeader() {
			if c.skip == 0 {
				return
			}
			continue
		}
		p := c.in.unread()
		if len(p) < c.need {
			return
		}
		if !c.skips(p[:c.need], true) {
			c.ready, c.size, c.step = true, c.need, c.need
			return
		}
		c.drop(c.need)
		c.need = -1
	}
}

// locateHeader takes the next header when it is complete. It reports whether a
// message follows.
//
// What a header refuses is the one message after it, as long as its length is
// known. Otherwise nothing tells where the next header begins, for any byte
// sequence may be part of a message; the stream ends after the refusal.
func (c *conn) locateHeader() bool {
	if c.skipper != nil && c.scanned == 0 && !c.passOver() {
		return false
	}
	p := c.in.unread()
	for len(p) > 0 && c.scanned == 0 && (p[0] == '\r' || p[0] == '\n') {
		// Line ends after a message are common among peers that print.
		c.in.take(1)
		p = p[1:]
	}
	end, next := headerEnd(p, c.scanned)
	switch {
	case len(p) > 0 && (p[0] == '{' || p[0] == '['):
		c.lost(errNoHeader) // at once: the empty line that ends a header may never come
		return false
	case next > c.maxHeader, next < 0 && len(p) > c.maxHeader:
		c.lost(fmt.Errorf("the header is longer than the limit of %d bytes (Options.MaxHeader)",
			c.maxHeader))
		return false
	case next < 0:
		c.scanned = max(0, len(p)-2) // the last two bytes may begin its end
		return false
	}
	c.scanned = 0
	length, err := parseHeader(p[:end])
	c.in.take(next)
	switch {
	case length < 0:
		c.lost(err)
		return false
	case err != nil:
		c.refusal = &refusedError{reason: malformed(err)}
	case length > int64(c.max):
		rest := c.in.unread()
		rest = rest[:min(int64(len(rest)), length)]
		if !c.skips(rest, false) {
			c.refuse(c.tooLarge("a message"), rest)
		}
	default:
		c.need = int(length)
		return true
	}
	c.skip = length
	return false
}

// lost refuses what cannot be separated from what follows, and ends the
// stream.
func (c *conn) lost(err error) {
	c.in.take(len(c.in.unread()))
	c.scanned = 0
	c.refusal = &refusedError{reason: malformed(err)}
	c.err = fmt.Errorf("stream: cannot find the next message: %w", err)
}

func malformed(err error) *jsonrpc.Error {
	return jsonrpc.Refusal(jsonrpc.ParseError, err.Error())
}

// headerEnd finds the empty line after the header lines, looking from p[from:]
// on: it begins at end, and the message at next. Without one next is -1.
func headerEnd(p []byte, from int) (end, next int) {
	for {
		i := bytes.IndexByte(p[from:], '\n')
		if i < 0 {
			return 0, -1
		}
		from += i + 1
		switch rest := p[from:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return from, from + 1
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return from, from + 2
		}
	}
}

var (
	errNoHeader = errors.New(
		"JSON where a header was expected; this stream has a Content-Length before each message")
	errNoLength = errors.New(
		`the header has no Content-Length; each message needs "Content-Length: N", an empty line, and ` +
			`then N bytes`)
)

// parseHeader returns the length that header lines announce. It is -1 when it
// is not known; then there is an error. Names are case-insensitive, and only
// Content-Length counts: a Content-Type could announce nothing but UTF-8 JSON.
func parseHeader(p []byte) (length int64, err error) {
	length = -1
	for line := range bytes.Lines(p) {
		line = bytes.TrimRight(line, "\r\n")
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			err = fmt.Errorf("the header line %.40q has no colon", line)
			continue
		}
		if !bytes.EqualFold(name, []byte("Content-Length")) {
			continue
		}
		n, bad := parseLength(bytes.TrimSpace(value))
		switch {
		case bad != nil:
			return -1, bad
		case length >= 0 && n != length:
			return -1, fmt.Errorf("the header has two Content-Lengths, %d and %d", length, n)
		}
		length = n
	}
	if length < 0 && err == nil {
		err = errNoLength
	}
	return length, err
}

// parseLength reads decimal digits. A sign would mean that the peer is wrong
// about what it sends.
func parseLength(digits []byte) (int64, error) {
	var n int64
	for _, d := range digits {
		if d < '0' || d > '9' || n > (math.MaxInt64-9)/10 {
			return -1, fmt.Errorf("the Content-Length %.40q is no length", digits)
		}
		n = n*10 + int64(d-'0')
	}
	if len(digits) == 0 {
		return -1, errors.New("the Content-Length is empty")
	}
	return n, nil
}

func appendHeader(dst []byte, length int) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(length), 10)
	return append(dst, "\r\n\r\n"...)
}

// skips asks Options.Skip about a frame, or about the beginning of what is too
// long to be one.
func (c *conn) skips(p []byte, whole bool) bool {
	return c.skipper != nil && c.skipper(slices.Clip(p), whole)
}

// passOver shows the lines that stand where a header belongs to Options.Skip
// and drops them. It reports whether a header begins what is left. The stream
// is lost when one of them is a message.
func (c *conn) passOver() bool {
	for {
		p := c.in.unread()
		end := bytes.IndexByte(p, '\n')
		line := p[:max(0, end)]
		if end < 0 {
			line = p
		}
		at := findHeader(line)
		switch {
		case at == 0 && !c.noEnd:
			return true
		case at >= 0: // printed without a line end
			if !c.noEnd && !blank(line[:at]) {
				c.skips(line[:at], at <= c.maxHeader)
			}
			c.in.take(at)
			c.noEnd = false
			return true
		case end >= 0:
			if !c.noEnd && !blank(line) && !c.skips(trimCR(line), len(line) <= c.maxHeader) {
				c.lost(errNoHeader)
				return false
			}
			c.in.take(end + 1)
			c.noEnd = false
		case len(p) <= c.maxHeader:
			return false
		default:
			if !c.noEnd {
				c.skips(p, false)
			}
			c.noEnd = true
			c.in.take(len(p) - len(nameLength)) // the rest may begin a header
			return false
		}
	}
}

const (
	nameLength = "Content-Length:"
	nameType   = "Content-Type:"
)

// findHeader returns where in a line a header begins, or -1.
func findHeader(line []byte) int {
	for at := 0; at+len(nameType) <= len(line); at++ {
		i := bytes.IndexAny(line[at:], "Cc")
		if i < 0 {
			return -1
		}
		at += i
		for _, name := range [...]string{nameLength, nameType} {
			if rest := line[at:]; len(rest) >= len(name) && bytes.EqualFold(rest[:len(name)], []byte(name)) {
				return at
			}
		}
	}
	return -1
}
