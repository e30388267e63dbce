package audit

import (
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	maxDepth  = 64
	maxName   = 256
	maxNumber = 64
	// ahead is how much of a string is looked at beyond what is written of it, so that
	// a secret is seen although its end is not.
	ahead = 4 << 10

	redacted = `"[redacted]"`
	notJSON  = `"[not JSON]"`
)

// Redact returns params without secrets, as JSON of 16 KiB at most and without white space. What is
// left out is marked.
//
// The values of members are redacted with a name that is that of a secret: password, secret, token,
// authorization, cookie, api_key, private_key, credential, assertion, otp, pin and their like, or
// that of a pattern. Upper and lower case, - and _ make no difference. Patterns have * and ?; those
// with dots are paths from the top, too, in which arrays do not count and a name * stands for any
// number of names: "arguments.body", "*.card.number". Inside of strings what looks like a secret is
// masked: Bearer and Basic credentials, JWTs, keys of known forms, the user info of a URL, and what
// follows the name of a secret and = or :.
//
// What is not JSON becomes the string [not JSON].
func Redact(params []byte, patterns []string) []byte {
	return new(walker).redact(nil, params, compile(patterns), maxEntry)
}

// redact appends params, redacted, in about room bytes.
func (w *walker) redact(dst, params []byte, r *rules, room int) []byte {
	w.rules, w.in, w.out, w.end, w.full, w.path = r, params, dst, len(dst)+room-64, false, w.path[:0]
	i, ok := w.value(scan.Space(params, 0), 0)
	if ok && !w.full && scan.Space(params, i) < len(params) {
		ok = false
	}
	out := w.out
	w.in, w.out = nil, nil
	if !ok {
		return append(out[:len(dst)], notJSON...)
	}
	return out
}

// A walker goes over a text once and copies what may be seen. It stops when out is full.
type walker struct {
	rules *rules
	in    []byte
	out   []byte
	end   int
	full  bool
	path  []string // of the names so far; only where there are patterns with dots
	name  []byte   // scratch
	text  []byte   // scratch
}

// value copies the value at i and returns its end. When the walker is full the end means nothing.
func (w *walker) value(i, depth int) (end int, ok bool) {
	if i >= len(w.in) {
		return i, false
	}
	switch c := w.in[i]; {
	case c == '"':
		return w.string(i)
	case (c == '{' || c == '[') && depth >= maxDepth:
		w.out = append(w.out, `"[too deep]"`...)
		return w.skip(i)
	case c == '{':
		return w.container(i, depth, '}', (*walker).member, `"…":"[cut]"`)
	case c == '[':
		return w.container(i, depth, ']', (*walker).value, `"[cut]"`)
	}
	end, ok = w.skip(i)
	if !ok {
		return end, false
	}
	if end-i > maxNumber {
		w.out = append(w.out, `"[a number of `...)
		w.out = strconv.AppendInt(w.out, int64(end-i), 10)
		w.out = append(w.out, ` digits]"`...)
		return end, true
	}
	w.out = append(w.out, w.in[i:end]...)
	return end, true
}

func (w *walker) skip(i int) (end int, ok bool) {
	end, f := scan.Value(w.in, i, -1)
	return end, f == scan.OK
}

func (w *walker) string(i int) (end int, ok bool) {
	end, escaped, f := scan.String(w.in, i)
	if f != scan.OK {
		return end, false
	}
	room := max(w.end-len(w.out), 0)
	text := w.in[i+1 : end-1]
	if escaped {
		w.text = scan.AppendUnquoted(w.text[:0], w.in[i:end])
		text = w.text
	}
	whole := len(text)
	text = cut(text, room+ahead)
	if suspicious(text) {
		text = w.rules.mask(text, false)
	}
	if whole > room+ahead && len(text) <= room { // the rest was not looked at
		text = append(slices.Clip(text), "…"...)
	}
	w.out = appendText(w.out, text, room)
	return end, true
}

// container copies an object or an array: item copies each member or element. rest says that some
// are left out.
func (w *walker) container(
	i, depth int, last byte, item func(w *walker, i, depth int) (int, bool), rest string,
) (end int, ok bool) {
	w.out = append(w.out, w.in[i])
	i = scan.Space(w.in, i+1)
	if i < len(w.in) && w.in[i] == last {
		w.out = append(w.out, last)
		return i + 1, true
	}
	for first := true; ; first = false {
		if !first {
			w.out = append(w.out, ',')
		}
		if len(w.out) >= w.end {
			w.full = true
			w.out = append(append(w.out, rest...), last)
			return i, true
		}
		if i, ok = item(w, i, depth+1); !ok {
			return i, false
		}
		if w.full {
			w.out = append(w.out, last)
			return i, true
		}
		var done bool
		if i, done, ok = w.next(i, last); done || !ok {
			w.out = append(w.out, last)
			return i, ok
		}
	}
}

// member copies a name and its value.
func (w *walker) member(i, depth int) (end int, ok bool) {
	if i >= len(w.in) || w.in[i] != '"' {
		return i, false
	}
	end, escaped, f := scan.String(w.in, i)
	if f != scan.OK {
		return end, false
	}
	name := w.in[i+1 : end-1]
	if escaped {
		name = scan.AppendUnquoted(nil, w.in[i:end])
	}
	w.name = normalize(w.name[:0], name)
	secret := w.rules.secret(w.name)
	if !secret && w.rules.paths != nil {
		w.path = append(w.path, string(w.name))
		defer func() { w.path = w.path[:len(w.path)-1] }()
		secret = w.rules.secretPath(w.path)
	}
	shown := cut(name, maxName+ahead)
	if suspicious(shown) {
		shown = w.rules.mask(shown, false)
	}
	w.out = append(appendText(w.out, shown, maxName), ':')
	if i, f = scan.Colon(w.in, end); f != scan.OK {
		return i, false
	}
	if secret {
		w.out = append(w.out, redacted...)
		return w.skip(i)
	}
	return w.value(i, depth)
}

// next passes a comma, or the end of a container.
func (w *walker) next(i int, last byte) (end int, done, ok bool) {
	i = scan.Space(w.in, i)
	if i >= len(w.in) {
		return i, false, false
	}
	switch w.in[i] {
	case last:
		return i + 1, true, true
	case ',':
		return scan.Space(w.in, i+1), false, true
	}
	return i, false, false
}

// rules say what is secret.
type rules struct {
	names []string   // patterns, normalized
	paths [][]string // patterns with dots
}

func compile(patterns []string) *rules {
	r := new(rules)
	for _, p := range patterns {
		if p = string(normalize(nil, p)); p == "" {
			continue
		}
		r.names = append(r.names, p)
		if strings.Contains(p, ".") {
			r.paths = append(r.paths, strings.Split(p, "."))
		}
	}
	return r
}

// secret tells by the normalized name of a member.
func (r *rules) secret(name []byte) bool {
	if isSecret(name) {
		return true
	}
	return slices.ContainsFunc(r.names, func(p string) bool { return glob.Match(p, string(name)) })
}

func (r *rules) secretPath(path []string) bool {
	return slices.ContainsFunc(r.paths, func(p []string) bool { return matchPath(p, path) })
}

// matchPath matches as glob.Match does, with names for characters.
func matchPath(pattern, path []string) bool {
	p, s, star, from := 0, 0, -1, 0
	for s < len(path) {
		switch {
		case p < len(pattern) && pattern[p] == "*":
			star, from = p, s
			p++
		case p < len(pattern) && glob.Match(pattern[p], path[s]):
			p++
			s++
		case star >= 0:
			from++
			p, s = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "*" {
		p++
	}
	return p == len(pattern)
}

// MaskText returns a text with [redacted] in place of each secret, for a log. Unlike a Secrets it
// is safe for concurrent use.
func MaskText(text string) string {
	put := func(dst, _ []byte) []byte { return append(dst, "[redacted]"...) }
	return string(NewSecrets(nil).Mask([]byte(text), put))
}
