package capture

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
)

// parse reads a line.
func (r *Record) parse(line []byte) error {
	i := r.quick(line)
	if i == 0 {
		if i = scan.Space(line, 0); i >= len(line) || line[i] != '{' {
			return errors.New("it is not a JSON object")
		}
		i = scan.Space(line, i+1)
	}
	for i >= len(line) || line[i] != '}' || scan.Space(line, i+1) != len(line) {
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

// quick reads the members of a frame that Append has written, in its order, up to the first one
// with an escape or anything else that is not as Append writes it. It returns where the next member
// is, or 0 when the line is another one.
func (r *Record) quick(line []byte) int {
	const start = `{"type":"frame"`
	if !bytes.HasPrefix(line, []byte(start)) {
		return 0
	}
	r.Type = typeFrame
	q := memberReader{line, len(start), r.words}
	r.Seq = uint64(q.number(`,"seq":`))
	r.Time = q.number(`,"t":`)
	r.Mono = q.number(`,"mono":`)
	r.Conn = uint64(q.number(`,"conn":`))
	r.Exchange = uint64(q.number(`,"x":`))
	r.Dir = q.text(`,"dir":"`)
	r.Kind = q.text(`,"kind":"`)
	r.ID = string(q.bytes(`,"id":"`))
	r.Method = q.text(`,"method":"`)
	r.Name = q.text(`,"name":"`)
	r.Ref = uint64(q.number(`,"ref":`))
	r.Duration = q.number(`,"dur":`)
	r.Size = int(q.number(`,"n":`))
	if q.at >= len(line) || line[q.at] != ',' {
		return 0
	}
	return scan.Space(line, q.at+1)
}

// A memberReader reads the members of a line in the order in which Append writes them.
type memberReader struct {
	line  []byte
	at    int
	words words
}

// after returns where the value of a member begins; 0: the next one is another.
func (q *memberReader) after(key string) int {
	if end := q.at + len(key); end < len(q.line) && string(q.line[q.at:end]) == key {
		return end
	}
	return 0
}

// number reads a member that is not negative; 0: it is not the next one.
func (q *memberReader) number(key string) (n int64) {
	i := q.after(key)
	if i == 0 || q.line[i] == '0' { // 01 is not a number
		return 0
	}
	for start := i; i < len(q.line) && i-start < 20; i++ {
		c := q.line[i] - '0'
		if c <= 9 {
			n = 10*n + int64(c)
			continue
		}
		if q.line[i] == ',' && n > 0 { // 19 digits may be too many
			q.at = i
			return n
		}
		break
	}
	return 0
}

// bytes reads a string without escapes, of ASCII; nil: that is not the next member.
func (q *memberReader) bytes(key string) []byte {
	start := q.after(key)
	if start == 0 {
		return nil
	}
	for i := start; i+1 < len(q.line); i++ {
		switch c := q.line[i]; {
		case c == '"' && q.line[i+1] == ',':
			q.at = i + 1
			return q.line[start:i]
		case c == '"', c == '\\', c < ' ', c >= utf8.RuneSelf:
			return nil
		}
	}
	return nil
}

// text is bytes, of a text that often comes again.
func (q *memberReader) text(key string) string {
	if b := q.bytes(key); len(b) > 0 {
		return q.words.often(b)
	}
	return ""
}

// memberName returns the name of the member at i, and where its value is.
func memberName(line []byte, i int) (name []byte, at int, err error) {
	if i >= len(line) || line[i] != '"' {
		return nil, 0, fmt.Errorf("byte %d: the name of a member is missing", i+1)
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
		if field := texts[string(name)]; field != nil {
			*field(r) = r.words.text(name, value)
			return true
		}
		if string(name) == "raw" || string(name) == "b64" { // not the last member
			r.raw, r.b64 = value, name[0] == 'b'
			return true
		}
	case 't', 'f':
		if field := flags[string(name)]; field != nil {
			*field(r) = value[0] == 't'
			return true
		}
	case '{', '[':
		return r.setMany(name, value)
	}
	return r.setNumber(name, value)
}

// setNumber takes a member that is a number.
func (r *Record) setNumber(name, value []byte) bool {
	field := numbers[string(name)]
	if field == nil {
		return texts[string(name)] == nil && flags[string(name)] == nil &&
			!slices.Contains(others, string(name))
	}
	n, ok := integer(value)
	if !ok {
		return false
	}
	switch field := field(r).(type) {
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

// numbers are the fields of members that are numbers: an *int64, an *int or a *uint64.
var numbers = map[string]func(*Record) any{
	"seq":    func(r *Record) any { return &r.Seq },
	"conn":   func(r *Record) any { return &r.Conn },
	"x":      func(r *Record) any { return &r.Exchange },
	"ref":    func(r *Record) any { return &r.Ref },
	"call":   func(r *Record) any { return &r.Call },
	"parent": func(r *Record) any { return &r.Parent },
	"t":      func(r *Record) any { return &r.Time },
	"mono":   func(r *Record) any { return &r.Mono },
	"dur":    func(r *Record) any { return &r.Duration },
	"code":   func(r *Record) any { return &r.Code },
	"n":      func(r *Record) any { return &r.Size },
	"cut":    func(r *Record) any { return &r.Cut },
	"status": func(r *Record) any { return &r.Status },
	"v":      func(r *Record) any { return &r.Version },
}

// texts are the fields of members that are strings.
var texts = map[string]func(*Record) *string{
	"type":      func(r *Record) *string { return &r.Type },
	"dir":       func(r *Record) *string { return &r.Dir },
	"kind":      func(r *Record) *string { return &r.Kind },
	"id":        func(r *Record) *string { return &r.ID },
	"method":    func(r *Record) *string { return &r.Method },
	"name":      func(r *Record) *string { return &r.Name },
	"problem":   func(r *Record) *string { return &r.Problem },
	"sha256":    func(r *Record) *string { return &r.SHA256 },
	"span":      func(r *Record) *string { return &r.Span },
	"outcome":   func(r *Record) *string { return &r.Outcome },
	"principal": func(r *Record) *string { return &r.Principal },
	"why":       func(r *Record) *string { return &r.Why },
	"transport": func(r *Record) *string { return &r.Transport },
	"peer":      func(r *Record) *string { return &r.Peer },
	"label":     func(r *Record) *string { return &r.Label },
	"tls":       func(r *Record) *string { return &r.TLS },
	"era":       func(r *Record) *string { return &r.Era },
	"upstream":  func(r *Record) *string { return &r.Upstream },
	"verb":      func(r *Record) *string { return &r.Verb },
	"path":      func(r *Record) *string { return &r.Path },
	"program":   func(r *Record) *string { return &r.Program },
	"owner":     func(r *Record) *string { return &r.Owner },
	"host":      func(r *Record) *string { return &r.Host },
}

// flags are the fields of members that are true or false.
var flags = map[string]func(*Record) *bool{
	"tool_error": func(r *Record) *bool { return &r.ToolError },
	"closed":     func(r *Record) *bool { return &r.Closed },
	"redact":     func(r *Record) *bool { return &r.Redact },
	"envelopes":  func(r *Record) *bool { return &r.Envelopes },
}

// others are the members of other types: the bytes of a frame, arrays and objects.
var others = []string{"raw", "b64", "command", "header", "redacted"}

// setMany takes a member that is an array or an object.
func (r *Record) setMany(name, value []byte) bool {
	switch string(name) {
	case "command":
		for word := range scan.Elements(value) {
			if word[0] != '"' {
				return false
			}
			r.Command = append(r.Command, string(scan.Unquote(word)))
		}
	case "header":
		r.Header = map[string]string{}
		for key, value := range scan.Members(value) {
			if value[0] != '"' {
				return false
			}
			r.Header[string(key)] = string(scan.Unquote(value))
		}
	case "redacted":
		for one := range scan.Elements(value) {
			at := Redaction{Path: scan.StringMember(one, "path"), Why: scan.StringMember(one, "why")}
			r.Redacted = append(r.Redacted, at)
		}
	default:
		return r.setNumber(name, value)
	}
	return true
}

// words are texts that were read before. They need no memory again.
type words map[string]string

// text returns a string: one that often comes again from the words.
func (w words) text(name, value []byte) string {
	plain := scan.Unquote(value)
	switch string(name) {
	case "type", "dir", "kind", "method", "name", "upstream", "era", "principal", "outcome":
		return w.often(plain)
	}
	return string(plain)
}

// often returns a text that often comes again.
func (w words) often(plain []byte) string {
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
