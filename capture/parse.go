package capture

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/farcall-dev/farcall/internal/scan"
)

// parse reads a line.
func (r *Record) parse(line []byte) error {
	i := scan.Space(line, 0)
	if i >= len(line) || line[i] != '{' {
		return errors.New("it is not a JSON object")
	}
	for i = scan.Space(line, i+1); ; {
		if i < len(line) && line[i] == '}' && scan.Space(line, i+1) == len(line) {
			break
		}
		name, at, err := memberName(line, i)
		if err != nil {
			return err
		}
		if r.last(name, line[at:]) {
			break
		}
		end, f := scan.Value(line, at, 64)
		if f != scan.OK {
			return fmt.Errorf("byte %d: %s", end+1, f)
		}
		if !r.set(name, line[at:end:end]) {
			return fmt.Errorf("the value of %s is not valid", name)
		}
		i = scan.Space(line, end)
		if i < len(line) && line[i] == ',' {
			i = scan.Space(line, i+1)
		} else if i >= len(line) || line[i] != '}' {
			return fmt.Errorf("byte %d: a comma is missing", i+1)
		}
	}
	if r.Type == "" {
		return errors.New("it has no type")
	}
	return nil
}

// memberName returns the name of the member at i, and where its value is.
func memberName(line []byte, i int) (name []byte, at int, err error) {
	if i >= len(line) || line[i] != '"' {
		return nil, 0, fmt.Errorf("byte %d: the name of a member is missing", i+1)
	}
	for end := i + 1; end+2 < len(line) && line[end] >= ' ' && line[end] < 0x80; end++ {
		if line[end] == '\\' {
			break
		}
		if line[end] == '"' {
			if line[end+1] == ':' && line[end+2] > ' ' { // as a recorder writes it
				return line[i+1 : end], end + 2, nil
			}
			break
		}
	}
	end, _, f := scan.String(line, i)
	if f != scan.OK {
		return nil, 0, fmt.Errorf("byte %d: %s", end+1, f)
	}
	at, f = scan.Colon(line, end)
	if f != scan.OK {
		return nil, 0, fmt.Errorf("byte %d: %s", at+1, f)
	}
	return line[i+1 : end-1], at, nil
}

// last takes raw or b64 at the end of a line as it is: Data looks into it.
func (r *Record) last(name, rest []byte) bool {
	b64 := string(name) == "b64"
	n := len(rest)
	if !b64 && string(name) != "raw" || n < 3 ||
		rest[0] != '"' || rest[n-1] != '}' || rest[n-2] != '"' {
		return false
	}
	r.raw, r.b64 = rest[:n-1:n-1], b64
	return true
}

// set takes a member. Unknown ones are ignored. It reports whether the value has the right type.
func (r *Record) set(name, value []byte) bool {
	switch value[0] {
	case '"':
		if p := r.text(name); p != nil {
			*p = r.words.text(name, value)
			return true
		}
		return r.setData(name, value)
	case 't', 'f':
		if p := r.flag(name); p != nil {
			*p = value[0] == 't'
			return true
		}
	case '{', '[':
		return r.setMany(name, value)
	}
	return r.setNumber(name, value)
}

// setNumber takes a member that is a number.
func (r *Record) setNumber(name, value []byte) bool {
	field := r.number(name)
	if field == nil {
		return r.text(name) == nil && r.flag(name) == nil && !manyNamed(name)
	}
	n, ok := integer(value)
	if !ok {
		return false
	}
	switch field := field.(type) {
	case *int64:
		*field = n
	case *int:
		*field = int(n)
	case *uint64:
		*field = uint64(n)
		return n >= 0
	}
	return true
}

// number returns the field of a member that is a number: an *int64, an *int or a *uint64.
func (r *Record) number(name []byte) any {
	switch string(name) {
	case "seq":
		return &r.Seq
	case "conn":
		return &r.Conn
	case "x":
		return &r.Exchange
	case "ref":
		return &r.Ref
	case "call":
		return &r.Call
	case "parent":
		return &r.Parent
	case "t":
		return &r.Time
	case "mono":
		return &r.Mono
	case "dur":
		return &r.Duration
	case "code":
		return &r.Code
	case "n":
		return &r.Size
	case "cut":
		return &r.Cut
	case "status":
		return &r.Status
	case "v":
		return &r.Version
	}
	return nil
}

// text returns the field of a member that is a string.
func (r *Record) text(name []byte) *string { //nolint:gocyclo // a table of names
	switch string(name) {
	case "type":
		return &r.Type
	case "dir":
		return &r.Dir
	case "kind":
		return &r.Kind
	case "id":
		return &r.ID
	case "method":
		return &r.Method
	case "name":
		return &r.Name
	case "problem":
		return &r.Problem
	case "sha256":
		return &r.SHA256
	case "span":
		return &r.Span
	case "outcome":
		return &r.Outcome
	case "principal":
		return &r.Principal
	case "why":
		return &r.Why
	case "transport":
		return &r.Transport
	case "peer":
		return &r.Peer
	case "label":
		return &r.Label
	case "tls":
		return &r.TLS
	case "era":
		return &r.Era
	case "upstream":
		return &r.Upstream
	case "verb":
		return &r.Verb
	case "path":
		return &r.Path
	case "program":
		return &r.Program
	case "owner":
		return &r.Owner
	case "host":
		return &r.Host
	}
	return nil
}

// flag returns the field of a member that is true or false.
func (r *Record) flag(name []byte) *bool {
	switch string(name) {
	case "tool_error":
		return &r.ToolError
	case "closed":
		return &r.Closed
	case "redact":
		return &r.Redact
	case "envelopes":
		return &r.Envelopes
	}
	return nil
}

// setData takes raw or b64 when it is not the last member.
func (r *Record) setData(name, value []byte) bool {
	switch string(name) {
	case "raw", "b64":
		r.raw, r.b64 = value, name[0] == 'b'
		return true
	}
	return r.setNumber(name, value)
}

func manyNamed(name []byte) bool {
	switch string(name) {
	case "raw", "b64", "command", "header", "redacted":
		return true
	}
	return false
}

// setMany takes a member that is an array or an object.
func (r *Record) setMany(name, value []byte) bool {
	ok := true
	switch string(name) {
	case "command":
		scan.Array(value, func(word []byte) bool {
			if ok = word[0] == '"'; ok {
				r.Command = append(r.Command, string(scan.Unquote(word)))
			}
			return ok
		})
	case "header":
		r.Header = map[string]string{}
		scan.Object(value, func(key, value []byte) bool {
			if ok = value[0] == '"'; ok {
				r.Header[string(key)] = string(scan.Unquote(value))
			}
			return ok
		})
	case "redacted":
		scan.Array(value, func(one []byte) bool {
			at := Redaction{Path: scan.StringMember(one, "path"), Why: scan.StringMember(one, "why")}
			r.Redacted = append(r.Redacted, at)
			return true
		})
	default:
		return r.setNumber(name, value)
	}
	return ok
}

// words are texts that were read before. They need no memory again.
type words map[string]string

// text returns a string: one that often comes again from the words.
func (w words) text(name, value []byte) string {
	plain := scan.Unquote(value)
	switch string(name) {
	case "type", "dir", "kind", "method", "name", "upstream", "era", "principal", "outcome":
	default:
		return string(plain)
	}
	switch string(plain) { // most of them, without a hash
	case typeFrame:
		return typeFrame
	case dirUp:
		return dirUp
	case dirDown:
		return dirDown
	case kindRequest:
		return kindRequest
	case kindResponse:
		return kindResponse
	case kindNotification:
		return kindNotification
	}
	if known, ok := w[string(plain)]; ok {
		return known
	}
	text := string(plain)
	if w != nil && len(w) < maxWords && len(text) <= maxToken {
		w[text] = text
	}
	return text
}

// integer reads a number of JSON.
func integer(value []byte) (int64, bool) {
	if len(value) < 20 { // it fits, unless it becomes negative
		n := int64(0)
		for i, c := range value {
			if c < '0' || c > '9' {
				break
			}
			if n = 10*n + int64(c-'0'); i == len(value)-1 && n >= 0 {
				return n, true
			}
		}
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil
}
