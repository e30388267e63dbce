package jsonrpc

import (
	"hash/maphash"
	"math/bits"
	"strconv"

	"github.com/farcall-dev/farcall/internal/scan"
)

// The members of an envelope. The specification has their names case-sensitive.
type member uint8

const (
	other member = iota // one that JSON-RPC does not define
	memberVersion
	memberID
	memberMethod
	memberParams
	memberResult
	memberError
	memberCount
)

var memberNames = [memberCount]string{
	memberVersion: "jsonrpc", memberID: "id", memberMethod: "method", memberParams: "params",
	memberResult: "result", memberError: "error",
}

func memberNamed(name []byte) member {
	switch string(name) {
	case "jsonrpc":
		return memberVersion
	case "id":
		return memberID
	case "method":
		return memberMethod
	case "params":
		return memberParams
	case "result":
		return memberResult
	case "error":
		return memberError
	}
	return other
}

// envelope is what one pass over a message finds: where each member's value is.
type envelope struct {
	frame    []byte
	start    int              // of the message
	from, to [memberCount]int // to is 0 when the member is absent
	twice    uint8            // one bit for each member that was given twice
}

func (e *envelope) has(m member) bool  { return e.to[m] != 0 }
func (e *envelope) value(m member) Raw { return e.frame[e.from[m]:e.to[m]:e.to[m]] }

// first returns the first byte of a member's value.
func (e *envelope) first(m member) byte { return e.frame[e.from[m]] }

// decodeMessage validates the value at frame[start], judges it as a message,
// and returns its end.
func (d *Decoder) decodeMessage(frame []byte, start, depth int, m *Message) (int, scan.Fault) {
	if start >= len(frame) || frame[start] != '{' {
		end, f := scan.Value(frame, start, depth)
		if f == scan.OK {
			m.Raw, m.ID = frame[start:end:end], NullID()
			m.Err = invalid(start, "a message must be an object")
		}
		return end, f
	}
	if depth == 0 {
		return start, scan.TooDeep
	}
	e := envelope{frame: frame, start: start}
	end, f := e.scan(depth - 1)
	if f != scan.OK {
		return end, f
	}
	m.Raw, m.extra = frame[start:end:end], e.has(other)
	e.judge(m, d)
	return end, scan.OK
}

// scan validates the object at e.start and notes where its members are.
func (e *envelope) scan(depth int) (int, scan.Fault) {
	b := e.frame
	i := scan.Space(b, e.start+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, scan.OK
	}
	for {
		k, n := usual(b[i:])
		if i += n; n == 0 {
			var f scan.Fault
			if k, i, f = name(b, i); f != scan.OK {
				return i, f
			}
		}
		if uint(i) < uint(len(b)) && b[i] <= ' ' {
			i = scan.Space(b, i)
		}
		end, f := scan.Value(b, i, depth)
		if f != scan.OK {
			return end, f
		}
		if e.to[k] != 0 && k != other {
			e.twice |= 1 << k
		}
		e.from[k], e.to[k] = i, end
		if i = end; uint(i) < uint(len(b)) && b[i] <= ' ' {
			i = scan.Space(b, i)
		}
		if i >= len(b) {
			return len(b), scan.End
		}
		switch b[i] {
		case ',':
			if i++; uint(i) < uint(len(b)) && b[i] <= ' ' {
				i = scan.Space(b, i)
			}
		case '}':
			return i + 1, scan.OK
		default:
			return i, scan.NoComma
		}
	}
}

// usual recognises a member of the envelope that is written without escapes
// and white space, and returns the length up to its value, or 0.
func usual(b []byte) (member, int) {
	if len(b) > 10 {
		switch b[1] {
		case 'j':
			if string(b[:10]) == `"jsonrpc":` {
				return memberVersion, 10
			}
		case 'i':
			if string(b[:5]) == `"id":` {
				return memberID, 5
			}
		case 'm':
			if string(b[:9]) == `"method":` {
				return memberMethod, 9
			}
		case 'p':
			if string(b[:9]) == `"params":` {
				return memberParams, 9
			}
		case 'r':
			if string(b[:9]) == `"result":` {
				return memberResult, 9
			}
		case 'e':
			if string(b[:8]) == `"error":` {
				return memberError, 8
			}
		}
	}
	return other, 0
}

// name validates the name of a member and its colon, and returns where its
// value starts.
func name(b []byte, i int) (member, int, scan.Fault) {
	if i >= len(b) {
		return other, len(b), scan.End
	}
	if b[i] != '"' {
		return other, i, scan.NoKey
	}
	end, escaped, f := scan.String(b, i)
	if f != scan.OK {
		return other, end, f
	}
	k := memberNamed(b[i+1 : end-1])
	if escaped {
		k = memberEscaped(b[i:end])
	}
	end, f = scan.Colon(b, end)
	return k, end, f
}

// memberEscaped finds the member of a name that has escapes, without
// allocating: a longer name than the buffer's is not one of the envelope's: each
// character takes at most the six bytes of \u0041.
func memberEscaped(raw []byte) member {
	var buf [48]byte
	if len(raw) > len(buf) {
		return other
	}
	return memberNamed(scan.AppendUnquoted(buf[:0], raw))
}

// judge decides what the message is.
func (e *envelope) judge(m *Message, d *Decoder) {
	if d.AcceptV1 && !e.has(memberVersion) {
		m.Version = V1
	}
	isResponse := !e.has(memberMethod) && (e.has(memberResult) || e.has(memberError))
	lenient := isResponse && (m.Version == V1 || !d.StrictAnswers)
	wrong, at := e.common(m, lenient)
	switch {
	case wrong != "":
	case isResponse:
		wrong, at = e.response(m, lenient)
	default:
		wrong, at = e.call(m)
	}
	if isResponse {
		m.Kind = Response
	}
	if wrong == "" {
		return
	}
	offset := e.start
	if e.has(at) {
		offset = e.from[at]
	}
	m.Err = invalid(offset, wrong)
	if m.idEnd == 0 {
		m.ID = NullID()
	}
}

// common reads the id and checks what all kinds of messages must fulfil. A lenient
// answer may lack the version.
func (e *envelope) common(m *Message, lenient bool) (wrong string, at member) {
	if e.has(memberID) && e.twice&(1<<memberID) == 0 && isID(e.value(memberID)) {
		m.ID = ID{e.value(memberID)}
		m.idStart, m.idEnd = e.from[memberID]-e.start, e.to[memberID]-e.start
	}
	switch {
	case e.twice != 0:
		m := member(bits.TrailingZeros8(e.twice))
		return "the member \"" + memberNames[m] + "\" is given twice", m
	case e.has(memberID) && m.ID.IsAbsent():
		return "the id must be a string, a number or null", memberID
	case m.Version == V2 && !e.isV2() && (!lenient || e.has(memberVersion)):
		return `"jsonrpc" must be "2.0"`, memberVersion
	}
	return "", other
}

// isV2 checks the version, which may be written with escapes like any string.
func (e *envelope) isV2() bool {
	if !e.has(memberVersion) {
		return false
	}
	v := e.value(memberVersion)
	return string(v) == `"2.0"` || v[0] == '"' && string(scan.Unquote(v)) == "2.0"
}

// call judges a request or notification (specification, section 4).
func (e *envelope) call(m *Message) (wrong string, at member) {
	switch {
	case !e.has(memberMethod):
		return "there is no method, result or error", other
	case e.first(memberMethod) != '"':
		return "the method must be a string", memberMethod
	case e.has(memberResult):
		return "a message cannot have both a method and a result", memberResult
	case e.has(memberError):
		return "a message cannot have both a method and an error", memberError
	}
	var params Raw
	if e.has(memberParams) && e.first(memberParams) != 'n' {
		params = e.value(memberParams)
		switch {
		case m.Version == V1 && params[0] != '[':
			return "the params must be an array", memberParams
		case params[0] != '[' && params[0] != '{':
			return "the params must be an object or an array", memberParams
		}
	}
	m.Method, m.Params = scan.Unquote(e.value(memberMethod)), params
	m.body = e.from[memberParams] - e.start
	if len(m.Method)+2 == e.to[memberMethod]-e.from[memberMethod] {
		m.method = e.from[memberMethod] + 1 - e.start
	}
	m.Kind = Request
	if m.Version == V1 && m.ID.IsNull() {
		m.ID = ID{}
	}
	if m.ID.IsAbsent() {
		m.Kind = Notification
	}
	return "", other
}

// response judges a response (specification, section 5). Of a lenient one with both
// a result and an error, one may be null, as in JSON-RPC 1.0.
func (e *envelope) response(m *Message, lenient bool) (wrong string, at member) {
	hasResult, hasError := e.has(memberResult), e.has(memberError)
	if lenient && hasError {
		hasError = e.first(memberError) != 'n'
		hasResult = hasResult && (!hasError || e.first(memberResult) != 'n')
	}
	switch {
	case !e.has(memberID):
		return "a response must have an id", other
	case hasResult && hasError:
		return "a response cannot have both a result and an error", memberError
	case hasResult:
		m.Result, m.body = e.value(memberResult), e.from[memberResult]-e.start
	case !hasError:
		return "a response must have a result or an error", memberError
	default:
		raw := e.value(memberError)
		if parts := splitError(raw); m.Version == V2 && !parts.ok() {
			return "the error must be an object with an integer code and a string message", memberError
		}
		m.Error, m.body = raw, e.from[memberError]-e.start
	}
	return "", other
}

// refuseDuplicates makes each request invalid that has the id of an earlier request of
// the batch: two answers with one id could not be distinguished. The id null
// identifies nothing and may repeat.
func (b *Batch) refuseDuplicates() {
	if len(b.Messages) > 8 {
		b.refuseDuplicatesHashed()
		return
	}
	for i := range b.Messages {
		for j := range i {
			if b.clash(i, j) {
				break
			}
		}
	}
}

// refuseDuplicatesHashed does it in linear time, with an open-addressed set of
// positions, counted from 1, that is at most half full. The seed is fresh, so
// an attacker cannot choose ids that collide.
func (b *Batch) refuseDuplicatesHashed() {
	size := 2 << bits.Len(uint(len(b.Messages)-1))
	if cap(b.ids) < size {
		b.ids = make([]uint32, size)
	}
	b.ids = b.ids[:size]
	clear(b.ids)
	seed := maphash.MakeSeed()
	for i := range b.Messages {
		if b.Messages[i].Kind != Request || b.Messages[i].ID.IsNull() {
			continue
		}
		slot := maphash.Bytes(seed, b.Messages[i].ID.raw) & uint64(size-1)
		for b.ids[slot] != 0 && !b.clash(i, int(b.ids[slot]-1)) {
			slot = (slot + 1) & uint64(size-1)
		}
		if b.Messages[i].Kind == Request {
			b.ids[slot] = uint32(i) + 1
		}
	}
}

// clash refuses message i if it is a request with the id of request j.
func (b *Batch) clash(i, j int) bool {
	m, earlier := &b.Messages[i], &b.Messages[j]
	if m.Kind != Request || earlier.Kind != Request || m.ID.IsNull() || !m.ID.Equal(earlier.ID) {
		return false
	}
	m.Kind, m.Method, m.Params = Invalid, nil, nil
	m.Err = Refusal(InvalidRequest,
		"element "+strconv.Itoa(i)+" of the batch has the id of element "+strconv.Itoa(j))
	return true
}
