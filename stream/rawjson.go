package stream

import (
	"bytes"
	"errors"
)

var errBroken = errors.New("the bytes are no JSON text; what follows is read from where the brackets balance, or from the next line that begins with { or [")

// locateText finds the next JSON text in what was read.
func (c *conn) locateText() {
	for c.refusal == nil && c.text != nil {
		if c.text.state == outside && !c.nextText() {
			break
		}
		p := c.in.unread()
		scan := c.text.scan
		if c.detect {
			scan = c.text.scanLine
		}
		n, v := scan(p[c.scanned:])
		c.scanned += n
		switch v {
		case more:
			c.incomplete(p)
			return
		case lineEnd:
			c.detectAtLineEnd(p[:c.scanned])
		case breaks:
			if c.detect {
				c.useLines()
				break
			}
			c.brokenText(p[:c.scanned])
		case ends:
			c.wholeText(p[:c.scanned])
			if c.ready {
				return
			}
		}
	}
	if c.text == nil && c.refusal == nil {
		c.locateLine()
	}
}

// nextText drops the white space before a text. It reports whether one begins; in NDJSON none does.
func (c *conn) nextText() bool {
	p := c.in.unread()
	i := 0
	lines := false // it is NDJSON
	for i < len(p) && !lines && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r' || p[i] == '\n') {
		lines = p[i] == '\n' && c.detect && c.after
		i++
	}
	begins := i < len(p)
	if begins && c.detect && !lines {
		bracket := p[i] == '{' || p[i] == '['
		lines = !bracket
		c.detect = !c.after || !bracket
	}
	if i > 0 {
		c.drop(i)
	}
	if lines {
		c.useLines()
	}
	return begins && !lines
}

// incomplete deals with a text p that goes on beyond what was read.
func (c *conn) incomplete(p []byte) {
	if !c.noEnd && len(p) <= c.max {
		return
	}
	if !c.noEnd && !c.skips(p, false) {
		c.refuse(c.tooLarge("a text"), p)
	}
	c.noEnd = true
	c.in.take(len(p))
	c.scanned = 0
}

// brokenText refuses a text that is no JSON and begins with p.
func (c *conn) brokenText(p []byte) {
	if !c.noEnd && !c.skips(p, false) {
		reason := malformed(errBroken)
		if len(p) > c.max {
			reason = c.tooLarge("a text")
		}
		c.refuse(reason, p)
	}
	c.noEnd = true
	c.in.take(len(p))
	c.scanned = 0
}

// wholeText takes the text p, which was read to its end.
func (c *conn) wholeText(p []byte) {
	c.scanned = 0
	c.after = true
	switch {
	case c.noEnd:
		c.noEnd = false
		c.drop(len(p))
	case len(p) > c.max:
		c.drop(len(p))
		if !c.skips(p, false) {
			c.refuse(c.tooLarge("a text"), p)
		}
	default:
		text := bytes.TrimRight(p, " \t\r\n") // the end of a line that is no object and no array
		if c.skips(text, true) {
			c.drop(len(p))
			return
		}
		c.ready, c.size, c.step = true, len(text), len(p)
	}
}

// Detect becomes NDJSON or Raw.
//
//	          { and [ alone on a line, or after a text on its line
//	(detect) ─────────────────────────────────────────────────────> Raw
//	   │ a line end after a text, or within one; what is no object and no array
//	   └───────────────────────────────────────────────────────────> NDJSON
//
// Until then each text counts as soon as it is complete: a client may wait for its answer before
// it sends more.

// detectAtLineEnd looks at the first line of a text that goes on. Who prints JSON on several
// lines begins a new one after the first bracket; a longer line that ends early is a broken one.
func (c *conn) detectAtLineEnd(line []byte) {
	if line = bytes.TrimRight(line, " \t\r"); len(line) == 1 && !c.noEnd {
		c.detect = false
		return
	}
	c.useLines()
}

// useLines goes on with NDJSON, from the beginning of the text.
func (c *conn) useLines() {
	c.text, c.scanned = nil, 0
}
