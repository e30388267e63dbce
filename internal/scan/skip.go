package scan

import "bytes"

// Skip is Value for a text that is known to be valid: it looks for the end alone, which takes a
// fraction of the time in long strings. Of a text that is not valid it returns some end within b.
func Skip(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue
		default:
			for i++; i < len(b) && !ends[b[i]]; i++ {
			}
		}
		if depth <= 0 {
			return i
		}
	}
	return len(b)
}

// ends marks what may follow a number or a word.
var ends = [256]bool{
	',': true, ':': true, '}': true, ']': true, ' ': true, '\t': true, '\n': true,
	'\r': true,
}

// skipString returns the end of the string that starts with the quote at b[i].
func skipString(b []byte, i int) int {
	if end := short(b, i); end > 0 {
		return end
	}
	for start := i + 1; ; {
		n := bytes.IndexByte(b[start:], '"')
		if n < 0 {
			return len(b)
		}
		quote, first := start+n, start+n
		for first > i+1 && b[first-1] == '\\' {
			first--
		}
		if start = quote + 1; (quote-first)%2 == 0 {
			return start
		}
	}
}
