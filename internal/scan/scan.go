package scan

import "unicode/utf8"

// Text validates b as one JSON text: a value with nothing but white space
// around it. It returns len(b), or the offset of the fault. A negative depth
// means no limit.
func Text(b []byte, depth int) (int, Fault) {
	i, f := Value(b, Space(b, 0), depth)
	if f != OK {
		return i, f
	}
	if i = Space(b, i); i < len(b) {
		return i, Trailing
	}
	return i, OK
}

// Space returns the offset of the first byte at or after i that is not white
// space.
func Space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// Value validates the JSON value that starts at b[i], and returns its end, or
// the offset of the fault. At most depth containers may be inside each other;
// a negative depth means no limit.
func Value(b []byte, i, depth int) (int, Fault) {
	if uint(i) >= uint(len(b)) {
		return len(b), End
	}
	switch c := b[i]; {
	case c == '"':
		end, _, f := String(b, i)
		return end, f
	case c-'0' <= 9, c == '-':
		return number(b, i)
	case c == '{', c == '[':
		return container(b, i, depth)
	}
	return literal(b, i)
}

// container validates the object or array that starts at b[i].
func container(b []byte, i, depth int) (int, Fault) {
	var (
		c     byte
		end   int
		f     Fault
		level int
		// One bit for each open container, the innermost lowest: 1 is an object.
		// Every 64 levels the word moves to spilled, so that any depth costs a
		// bit and no stack.
		kinds   uint64
		spilled []uint64
	)

open: // at an opening bracket
	if level == depth {
		return i, TooDeep
	}
	if level&63 == 0 && level > 0 {
		spilled = append(spilled, kinds)
	}
	level++
	kinds <<= 1
	c = b[i]
	i++
	if uint(i) < uint(len(b)) && b[i] <= ' ' {
		i = Space(b, i)
	}
	if uint(i) >= uint(len(b)) {
		return len(b), End
	}
	if c == '{' {
		kinds |= 1
		if b[i] == '}' {
			goto closed
		}
		goto key
	}
	if b[i] == ']' {
		goto closed
	}

value:
	if uint(i) >= uint(len(b)) {
		return len(b), End
	}
	c = b[i]
	if c == '"' {
		if end = short(b, i); end > 0 {
			i = end
		} else if i, _, f = stringRest(b, ^end); f != OK {
			return i, f
		}
	} else if c-'1' <= 8 { // number does it as well; this is quicker
		i = digits(b, i)
		if uint(i) < uint(len(b)) && (b[i] == '.' || b[i]|0x20 == 'e') {
			if i, f = fraction(b, i); f != OK {
				return i, f
			}
		}
	} else if c-'0' <= 9 || c == '-' {
		if i, f = number(b, i); f != OK {
			return i, f
		}
	} else if c == '{' || c == '[' {
		goto open
	} else if i, f = literal(b, i); f != OK {
		return i, f
	}

next: // after a value
	if uint(i) < uint(len(b)) && b[i] <= ' ' {
		i = Space(b, i)
	}
	if uint(i) >= uint(len(b)) {
		return len(b), End
	}
	if c = b[i]; c == ',' {
		i++
		if uint(i) < uint(len(b)) && b[i] <= ' ' {
			i = Space(b, i)
		}
		if kinds&1 == 0 {
			goto value
		}
		goto key
	}
	// '}' is ']' + 0x20: the bit of the kind makes the one of the other.
	if c != ']'+byte(kinds&1)<<5 {
		return i, NoComma
	}

closed: // at the closing bracket
	i++
	level--
	if level == 0 {
		return i, OK
	}
	kinds >>= 1
	if level&63 == 0 {
		kinds = spilled[len(spilled)-1]
		spilled = spilled[:len(spilled)-1]
	}
	goto next

key:
	if uint(i) >= uint(len(b)) {
		return len(b), End
	}
	if b[i] != '"' {
		return i, NoKey
	}
	if end = short(b, i); end > 0 {
		i = end
	} else if i, _, f = stringRest(b, ^end); f != OK {
		return i, f
	}
	if uint(i+1) < uint(len(b)) && b[i] == ':' && b[i+1] > ' ' {
		i++
	} else if i, f = Colon(b, i); f != OK {
		return i, f
	}
	goto value
}

// Colon passes the colon after a member's name, and white space on both sides.
func Colon(b []byte, i int) (int, Fault) {
	if uint(i) < uint(len(b)) && b[i] <= ' ' {
		i = Space(b, i)
	}
	if uint(i) >= uint(len(b)) {
		return len(b), End
	}
	if b[i] != ':' {
		return i, NoColon
	}
	i++
	if uint(i) < uint(len(b)) && b[i] <= ' ' {
		i = Space(b, i)
	}
	return i, OK
}

func literal(b []byte, i int) (int, Fault) {
	var word string
	switch b[i] {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	case 0xEF:
		if len(b)-i >= 3 && b[i+1] == 0xBB && b[i+2] == 0xBF {
			return i, Mark
		}
		return i, NoValue
	default:
		return i, NoValue
	}
	if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
		return i + len(word), OK
	}
	if rest := b[i:]; len(rest) < len(word) && string(rest) == word[:len(rest)] {
		return len(b), End
	}
	return i, NoValue
}

func number(b []byte, i int) (int, Fault) {
	if b[i] == '-' {
		i++
	}
	if uint(i) >= uint(len(b)) {
		return len(b), End
	}
	if b[i] == '0' {
		i++
	} else if i = digits(b, i); i < 0 {
		return ^i, fault(b, ^i)
	}
	return fraction(b, i)
}

// fraction passes what may follow the integer part of a number.
func fraction(b []byte, i int) (int, Fault) {
	if uint(i) < uint(len(b)) && b[i] == '.' {
		if i = digits(b, i+1); i < 0 {
			return ^i, fault(b, ^i)
		}
	}
	if uint(i) < uint(len(b)) && b[i]|0x20 == 'e' {
		i++
		if uint(i) < uint(len(b)) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if i = digits(b, i); i < 0 {
			return ^i, fault(b, ^i)
		}
	}
	return i, OK
}

// digits passes one digit or more; without one it returns ^i.
func digits(b []byte, i int) int {
	if uint(i) >= uint(len(b)) || b[i]-'0' > 9 {
		return ^i
	}
	for i++; uint(i) < uint(len(b)) && b[i]-'0' <= 9; i++ {
	}
	return i
}

func fault(b []byte, i int) Fault {
	if i >= len(b) {
		return End
	}
	return BadNumber
}

// escape passes the escape sequence at b[i], a backslash.
func escape(b []byte, i int) (int, Fault) {
	if i+1 >= len(b) {
		return len(b), End
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, OK
	case 'u':
		for j := i + 2; j < i+6; j++ {
			if j >= len(b) {
				return len(b), End
			}
			if c := b[j]; c-'0' > 9 && c|0x20-'a' > 5 {
				return i, BadEscape
			}
		}
		return i + 6, OK
	}
	return i, BadEscape
}

// badUTF8 returns the offset of the first byte at or after i that is not UTF-8.
func badUTF8(b []byte, i int) int {
	for i < len(b) {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return i
}
