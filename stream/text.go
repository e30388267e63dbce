package stream

import (
	"bytes"
	"errors"
)

// maxNesting is how many objects and arrays of a text may be inside each other. It is twice the
// default of farcall.Options.MaxDepth; the memory for it is fixed.
const maxNesting = 1024

// text finds where a JSON text ends, reading each byte once, however the bytes arrive. It follows
// the structure; what tokens consist of is the decoder's to judge.
//
//	           { [                     the bracket that closes the outermost one
//	outside ────────> inside (states below) ────────────────────────────────────> the text ends
//	   │ anything else  │ a token that cannot stand here, nesting too deep,
//	   v                v or a line end in a string
//	 other            broken ── brackets balance, or a line begins with { or [ ──> the text ends
//	   └── line end, { or [ ──> the text ends
type text struct {
	state   textState
	escaped bool // the byte before was a backslash, in a string
	broken  bool // the text is no JSON; only its end is looked for
	fresh   bool // the byte before was a line end
	depth   int
	objects [maxNesting / 64]uint64 // a bit for each level: 1 is an object
}

// textState is what is expected next.
type textState uint8

const (
	outside    textState = iota // a text, after white space
	other                       // more of what is no object and no array
	firstValue                  // a value or ]
	value                       // a value
	firstName                   // a name or }
	name                        // a name
	nameString                  // more of a name
	colon
	valueString // more of a string
	scalar      // more of a number or literal
	next        // a comma, or the end of the object or array
)

// verdict is what scan has found.
type verdict uint8

const (
	more    verdict = iota // the text goes on beyond the bytes
	ends                   // the text ends
	breaks                 // the next byte cannot belong to a JSON text; from now on it is broken
	lineEnd                // the next byte is a line end (scanLine only)
)

// scan continues the text with p and returns how many bytes of it belong to the text.
func (t *text) scan(p []byte) (n int, v verdict) { return t.run(p, false) }

// scanLine is scan that stops before a line end inside the text.
func (t *text) scanLine(p []byte) (n int, v verdict) { return t.run(p, true) }

func (t *text) run(p []byte, stop bool) (int, verdict) {
	for i := 0; i < len(p); i++ {
		if t.state == nameString || t.state == valueString {
			if i += t.plain(p[i:]); i == len(p) {
				break
			}
		}
		b := p[i]
		bracket := b == '{' || b == '['
		switch {
		case stop && b == '\n':
			return i, lineEnd
		case bracket && (t.state == other || t.broken && t.fresh):
			t.reset()
			return i, ends
		case t.step(b):
			t.reset()
			return i + 1, ends
		case t.state == bad:
			t.state, t.broken, t.escaped = next, true, false
			return i, breaks
		}
		t.fresh = b == '\n'
	}
	return len(p), more
}

// plain returns how many bytes of a string come before the next one that means something.
func (t *text) plain(p []byte) int {
	if t.escaped {
		return 0
	}
	for i, b := range p {
		if b == '"' || b == '\\' || b == '\n' {
			return i
		}
	}
	return len(p)
}

func (t *text) reset() {
	t.state, t.depth, t.broken, t.escaped, t.fresh = outside, 0, false, false, false
}

// bad is the state after a byte that cannot stand where it is. scan leaves it at once.
const bad textState = 255

// step takes a byte and reports whether it ends the text.
func (t *text) step(b byte) bool {
	switch {
	case t.state == nameString || t.state == valueString:
		t.inString(b)
		return false
	case t.state == other:
		return b == '\n'
	case t.broken:
		return t.skip(b)
	case t.state == scalar:
		if isScalar(b) {
			return false
		}
		t.state = next
	}
	switch b {
	case ' ', '\t', '\r', '\n':
		return false
	case '}', ']':
		return t.pop(b)
	}
	switch t.state {
	case outside, firstValue, value:
		t.value(b)
	case firstName, name:
		t.expect(b, '"', nameString)
	case colon:
		t.expect(b, ':', value)
	case next:
		if t.inObject() {
			t.expect(b, ',', name)
		} else {
			t.expect(b, ',', value)
		}
	}
	return false
}

func (t *text) expect(b, want byte, then textState) {
	if t.state = then; b != want {
		t.state = bad
	}
}

func (t *text) value(b byte) {
	switch {
	case b == '{' || b == '[':
		t.push(b == '{')
	case t.state == outside:
		t.state = other
	case b == '"':
		t.state = valueString
	case isScalar(b):
		t.state = scalar
	default:
		t.state = bad
	}
}

func (t *text) inString(b byte) {
	switch {
	case b == '\n': // JSON has none in strings, and so a string that has no end breaks one line only
		if t.state = bad; t.broken {
			t.state = next
		}
	case t.escaped:
		t.escaped = false
	case b == '\\':
		t.escaped = true
	case b == '"' && t.state == nameString:
		t.state = colon
	case b == '"':
		t.state = next
	}
}

// skip takes a byte of a broken text.
func (t *text) skip(b byte) bool {
	switch b {
	case '"':
		t.state, t.escaped = valueString, false
	case '{', '[':
		t.depth++
	case '}', ']':
		t.depth--
	}
	return t.depth <= 0
}

func (t *text) push(object bool) {
	if t.depth == maxNesting {
		t.state = bad
		return
	}
	bit := uint64(1) << (t.depth % 64)
	if t.state = firstValue; object {
		t.state = firstName
		t.objects[t.depth/64] |= bit
	} else {
		t.objects[t.depth/64] &^= bit
	}
	t.depth++
}

// pop takes a closing bracket and reports whether it is the outermost one.
func (t *text) pop(b byte) bool {
	empty := firstValue
	if b == '}' {
		empty = firstName
	}
	switch {
	case t.state == outside:
		t.state = other
		return false
	case t.inObject() != (b == '}') || t.state != next && t.state != empty:
		t.state = bad
		return false
	}
	t.state = next
	t.depth--
	return t.depth == 0
}

func (t *text) inObject() bool {
	return t.depth > 0 && t.objects[(t.depth-1)/64]>>((t.depth-1)%64)&1 == 1
}

// isScalar reports whether a number or literal may consist of a byte.
func isScalar(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '-' ||
		b == '+' || b == '.'
}

var errBroken = errors.New(
	"the bytes are no JSON text; what follows is read from where the brackets balance, or from the " +
		"next line that begins with { or [")

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
