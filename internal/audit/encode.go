package audit

import (
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	maxEntry    = 16 << 10 // bytes of a line, about
	maxText     = 1 << 10  // of a member, as it is written
	maxPolicies = 2 << 10
)

// append appends the line of an entry.
func (l *Log) append(dst []byte, e *Entry, w *walker) []byte {
	t := e.Time
	if t.IsZero() {
		t = l.opts.Now()
	}
	dst = append(dst, `{"time":"`...)
	dst = t.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, '"')
	dst = appendMember(dst, `,"decision":`, e.Decision)
	dst = appendMember(dst, `,"principal":`, e.Principal)
	dst = appendMember(dst, `,"kind":`, e.Kind)
	dst = appendMember(dst, `,"method":`, e.Method)
	dst = appendMember(dst, `,"issuer":`, e.Issuer)
	dst = appendMember(dst, `,"address":`, e.Address)
	dst = appendMember(dst, `,"transport":`, e.Transport)
	dst = l.rules.masked(dst, `,"call":`, e.Call)
	dst = appendMember(dst, `,"upstream":`, e.Upstream)
	dst = appendPolicies(dst, e.Policies)
	dst = l.rules.masked(dst, `,"reason":`, e.Reason)
	if e.Error != 0 {
		dst = append(dst, `,"error":`...)
		dst = strconv.AppendInt(dst, int64(e.Error), 10)
	}
	if e.Latency > 0 {
		dst = append(dst, `,"latencyMicros":`...)
		dst = strconv.AppendInt(dst, (e.Latency + time.Microsecond - 1).Microseconds(), 10)
	}
	if l.opts.Params && len(e.Params) > 0 {
		dst = append(dst, `,"params":`...)
		dst = w.redact(dst, e.Params, l.rules, max(maxEntry-len(dst), maxText))
	}
	return append(dst, "}\n"...)
}

func appendMember(dst []byte, name, s string) []byte {
	if s == "" {
		return dst
	}
	return appendText(append(dst, name...), s, maxText)
}

// masked is for texts that may quote a caller: a URI with a password in it.
func (r *rules) masked(dst []byte, name, s string) []byte {
	if s == "" || !suspicious(s) {
		return appendMember(dst, name, s)
	}
	return appendText(append(dst, name...), r.mask([]byte(cut(s, 4*maxText)), true), maxText)
}

func appendPolicies(dst []byte, names []string) []byte {
	if len(names) == 0 {
		return dst
	}
	dst = append(dst, `,"policies":[`...)
	end := len(dst) + maxPolicies
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		if len(dst) > end {
			dst = append(dst, `"… `...)
			dst = strconv.AppendInt(dst, int64(len(names)-i), 10)
			dst = append(dst, ` more"`...)
			break
		}
		dst = appendText(dst, name, maxText)
	}
	return append(dst, ']')
}

// appendText appends s as a JSON string that is one line for every reader: also what is not
// ASCII and breaks lines, turns them around or moves a terminal's cursor is escaped. Bytes that are not
// UTF-8 become U+FFFD. What would be longer than room is cut, with a mark.
func appendText[S string | []byte](dst []byte, s S, room int) []byte {
	const digits = "0123456789abcdef"
	end := len(dst) + room
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		if len(dst) >= end {
			dst = append(dst, "… ("...)
			dst = strconv.AppendInt(dst, int64(len(s)-i), 10)
			dst = append(dst, " bytes more)"...)
			break
		}
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
		case c >= ' ' && c < 0x7f:
			start := i
			for i++; i < len(s) && i-start < end-len(dst) && s[i] >= ' ' && s[i] < 0x7f && s[i] != '"' && s[i] != '\\'; i++ {
			}
			dst = append(dst, s[start:i]...)
		case c < utf8.RuneSelf:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
			i++
		default:
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			i += n
			if !moves(r) {
				dst = utf8.AppendRune(dst, r)
				break
			}
			dst = append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		}
	}
	return append(dst, '"')
}

// moves reports whether a character does something to the line that it is in.
func moves(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0x9f, // controls
		r == 0x61c, r >= 0x200e && r <= 0x200f, // marks of direction
		r >= 0x2028 && r <= 0x202e, // separators, and changes of direction
		r >= 0x2066 && r <= 0x2069, r == 0xfeff:
		return true
	}
	return false
}

// cut is at most n bytes of s.
func cut[S string | []byte](s S, n int) S {
	if len(s) > n {
		return s[:n]
	}
	return s
}
