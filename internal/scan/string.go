package scan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// special marks the high bit of the bytes of x that a string cannot skip: the
// quote, the backslash, control characters and what is not ASCII. Only the
// lowest mark is exact: a borrow may mark bytes above it.
func special(x uint64) uint64 {
	return (((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones) | (x - ' '*ones) | x) & highs
}

// stop marks the bytes that a string cannot skip.
var stop = func() (t [256]bool) {
	for c := range t {
		t[c] = c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf
	}
	return t
}()

// short returns the end of the string that starts with the quote at b[i] when
// it has less than 32 bytes and nothing special, and otherwise the complement of
// how far it has come. Going byte by byte beats eight at a time here: the
// processor guesses where a short string ends, and need not wait for the
// arithmetic to tell.
func short(b []byte, i int) int {
	n := min(i+33, len(b))
	for j, c := range b[i+1 : n] {
		if stop[c] {
			if c == '"' {
				return i + j + 2
			}
			return ^(i + j + 1)
		}
	}
	return ^n
}

// String validates the string that starts with the quote at b[i], and returns
// its end, after the closing quote, or the offset of the fault. It reports
// whether the string has escapes.
func String(b []byte, i int) (end int, escaped bool, f Fault) {
	if end = short(b, i); end > 0 {
		return end, false, OK
	}
	return stringRest(b, ^end)
}

// stringRest is String from b[i] on, which is inside of the string. What comes
// before is ASCII and nothing special.
func stringRest(b []byte, i int) (end int, escaped bool, f Fault) {
	high := len(b) // the first byte that is not ASCII
	for {
		if high == len(b) {
			i = skipASCII(b, i)
		} else {
			i = skipText(b, i)
		}
		if i >= len(b) {
			return len(b), escaped, End
		}
		switch c := b[i]; {
		case c == '"':
			if high < i && !utf8.Valid(b[high:i]) {
				return badUTF8(b[:i], high), escaped, BadUTF8
			}
			return i + 1, escaped, OK
		case c == '\\':
			escaped = true
			if i, f = escape(b, i); f != OK {
				return i, escaped, f
			}
		case c < ' ':
			return i, escaped, Control
		default:
			if c >= utf8.RuneSelf && high == len(b) {
				high = i
			}
			i++
		}
	}
}

// skipASCII passes the bytes that are not special. It may stop short of the
// end of b.
func skipASCII(b []byte, i int) int {
	for len(b)-i >= 32 {
		w := b[i : i+32]
		m := special(binary.LittleEndian.Uint64(w)) | special(binary.LittleEndian.Uint64(w[8:])) |
			special(binary.LittleEndian.Uint64(w[16:])) | special(binary.LittleEndian.Uint64(w[24:]))
		if m != 0 {
			break
		}
		i += 32
	}
	for len(b)-i >= 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	return i
}

// skipText is skipASCII for a string that has other characters as well.
func skipText(b []byte, i int) int {
	for len(b)-i >= 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		m := (((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones) | (x - ' '*ones)) &^ x & highs
		if m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	return i
}
