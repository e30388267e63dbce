package capture

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
)

// version is that of the format.
const version = 1

// A Record is one line of a capture. Which fields it has depends on its Type: the comment of the
// package has the format. What a [Reader] returns is valid until its next call of Next, unless it
// is cloned.
type Record struct {
	Type string
	Seq  uint64
	Time int64 // of the wall clock: nanoseconds since 1970
	Mono int64 // of the monotonic clock: nanoseconds since the capture began

	Conn     uint64 // number of the connection
	Exchange uint64 // x: of HTTP, the number of the request to which a frame or an envelope belongs
	Dir      string // "up": to the server; "down": to the client
	Kind     string // of a frame: "request", "notification", "response", "batch" or "bad"
	ID       string // of a message, as JSON
	Method   string
	Name     string // of the tool, prompt, resource or policy
	Ref      uint64 // Seq of the request that a response answers; 0: not known
	Duration int64  // dur: nanoseconds
	Code     int    // of an error, 0: none
	// ToolError: the result of a tool says that it failed.
	ToolError bool
	Problem   string // of a bad frame
	Size      int    // n: of a frame in bytes, or how many frames there were
	Cut       int    // how many bytes of a frame were kept; 0: all
	SHA256    string // of a whole frame that was cut, in hex
	Redacted  []Redaction

	Call, Parent uint64 // numbers of calls
	Span         string // trace and span id
	Outcome      string // of a decision
	Principal    string // who calls
	Why          string

	Transport, Peer, Label, TLS string
	Era                         string // the revision of MCP
	Upstream                    string
	Command                     []string
	Closed                      bool

	Verb, Path string // of an HTTP request
	Status     int    // of an HTTP answer
	Header     map[string]string

	Version              int // of the format
	Program, Owner, Host string
	Redact, Envelopes    bool

	words words  // of the reader
	side  string // of the reader: the upstream that the connection leads to
	raw   []byte // the JSON string, or nil
	b64   bool
	id    []byte // in place of ID, in a recorder
	data  []byte // what raw or b64 stands for, when there is no raw
}

// A Redaction is one place in a frame with a replaced value.
type Redaction struct {
	Path string // names from the top with dots between; "" in what is not JSON
	Why  string // "name": of the member; "value": what it looks like
}

// At returns the time of the wall clock.
func (r *Record) At() time.Time { return time.Unix(0, r.Time) }

// Side returns the name of the upstream to which the connection of the record leads: in a gateway,
// the other side of a call. It is "" for what passed between clients and the server that recorded
// it. Only a record of a [Reader] has it.
func (r *Record) Side() string { return r.side }

// HasData reports whether the record has bytes. A frame has none when only envelopes are kept.
func (r *Record) HasData() bool { return r.raw != nil || r.data != nil }

// Data returns the bytes of a frame, or of what was written to standard error; nil when it has
// none. It fails when the line is not valid. The bytes are new memory, or valid as long as the
// record is.
func (r *Record) Data() ([]byte, error) {
	data, _, err := r.into(nil)
	return data, err
}

// into is Data, in a buffer where that is large enough. copied: the bytes are not the record's.
func (r *Record) into(buf []byte) (data []byte, copied bool, err error) {
	switch {
	case r.raw == nil:
		return r.data, false, nil
	case r.b64:
		data, err = base64.StdEncoding.AppendDecode(buf, r.raw[1:len(r.raw)-1])
		if err != nil {
			return nil, false, fmt.Errorf("record %d: b64 is not valid: %w", r.Seq, err)
		}
		return data, true, nil
	}
	end, escaped, f := scan.String(r.raw, 0)
	if f != scan.OK || end != len(r.raw) {
		return nil, false, fmt.Errorf("record %d: raw is not a valid string", r.Seq)
	}
	if !escaped {
		return r.raw[1 : end-1 : end-1], false, nil
	}
	return scan.AppendUnquoted(slices.Grow(buf, end), r.raw), true, nil
}

// Clone returns a copy that stays valid.
func (r *Record) Clone() *Record {
	c := *r
	c.raw, c.data = slices.Clone(r.raw), slices.Clone(r.data)
	c.Redacted, c.Command = slices.Clone(r.Redacted), slices.Clone(r.Command)
	c.Header = maps.Clone(r.Header)
	return &c
}

// SetData gives the record other bytes.
func (r *Record) SetData(data []byte) { r.data, r.raw, r.b64 = data, nil, false }

// Append appends the record as a line of a capture, with the line feed.
func (r *Record) Append(dst []byte) []byte {
	dst = append(dst, '{')
	if r.Version != 0 {
		dst = append(strconv.AppendInt(append(dst, `"v":`...), int64(r.Version), 10), ',')
	}
	dst = scan.AppendQuoted(append(dst, `"type":`...), r.Type)
	dst = appendInt(dst, `,"seq":`, int64(r.Seq))
	dst = appendInt(dst, `,"t":`, r.Time)
	dst = appendInt(dst, `,"mono":`, r.Mono)
	dst = appendInt(dst, `,"conn":`, int64(r.Conn))
	dst = appendInt(dst, `,"x":`, int64(r.Exchange))
	dst = appendText(dst, `,"dir":`, r.Dir)
	dst = appendText(dst, `,"kind":`, r.Kind)
	if r.id != nil {
		dst = appendText(dst, `,"id":`, r.id)
	} else {
		dst = appendText(dst, `,"id":`, r.ID)
	}
	dst = appendText(dst, `,"method":`, r.Method)
	dst = appendText(dst, `,"name":`, r.Name)
	dst = appendInt(dst, `,"ref":`, int64(r.Ref))
	dst = appendInt(dst, `,"dur":`, r.Duration)
	dst = appendInt(dst, `,"code":`, int64(r.Code))
	dst = appendBool(dst, `,"tool_error":true`, r.ToolError)
	dst = appendText(dst, `,"problem":`, r.Problem)
	if r.Type != typeFrame {
		dst = r.appendRest(dst)
	} else if r.Call != 0 {
		dst = r.appendCall(dst)
	}
	dst = appendInt(dst, `,"n":`, int64(r.Size))
	dst = appendInt(dst, `,"cut":`, int64(r.Cut))
	dst = appendText(dst, `,"sha256":`, r.SHA256)
	dst = r.appendRedacted(dst)
	return append(r.appendData(dst), '}', '\n')
}

// appendRest appends what no frame has.
func (r *Record) appendRest(dst []byte) []byte {
	dst = appendText(dst, `,"span":`, r.Span)
	dst = r.appendCall(dst)
	dst = appendText(dst, `,"why":`, r.Why)
	dst = appendText(dst, `,"transport":`, r.Transport)
	dst = appendText(dst, `,"peer":`, r.Peer)
	dst = appendText(dst, `,"label":`, r.Label)
	dst = appendText(dst, `,"tls":`, r.TLS)
	for i, word := range r.Command {
		dst = scan.AppendQuoted(appendNext(dst, `,"command":[`, i), word)
	}
	if len(r.Command) > 0 {
		dst = append(dst, ']')
	}
	dst = appendBool(dst, `,"closed":true`, r.Closed)
	dst = appendText(dst, `,"verb":`, r.Verb)
	dst = appendText(dst, `,"path":`, r.Path)
	dst = appendInt(dst, `,"status":`, int64(r.Status))
	dst = appendHeader(dst, r.Header)
	dst = appendText(dst, `,"program":`, r.Program)
	dst = appendText(dst, `,"owner":`, r.Owner)
	dst = appendText(dst, `,"host":`, r.Host)
	dst = appendBool(dst, `,"redact":true`, r.Redact)
	return appendBool(dst, `,"envelopes":true`, r.Envelopes)
}

// appendCall appends what an observer has said of a call.
func (r *Record) appendCall(dst []byte) []byte {
	dst = appendInt(dst, `,"call":`, int64(r.Call))
	dst = appendInt(dst, `,"parent":`, int64(r.Parent))
	dst = appendText(dst, `,"upstream":`, r.Upstream)
	dst = appendText(dst, `,"era":`, r.Era)
	dst = appendText(dst, `,"principal":`, r.Principal)
	return appendText(dst, `,"outcome":`, r.Outcome)
}

func (r *Record) appendRedacted(dst []byte) []byte {
	for i, at := range r.Redacted {
		dst = append(appendNext(dst, `,"redacted":[`, i), `{"path":`...)
		dst = scan.AppendQuoted(dst, at.Path)
		dst = append(scan.AppendQuoted(append(dst, `,"why":`...), at.Why), '}')
	}
	if len(r.Redacted) > 0 {
		dst = append(dst, ']')
	}
	return dst
}

func (r *Record) appendData(dst []byte) []byte {
	switch {
	case r.raw != nil && r.b64:
		return append(append(dst, `,"b64":`...), r.raw...)
	case r.raw != nil:
		return append(append(dst, `,"raw":`...), r.raw...)
	case r.data == nil:
		return dst
	case utf8.Valid(r.data):
		return scan.AppendQuoted(append(dst, `,"raw":`...), r.data)
	}
	dst = append(dst, `,"b64":"`...)
	return append(base64.StdEncoding.AppendEncode(dst, r.data), '"')
}

// appendNext begins element i of an array. Its key ends with the bracket.
func appendNext(dst []byte, key string, i int) []byte {
	if i == 0 {
		return append(dst, key...)
	}
	return append(dst, ',')
}

func appendInt(dst []byte, key string, n int64) []byte {
	if n == 0 {
		return dst
	}
	return strconv.AppendInt(append(dst, key...), n, 10)
}

func appendText[S string | []byte](dst []byte, key string, text S) []byte {
	if len(text) == 0 {
		return dst
	}
	return scan.AppendQuoted(append(dst, key...), text)
}

func appendBool(dst []byte, member string, is bool) []byte {
	if !is {
		return dst
	}
	return append(dst, member...)
}

func appendHeader(dst []byte, header map[string]string) []byte {
	if len(header) == 0 {
		return dst
	}
	for i, name := range slices.Sorted(maps.Keys(header)) {
		dst = append(scan.AppendQuoted(appendNext(dst, `,"header":{`, i), name), ':')
		dst = scan.AppendQuoted(dst, header[name])
	}
	return append(dst, '}')
}

// maxToken is how long an id or a name may be that is shown apart from its frame.
const maxToken = 512

// parts are the members of a message that a record shows.
type parts struct {
	id, method, params, result, failure []byte
}

// find finds them in a message, or in the beginning of one. Each loop has its iterator in its own
// head, so that nothing is allocated.
func (p *parts) find(data []byte, cut bool) {
	if cut {
		for key, value := range scan.Beginning(data) {
			p.set(key, value)
		}
		return
	}
	for key, value := range scan.Members(data) {
		p.set(key, value)
	}
}

func (p *parts) set(key, value []byte) {
	switch string(key) {
	case "id":
		p.id = value
	case "method":
		p.method = value
	case "params":
		p.params = orEmpty(value)
	case "result":
		p.result = orEmpty(value)
	case "error":
		p.failure = orEmpty(value)
	}
}

func orEmpty(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// derive sets what follows from the bytes of a frame.
func (d *drain) derive(rec *Record, data []byte, cut bool) {
	at := scan.Space(data, 0)
	if at < len(data) && data[at] == '[' {
		rec.Kind = kindBatch
		return
	}
	var p parts
	p.find(data, cut)
	if len(p.id) > maxToken {
		p.id = p.id[:0]
	}
	rec.id = p.id
	switch {
	case len(p.method) > 1 && p.method[0] == '"':
		rec.Method = d.word(clip(scan.Unquote(p.method)))
		rec.Name = d.named(rec.Method, p.params)
		if rec.Kind = kindNotification; p.id != nil {
			rec.Kind = kindRequest
		}
	case p.result != nil || p.failure != nil:
		rec.Kind = kindResponse
		if p.failure != nil {
			if code, ok := integer(scan.Member(p.failure, "code")); ok {
				rec.Code = int(code)
			}
		}
		if len(p.result) > 0 && p.result[0] == '{' {
			rec.ToolError = string(scan.Member(p.result, "isError")) == "true"
		}
		d.answer(rec)
	default:
		rec.Kind = kindBad
	}
}

func clip(text []byte) []byte { return text[:min(len(text), maxToken)] }

// named returns the name of the tool, prompt or resource that a request of MCP is for.
func (d *drain) named(method string, params []byte) string {
	member := nameIn(method)
	if member == "" {
		return ""
	}
	value := scan.Member(params, member)
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	return d.word(clip(scan.Unquote(value)))
}

// nameIn is the member of the params that has it; "": a request of that method is for none.
func nameIn[S string | []byte](method S) string {
	switch kind, _, ok := strings.Cut(string(method), "/"); {
	case ok && kind == "resources":
		return "uri"
	case ok && (kind == "tools" || kind == "prompts"):
		return "name"
	}
	return ""
}

// key stands for an in-flight request. Over HTTP the answer comes in the same exchange, unless the
// client has come back for it: then the exchange is 0.
func (d *drain) key(rec *Record, exchange uint64, up bool) uint64 {
	b := d.hex[:0]
	if rec.Call != 0 { // an observer has said which call it is
		b = binary.LittleEndian.AppendUint64(b, rec.Call)
	} else {
		b = binary.LittleEndian.AppendUint64(b, rec.Conn<<1)
		if up { // questions are answered in another exchange
			b[0] |= 1
			b = binary.LittleEndian.AppendUint64(b, exchange)
		}
		b = append(b, rec.id...)
	}
	d.hex = b
	return maphash.Bytes(d.seed, b)
}

// await keeps a request until it is answered.
func (d *drain) await(rec *Record) {
	if rec.Kind != kindRequest || len(rec.id) == 0 && rec.Call == 0 {
		return
	}
	if len(d.asked) >= maxOpen {
		clear(d.asked) // they are answered never, or without a ref
	}
	req, up := request{rec.Seq, rec.Mono, rec.Method, rec.Name}, rec.Dir == dirUp
	d.asked[d.key(rec, 0, up)] = req
	if rec.Exchange != 0 {
		d.asked[d.key(rec, rec.Exchange, up)] = req
	}
}

// answer sets what a response has of its request.
func (d *drain) answer(rec *Record) {
	resumed := d.key(rec, 0, rec.Dir == dirDown)
	key := resumed
	if rec.Exchange != 0 {
		key = d.key(rec, rec.Exchange, rec.Dir == dirDown)
	}
	req, ok := d.asked[key]
	if !ok {
		if req, ok = d.asked[resumed]; !ok {
			return
		}
	}
	delete(d.asked, key)
	delete(d.asked, resumed)
	rec.Ref, rec.Duration = req.seq, max(1, rec.Mono-req.mono)
	rec.Method, rec.Name = req.method, req.name
}

// The types of records.
const (
	typeHead  = "capture"
	typeConn  = "conn"
	typeFrame = "frame"
	typeCall  = "call"
	typeEvent = "event"
	typeDrop  = "drop"
	typeEnd   = "end"
)

// The directions and kinds of frames.
const (
	dirUp   = "up"
	dirDown = "down"

	kindRequest      = "request"
	kindNotification = "notification"
	kindResponse     = "response"
	kindBatch        = "batch"
	kindBad          = "bad"
)
