package conform

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const shown = 400 // bytes of a long text that are printed

// printable writes bytes that are not printable as \xNN. JSON has no such
// escape, so it cannot be mistaken for one that was sent.
func printable(s string) string {
	cut := ""
	if len(s) > shown {
		cut = fmt.Sprintf("… (%d bytes)", len(s))
		s = s[:runeStart(s, shown)]
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1, r == '\uFEFF', !unicode.IsPrint(r):
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String() + cut
}

// clip shortens a text for the middle of a sentence.
func clip(s string) string {
	const most = 120
	s = printable(s)
	if len(s) <= most {
		return s
	}
	return s[:runeStart(s, most)] + "…"
}

// runeStart is where the rune that i lies in begins.
func runeStart(s string, i int) int {
	for least := i - utf8.UTFMax; i > least && !utf8.RuneStart(s[i]); {
		i--
	}
	return i
}
