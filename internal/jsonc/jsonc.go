// Package jsonc answers one question: how are JSON files with comments read and changed? Editors
// write their settings so.
package jsonc

import "strings"

// Plain returns a copy in which comments, and commas with nothing behind them, are spaces, so that
// everything else is where it was. The result need not be JSON.
func Plain(data []byte) []byte {
	b := append([]byte(nil), data...)
	comma := -1       // the last one, if nothing has come since
	last := byte('[') // what is before it
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			comma, last = -1, c
		case c == '/' && i+1 < len(b) && (b[i+1] == '/' || b[i+1] == '*'):
			i = blank(b, i) - 1
		case c == ',':
			comma = -1
			if strings.IndexByte("[{,:", last) < 0 {
				comma = i
			}
			last = c
		case c == '}' || c == ']':
			if comma >= 0 {
				b[comma] = ' '
			}
			comma, last = -1, c
		case c > ' ':
			comma, last = -1, c
		}
	}
	return b
}

// blank makes spaces of the comment at i and returns where it ends.
func blank(b []byte, i int) int {
	end := i
	if b[i+1] == '/' {
		for end < len(b) && b[end] != '\n' {
			end++
		}
	} else {
		for end = i + 2; end < len(b) && (b[end] != '/' || b[end-1] != '*' || end == i+2); {
			end++
		}
		if end == len(b) {
			return end // it does not end: the reader will find it
		}
		end++
	}
	for ; i < end; i++ {
		if b[i] != '\n' {
			b[i] = ' '
		}
	}
	return end
}
