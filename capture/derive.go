package capture

import (
	"encoding/binary"
	"hash/maphash"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

// maxToken is how long an id or a name may be that is shown apart from its frame.
const maxToken = 512

// parts are the members of a message that a record shows.
type parts struct {
	id, method, params, result, failure []byte
}

// find finds them in a message, or in the beginning of one.
func (p *parts) find(data []byte, cut bool) {
	each := func(key, value []byte) bool {
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
		return true
	}
	if cut {
		scan.Beginning(data, each)
		return
	}
	scan.Object(data, each)
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
	member := "name"
	switch {
	case len(params) == 0 || params[0] != '{':
		return ""
	case strings.HasPrefix(method, "resources/"):
		member = "uri"
	case !strings.HasPrefix(method, "tools/") && !strings.HasPrefix(method, "prompts/"):
		return ""
	}
	value := scan.Member(params, member)
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	return d.word(clip(scan.Unquote(value)))
}

// key stands for a request in flight. Over HTTP the answer comes in the same exchange.
func (d *drain) key(rec *Record, up bool) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	n := [17]byte{}
	if rec.Call != 0 { // an observer has said which call it is
		binary.LittleEndian.PutUint64(n[:], rec.Call)
		_, _ = h.Write(n[:9]) // it does not fail
		return h.Sum64()
	}
	for i := range 8 {
		n[i] = byte(rec.Conn >> (8 * i))
		n[8+i] = byte(rec.Exchange >> (8 * i))
	}
	if up {
		n[16] = 1
	} else {
		clear(n[8:16]) // questions are answered in another exchange
	}
	_, _ = h.Write(n[:])   // it does not fail
	_, _ = h.Write(rec.id) // nor this
	return h.Sum64()
}

// await keeps a request until it is answered.
func (d *drain) await(rec *Record) {
	if rec.Kind != kindRequest || len(rec.id) == 0 && rec.Call == 0 {
		return
	}
	if len(d.asked) >= maxOpen {
		clear(d.asked) // they are answered never, or without a ref
	}
	d.asked[d.key(rec, rec.Dir == dirUp)] = request{rec.Seq, rec.Mono, rec.Method, rec.Name}
}

// answer sets what a response has of its request.
func (d *drain) answer(rec *Record) {
	key := d.key(rec, rec.Dir == dirDown)
	req, ok := d.asked[key]
	if !ok {
		return
	}
	delete(d.asked, key)
	rec.Ref, rec.Duration = req.seq, max(1, rec.Mono-req.mono)
	rec.Method, rec.Name = req.method, req.name
}
