package scan

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Object calls yield with the name, unescaped, and the value of each member of
// the object b, in order, until yield returns false. It does nothing when b is
// no object. The slices are parts of b, except a name that was written with
// escapes. Of a text that is not valid it gives the members before the fault.
func Object(b []byte, yield func(key, value []byte) bool) {
	i := Space(b, 0)
	if i >= len(b) || b[i] != '{' {
		return
	}
	for {
		i = Space(b, i+1)
		if i >= len(b) || b[i] != '"' {
			return
		}
		start := i
		end, escaped, f := String(b, i)
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
		if end, f = Value(b, start, -1); f != OK || !yield(key, b[start:end:end]) {
			return
		}
		if i = Space(b, end); i >= len(b) || b[i] != ',' {
			return
		}
	}
}

// Beginning is Object for the beginning of an object, that may end anywhere: the value of the
// member in which it ends is nil.
func Beginning(b []byte, yield func(key, value []byte) bool) {
	first := byte('{')
	for i := Space(b, 0); i < len(b) && b[i] == first; first = ',' {
		start := Space(b, i+1)
		if start >= len(b) || b[start] != '"' {
			return
		}
		end, _, f := String(b, start)
		if f != OK {
			return
		}
		key := Unquote(b[start:end])
		if start, f = Colon(b, end); f != OK {
			return
		}
		end, f = Value(b, start, -1)
		if f != OK || end == len(b) { // a number may go on
			yield(key, nil)
			return
		}
		if !yield(key, b[start:end:end]) {
			return
		}
		i = Space(b, end)
	}
}

// Member returns the value of a member of the object b, or nil.
func Member(b []byte, name string) (value []byte) {
	Object(b, func(key, v []byte) bool {
		if string(key) == name {
			value = v
		}
		return value == nil
	})
	return value
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

// Array calls yield with each element of the array b, in order, until yield
// returns false. It does nothing when b is no array. Of a text that is not
// valid it gives the elements before the fault.
func Array(b []byte, yield func(value []byte) bool) {
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

// AppendQuoted appends s as a JSON string. It escapes only what must be
// escaped; bytes that are not UTF-8 become U+FFFD.
func AppendQuoted[S string | []byte](dst []byte, s S) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(append(dst, s[start:i]...), '\\')
		switch c {
		case '"', '\\':
			dst = append(dst, c)
		case '\b':
			dst = append(dst, 'b')
		case '\f':
			dst = append(dst, 'f')
		case '\n':
			dst = append(dst, 'n')
		case '\r':
			dst = append(dst, 'r')
		case '\t':
			dst = append(dst, 't')
		default:
			dst = append(dst, 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
