// Package visible answers one question: which text may a terminal be shown?
//
// Terminals obey control characters: ESC, OSC and C1 sequences move the cursor, set the
// title or write to the clipboard, and bidirectional marks change the order in which text
// reads. What another program or server wrote is shown with escapes in their place. All
// functions keep text that is printable as it is, whatever its language.
package visible

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with an escape for each character that is not printable, but for line
// feeds: \u001b for a character, \xff for a byte that is not UTF-8.
func Text(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 && utf8.ValidString(s) {
		return s
	}
	return string(appendText(make([]byte, 0, len(s)+16), []byte(s), false))
}

// Log returns what a program wrote to its standard error as Text does, but keeps tabs,
// leaves colours out, and takes a carriage return for the end of a line.
func Log(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 && utf8.ValidString(s) {
		return s
	}
	return string(appendLog(make([]byte, 0, len(s)+16), []byte(s)))
}

// NewWriter returns a writer that passes on to w what is written to it, as Log returns it.
// It holds back the beginning of a character or of a colour until the rest comes, so that
// the end of a program that stops within one is lost. It is not safe for concurrent use.
func NewWriter(w io.Writer) io.Writer { return &writer{w: w} }

type writer struct {
	w    io.Writer
	held []byte // the beginning of a sequence, at most maxHeld bytes
	out  []byte
}

// maxHeld bounds an unfinished colour sequence. A longer one is escaped.
const maxHeld = 32

func (v *writer) Write(p []byte) (int, error) {
	text := append(v.held, p...)
	end := len(text) - unfinished(text)
	v.out = appendLog(v.out[:0], text[:end])
	v.held = append(v.held[:0], text[end:]...)
	if len(v.out) == 0 {
		return len(p), nil
	}
	if _, err := v.w.Write(v.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// unfinished returns how many bytes at the end of text may be the beginning of a sequence.
func unfinished(text []byte) int {
	tail := text[max(0, len(text)-maxHeld):]
	if i := bytes.LastIndexByte(tail, 0x1b); i >= 0 {
		sequence := tail[i:]
		if len(sequence) == 1 ||
			sequence[1] == '[' && len(bytes.TrimLeft(sequence[2:], "0123456789;:")) == 0 {
			return len(sequence)
		}
	}
	if len(text) > 0 && text[len(text)-1] == '\r' { // a line feed may follow
		return 1
	}
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if rest := text[len(text)-n:]; utf8.RuneStart(rest[0]) {
			if utf8.FullRune(rest) {
				return 0
			}
			return n
		}
	}
	return 0
}

func appendLog(dst, text []byte) []byte {
	for len(text) > 0 {
		i := bytes.IndexAny(text, "\x1b\r")
		if i < 0 {
			return appendText(dst, text, true)
		}
		dst = appendText(dst, text[:i], true)
		text = text[i:]
		switch n := colour(text); {
		case n > 0:
			text = text[n:]
		case text[0] == '\r':
			text = text[1:]
			if len(text) == 0 || text[0] != '\n' {
				dst = append(dst, '\n')
			}
		default:
			dst = appendText(dst, text[:1], true)
			text = text[1:]
		}
	}
	return dst
}

// appendText appends text with escapes. Line feeds stay, and tabs if they may.
func appendText(dst, text []byte, tabs bool) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, `\x%02x`, text[0])
		case !obeyed(r), r == '\t' && tabs:
			dst = append(dst, text[:n]...)
		case r > 0xffff:
			dst = fmt.Appendf(dst, `\U%08x`, r)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		text = text[n:]
	}
	return dst
}

// obeyed reports whether a terminal may do something else with a character than show it.
func obeyed(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

// colour returns the length of the sequence for colours (SGR) that text begins with, or 0.
func colour(text []byte) int {
	text = text[:min(len(text), maxHeld)]
	if !bytes.HasPrefix(text, []byte("\x1b[")) {
		return 0
	}
	n := 2 + len(text[2:]) - len(bytes.TrimLeft(text[2:], "0123456789;:"))
	if n < len(text) && text[n] == 'm' {
		return n + 1
	}
	return 0
}
