package scan

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// Members returns the name, unescaped, and the value of each member of
// the object b, in order. There are none when b is no object. The slices
// are parts of b, except a name that was written with escapes.
// Of a text that is not valid it gives the members before the fault.
func Members(b []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) { members(b, false, yield) }
}

// Beginning is Members for the beginning of an object, that may end anywhere: the value of the
// member in which it ends is nil.
func Beginning(b []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) { members(b, true, yield) }
}

func members(b []byte, cut bool, yield func(key, value []byte) bool) {
	first := byte('{')
	for i := Space(b, 0); i < len(b) && b[i] == first; first = ',' {
		start := Space(b, i+1)
		if start >= len(b) || b[start] != '"' {
			return
		}
		end, escaped, f := String(b, start)
		if f != OK {
			return
		}
		key := b[start+1 : end-1 : end-1]
		if escaped {
			key = AppendUnquoted(nil, b[start:end])
		}
		if start, f = Colon(b, end); f != OK {
			return
		}
		if end, f = Value(b, start, -1); cut && (f != OK || end == len(b)) { // a number may go on
			yield(key, nil)
			return
		}
		if f != OK || !yield(key, b[start:end:end]) {
			return
		}
		i = Space(b, end)
	}
}

// Member returns the value of a member of the object b, or nil.
func Member(b []byte, name string) []byte {
	for key, value := range Members(b) {
		if string(key) == name {
			return value
		}
	}
	return nil
}

// StringMember returns the text of a member that is a string; "": there is none. Member says the
// rest.
func StringMember(b []byte, name string) string {
	value := Member(b, name)
	if len(value) == 0 || value[0] != '"' {
		return ""
	}
	return string(Unquote(value))
}

// Elements returns each element of the array b, in order. There are none
// when b is no array. Of a text that is not valid it gives the elements
// before the fault.
func Elements(b []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) { elements(b, yield) }
}

func elements(b []byte, yield func(value []byte) bool) {
	i := Space(b, 0)
	if i >= len(b) || b[i] != '[' {
		return
	}
	for {
		start := Space(b, i+1)
		end, f := Value(b, start, -1)
		if f != OK || !yield(b[start:end:end]) {
			return
		}
		if i = Space(b, end); i >= len(b) || b[i] != ',' {
			return
		}
	}
}

// Unquote returns the characters of the valid string raw, which includes its
// quotes. It allocates only when there are escapes.
func Unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1 : len(raw)-1]
	}
	return AppendUnquoted(make([]byte, 0, len(raw)), raw)
}

// AppendUnquoted appends the characters of the valid string raw, which includes
// its quotes. An escaped surrogate without its partner becomes U+FFFD.
func AppendUnquoted(dst, raw []byte) []byte {
	s := raw[1 : len(raw)-1]
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(dst, s[:i]...)
		c := s[i+1]
		s = s[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex(s)
			s = s[4:]
			if utf16.IsSurrogate(r) {
				r2 := rune(-1)
				if len(s) >= 6 && s[0] == '\\' && s[1] == 'u' {
					r2 = hex(s[2:])
				}
				if r = utf16.DecodeRune(r, r2); r != utf8.RuneError {
					s = s[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

func hex(s []byte) (r rune) {
	for _, c := range s[:4] {
		if c > '9' {
			c = c | 0x20 - 'a' + '0' + 10
		}
		r = r<<4 | rune(c-'0')
	}
	return r
}

// slashes is how many backslashes a byte has before it in a string. More than one: it is written in
// another way.
var slashes = func() (t [256]uint8) {
	for c := range t {
		if c < ' ' || c >= utf8.RuneSelf {
			t[c] = 2
		}
	}
	t['"'], t['\\'] = 1, 1
	return t
}()

// AppendMember appends a member to an object without its closing brace.
func AppendMember[S string | []byte](object []byte, name S, value []byte) []byte {
	if object[len(object)-1] != '{' {
		object = append(object, ',')
	}
	return append(append(AppendQuoted(object, name), ':'), value...)
}

// AppendQuoted appends s as a JSON string. It escapes only what must be
// escaped; bytes that are not UTF-8 become U+FFFD.
func AppendQuoted[S string | []byte](dst []byte, s S) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for len(s) > 0 {
		part := min(len(s), 64)
		dst = slices.Grow(dst, 6*part+16) // whatever that part has
		at, i := len(dst), 0
		to := dst[:cap(dst)]
		for i < part {
			if w := s[i:]; len(w) >= 8 {
				x := uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 |
					uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
				if special(x) == 0 {
					binary.LittleEndian.PutUint64(to[at:], x)
					i, at = i+8, at+8
					continue
				}
			}
			for end := min(i+8, part); i < end; {
				// Where JSON is quoted, which bytes are escaped is hard to predict: there is no branch.
				c := s[i]
				if n := slashes[c]; n < 2 {
					to[at] = '\\'
					at += int(n)
					to[at] = c
					i, at = i+1, at+1
				} else if c < ' ' {
					to[at], to[at+1] = '\\', "uuuuuuuubtnufruuuuuuuuuuuuuuuuuu"[c]
					if at += 2; to[at-1] == 'u' {
						at += copy(to[at:], []byte{'0', '0', digits[c>>4], digits[c&15]})
					}
					i++
				} else {
					r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
					at += utf8.EncodeRune(to[at:], r) // U+FFFD for what is not valid
					i += n
				}
			}
		}
		dst, s = to[:at], s[i:]
	}
	return append(dst, '"')
}
