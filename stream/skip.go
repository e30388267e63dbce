package stream

import (
	"bytes"
	"slices"
)

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
