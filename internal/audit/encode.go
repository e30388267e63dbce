package audit

import (
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	maxEntry = 16 << 10 // bytes of a line, about
	maxText  = 1 << 10  // of a member, as it is written
	maxNames = 2 << 10

	// What a caller makes the log write by refused calls is bounded more tightly.
	maxRefusal     = 4 << 10
	maxRefusalText = 512
)

// append appends the line of an entry, without its closing brace. Each text has room bytes at most.
func (l *Log) append(dst []byte, e *Entry, w *walker, room int) []byte {
	t := e.Time
	if t.IsZero() {
		t = l.opts.Now()
	}
	set := l.settings.Load()
	dst = appendTime(dst, `{"time":`, t)
	dst = appendMember(dst, `,"decision":`, e.Decision, room)
	dst = appendMember(dst, `,"principal":`, e.Principal, room)
	dst = appendMember(dst, `,"kind":`, e.Kind, room)
	dst = appendMember(dst, `,"method":`, e.Method, room)
	dst = appendMember(dst, `,"issuer":`, e.Issuer, room)
	dst = appendNames(dst, `,"roles":`, e.Roles)
	dst = appendNames(dst, `,"scopes":`, e.Scopes)
	dst = appendMember(dst, `,"address":`, e.Address, room)
	dst = appendMember(dst, `,"transport":`, e.Transport, room)
	dst = set.rules.masked(dst, `,"call":`, e.Call, room)
	dst = appendMember(dst, `,"upstream":`, e.Upstream, room)
	if len(e.Policies) > 0 {
		dst = appendNames(dst, `,"policies":`, e.Policies)
	}
	dst = set.rules.masked(dst, `,"reason":`, e.Reason, room)
	if e.Error != 0 {
		dst = appendNumber(dst, `,"error":`, int64(e.Error))
	}
	if e.Latency > 0 {
		dst = appendNumber(dst, `,"latencyMicros":`, micros(e.Latency))
	}
	if set.params && len(e.Params) > 0 {
		most := maxEntry
		if room < maxText {
			most = maxRefusal
		}
		dst = append(dst, `,"params":`...)
		dst = w.redact(dst, e.Params, set.rules, max(most-len(dst), maxText))
	}
	return dst
}

// appendOutcome appends the line of an outcome, without its closing brace.
func appendOutcome(dst []byte, o *Outcome, now time.Time) []byte {
	dst = appendTime(dst, `{"time":`, now)
	dst = appendMember(dst, `,"outcome":`, o.Status, maxText)
	dst = strconv.AppendUint(append(dst, `,"of":`...), o.Of, 10)
	if o.Error != 0 {
		dst = appendNumber(dst, `,"error":`, int64(o.Error))
	}
	if o.IsError {
		dst = append(dst, `,"isError":true`...)
	}
	dst = appendNumber(dst, `,"durationMicros":`, micros(o.Duration))
	dst = appendNumber(dst, `,"requestBytes":`, int64(o.Request))
	if o.Result >= 0 {
		dst = appendNumber(dst, `,"resultBytes":`, int64(o.Result))
	}
	for i, h := range o.Hooks {
		if i == 0 {
			dst = append(dst, `,"hooks":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = appendMember(dst, `{"hook":`, h.Hook, maxText)
		dst = appendMember(dst, `,"outcome":`, h.Outcome, maxText)
		dst = append(appendNumber(dst, `,"durationMicros":`, micros(h.Took)), '}')
		if i == len(o.Hooks)-1 {
			dst = append(dst, ']')
		}
	}
	return dst
}

// An event is something that happened to the log itself.
type event struct {
	name     string // "opened", "closed", "deleted"
	torn     int    // opened: bytes of the unfinished line before it, and their hash
	tornHash string
	open     int // closed: calls without an outcome
	files    int // deleted: how many files, the last line in them, and why
	through  seal
	reason   string
}

// append appends the line of an event, without its closing brace.
func (e *event) append(dst []byte, now time.Time) []byte {
	dst = appendTime(dst, `{"time":`, now)
	dst = appendMember(dst, `,"event":`, e.name, maxText)
	if e.torn > 0 {
		dst = appendNumber(dst, `,"torn":`, int64(e.torn))
		dst = appendMember(dst, `,"tornHash":`, e.tornHash, maxText)
	}
	if e.open > 0 {
		dst = appendNumber(dst, `,"open":`, int64(e.open))
	}
	if e.files > 0 {
		dst = appendNumber(dst, `,"files":`, int64(e.files))
	}
	if e.through.seq > 0 {
		dst = strconv.AppendUint(append(dst, `,"through":`...), e.through.seq, 10)
		dst = appendMember(dst, `,"throughHash":`, e.through.hash, maxText)
	}
	return appendMember(dst, `,"reason":`, e.reason, maxText)
}

func appendTime(dst []byte, name string, t time.Time) []byte {
	dst = append(append(dst, name...), '"')
	return append(t.UTC().AppendFormat(dst, time.RFC3339Nano), '"')
}

func appendNumber(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), n, 10)
}

// micros rounds up.
func micros(d time.Duration) int64 { return max(0, (d + time.Microsecond - 1).Microseconds()) }

func appendMember(dst []byte, name, s string, room int) []byte {
	if s == "" {
		return dst
	}
	return appendText(append(dst, name...), s, room)
}

// masked is for texts that may quote a caller: a URI with a password in it.
func (r *rules) masked(dst []byte, name, s string, room int) []byte {
	if s == "" || !suspicious(cut(s, 4*room)) {
		return appendMember(dst, name, s, room)
	}
	return appendText(append(dst, name...), r.mask([]byte(cut(s, 4*room)), true), room)
}

func appendNames(dst []byte, member string, names []string) []byte {
	if names == nil {
		return dst
	}
	dst = append(append(dst, member...), '[')
	end := len(dst) + maxNames
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

// appendText appends s as a JSON string that is one line for every reader: also what is not ASCII
// and breaks lines, turns them around or moves a terminal's cursor is escaped. Bytes that are not
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
			for i++; i < len(s) && i-start < end-len(dst) && s[i] >= ' ' && s[i] < 0x7f && s[i] != '"' &&
				s[i] != '\\'; i++ {
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
