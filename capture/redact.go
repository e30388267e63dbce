package capture

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/audit"
	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	maxDepth = 64
	// maxRedacted bounds how many places of one record are listed.
	maxRedacted = 64

	whyName  = "name"
	whyValue = "value"
	whyCut   = "cut"
)

// A redactor replaces secrets in frames. It keeps names, structure and types, and the bytes of
// everything else. It is used by one goroutine.
type redactor struct {
	secrets *audit.Secrets
	mac     hash.Hash
	sum     []byte

	in, out []byte
	cut     bool // in is only the beginning of a frame
	path    [][]byte
	found   []Redaction
	scratch []byte
}

func newRedactor(patterns []string) *redactor {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it does not fail
	return &redactor{secrets: audit.NewSecrets(patterns), mac: hmac.New(sha256.New, key)}
}

// frame returns the bytes of a frame without its secrets, which are valid until the next call,
// and lists in rec where they were.
func (x *redactor) frame(data []byte, cut bool, rec *Record) []byte {
	x.in, x.out, x.cut, x.path, x.found = data, x.out[:0], cut, x.path[:0], rec.Redacted
	i := scan.Space(data, 0)
	x.out = append(x.out, data[:i]...)
	end, ok := x.value(i, 0, plainValue)
	switch {
	case ok:
		rest, _ := x.mask(data[end:])
		x.out = append(x.out, rest...)
	case !cut: // it is not JSON
		x.found, x.path = rec.Redacted, x.path[:0]
		whole, _ := x.mask(data)
		x.out = append(x.out[:0], whole...)
	}
	rec.Redacted = x.found
	if len(x.found) == 0 && ok {
		return data
	}
	return x.out
}

// How a value is looked at.
type way uint8

const (
	plainValue   way = iota
	secretValue      // its strings and numbers are secrets
	schemaValue      // it is a JSON schema, or in one
	secretSchema     // that of a property with a secret value
)

// value copies the value at i, and returns its end; ok is false when the text ends, or is not
// valid, before that.
func (x *redactor) value(i, depth int, w way) (end int, ok bool) {
	if i >= len(x.in) {
		return i, false
	}
	switch c := x.in[i]; {
	case c == '"':
		return x.text(i, w)
	case c == '{' && depth < maxDepth:
		return x.container(i, depth, w, '}', (*redactor).member)
	case c == '[' && depth < maxDepth:
		return x.container(i, depth, w, ']', (*redactor).value)
	}
	end, f := scan.Value(x.in, i, -1)
	if f != scan.OK || x.cut && end == len(x.in) {
		return end, false
	}
	switch c := x.in[i]; {
	case c == '{' || c == '[': // too deep to look into
		x.out = append(x.out, "null"...)
		x.note(whyCut)
	case w == secretValue && (c == '-' || c >= '0' && c <= '9'):
		x.out = append(x.out, '0')
		x.note(whyName)
	default:
		x.out = append(x.out, x.in[i:end]...)
	}
	return end, true
}

// text copies a string.
func (x *redactor) text(i int, w way) (end int, ok bool) {
	end, escaped, f := scan.String(x.in, i)
	if f != scan.OK {
		return end, false // a string that is cut is left out: its end could show what it is
	}
	plain := x.in[i+1 : end-1]
	if w == secretValue && len(plain) > 0 {
		if escaped {
			plain = scan.Unquote(x.in[i:end])
		}
		x.note(whyName)
		x.out = append(x.hashed(append(x.out, '"'), plain), '"')
		return end, true
	}
	if escaped {
		x.scratch = scan.AppendUnquoted(x.scratch[:0], x.in[i:end])
		plain = x.scratch
	}
	if masked, found := x.mask(plain); found {
		x.out = scan.AppendQuoted(x.out, masked)
	} else {
		x.out = append(x.out, x.in[i:end]...)
	}
	return end, true
}

// mask replaces what looks like a secret in a text.
func (x *redactor) mask(text []byte) (masked []byte, found bool) {
	masked = x.secrets.Mask(text, func(dst, secret []byte) []byte {
		found = true
		return x.hashed(dst, secret)
	})
	if found {
		x.note(whyValue)
	}
	return masked, found
}

// container copies an object or an array: item copies each member or element.
func (x *redactor) container(
	i, depth int, w way, last byte, item func(x *redactor, i, depth int, w way) (int, bool),
) (end int, ok bool) {
	x.out = append(x.out, x.in[i])
	if i = x.space(i + 1); i < len(x.in) && x.in[i] == last {
		x.out = append(x.out, last)
		return i + 1, true
	}
	for {
		if i, ok = item(x, i, depth+1, w); !ok {
			return i, false
		}
		i = x.space(i)
		if i >= len(x.in) || x.in[i] != ',' && x.in[i] != last {
			return i, false
		}
		x.out = append(x.out, x.in[i])
		if x.in[i] == last {
			return i + 1, true
		}
		i = x.space(i + 1)
	}
}

// member copies a member of an object.
func (x *redactor) member(i, depth int, w way) (end int, ok bool) {
	if i >= len(x.in) || x.in[i] != '"' {
		return i, false
	}
	end, escaped, f := scan.String(x.in, i)
	if f != scan.OK {
		return end, false
	}
	name := x.in[i+1 : end-1]
	if escaped {
		name = scan.Unquote(x.in[i:end])
	}
	shown, found := x.mask(name)
	if found {
		x.out = scan.AppendQuoted(x.out, shown)
	} else {
		x.out = append(x.out, x.in[i:end]...)
	}
	at, f := scan.Colon(x.in, end)
	if f != scan.OK {
		return at, false
	}
	x.out = append(x.out, x.in[end:at]...)
	x.path = append(x.path, shown)
	end, ok = x.value(at, depth, x.way(name, w))
	x.path = x.path[:len(x.path)-1]
	return end, ok
}

// way says how the value of a member is looked at, which is in a value that is looked at so.
func (x *redactor) way(name []byte, in way) way {
	switch in {
	case secretValue:
		return in
	case schemaValue, secretSchema:
		switch string(name) {
		case "default", "const", "enum", "examples", "example":
			if in == secretSchema {
				return secretValue
			}
			return plainValue
		}
		if len(x.path) > 1 && string(x.path[len(x.path)-2]) == "properties" && x.secrets.Named(name) {
			return secretSchema
		}
		return in
	}
	switch string(name) {
	case "inputSchema", "outputSchema", "requestedSchema":
		return schemaValue
	}
	if x.secrets.Named(name) || x.secrets.Placed(x.path) {
		return secretValue
	}
	return plainValue
}

// space copies white space.
func (x *redactor) space(i int) int {
	end := scan.Space(x.in, i)
	x.out = append(x.out, x.in[i:end]...)
	return end
}

// hashed appends what stands in place of a secret.
func (x *redactor) hashed(dst, secret []byte) []byte {
	x.mac.Reset()
	_, _ = x.mac.Write(secret) // it does not fail
	x.sum = x.mac.Sum(x.sum[:0])
	dst = hex.AppendEncode(append(dst, "[redacted:"...), x.sum[:4])
	class := int64(1) << bits.Len(uint(max(len(secret)-1, 0)))
	return append(strconv.AppendInt(append(dst, ':'), class, 10), ']')
}

// note lists the place.
func (x *redactor) note(why string) {
	if len(x.found) < maxRedacted {
		x.found = append(x.found, Redaction{Path: string(bytes.Join(x.path, []byte("."))), Why: why})
	}
}

// record replaces secrets in what is no frame.
func (x *redactor) record(rec *Record) {
	x.path, x.found = x.path[:0], nil
	for _, text := range []*string{&rec.Path, &rec.Why, &rec.Peer, &rec.Name, &rec.ID} {
		*text = x.plain(*text)
	}
	for i := range rec.Command {
		rec.Command[i] = x.argument(rec.Command, i)
	}
	for name, value := range rec.Header {
		rec.Header[name] = x.plain(value)
	}
	if rec.HasData() {
		if data, err := rec.Data(); err == nil {
			masked, _ := x.mask(data)
			rec.SetData(slices.Clone(masked))
		}
	}
	rec.Redacted = x.found
}

// argument is an argument of a command, which the one before may name: --token VALUE.
func (x *redactor) argument(all []string, i int) string {
	if i > 0 && strings.HasPrefix(all[i-1], "-") && !strings.Contains(all[i-1], "=") &&
		x.secrets.Named([]byte(strings.TrimLeft(all[i-1], "-"))) {
		x.note(whyName)
		return string(x.hashed(nil, []byte(all[i])))
	}
	return x.plain(all[i])
}

func (x *redactor) plain(text string) string {
	masked, _ := x.mask([]byte(text))
	return string(masked)
}
