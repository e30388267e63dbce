package http1

import (
	"bytes"
	"net/textproto"
	"net/url"
	"strings"
)

const (
	maxHead   = 16 << 10 // bytes of a head; net/http serves longer ones
	maxFields = 64       // lines of a head
	maxTarget = 512
	maxDigits = 15 // of Content-Length
)

// A verdict says which reader has to read a head.
type verdict uint8

const (
	more    verdict = iota // the head is not complete, and may be ours
	ours                   // it is complete, and nothing in it is unusual
	foreign                // net/http must see it
)

// A head is the head of a request as it was read. Positions are offsets into the
// bytes that parse was called with.
type head struct {
	line    int // where the line begins that is not complete
	scanned int // up to here there is no end of that line
	end     int // of the head

	target  span
	fields  []field
	host    int // index of the field; -1: none yet
	length  int64
	hasSize bool
}

type span struct{ from, to int }

func (s span) of(p []byte) []byte { return p[s.from:s.to] }

// A field is a line of a head, without the white space around its value.
type field struct{ name, value span }

// reset prepares for the next head.
func (h *head) reset() { *h = head{fields: h.fields[:0], host: -1} }

const (
	begin   = "POST /"
	version = " HTTP/1.1"
)

// parse goes on with a head. p holds it from its first byte on; it may have grown
// since the last call.
//
//	POST /path HTTP/1.1 CRLF
//	*( token ":" *SP *( SP / VCHAR ) *SP CRLF )
//	CRLF
//
// That is less than RFC 9112 allows: a tab, obs-text, obs-fold, an empty line
// before the request and a line that ends without CR are all foreign.
func (h *head) parse(p []byte) verdict {
	if n := min(len(p), len(begin)); string(p[:n]) != begin[:n] {
		return foreign
	}
	for {
		at := bytes.IndexByte(p[h.scanned:], '\n')
		if at < 0 {
			if h.scanned = len(p); len(p) >= maxHead {
				return foreign
			}
			return more
		}
		at += h.scanned
		if at >= maxHead || at == h.line || p[at-1] != '\r' {
			return foreign
		}
		text := span{h.line, at - 1}
		first := h.line == 0
		h.line, h.scanned = at+1, at+1
		switch {
		case first:
			if !h.requestLine(p, text) {
				return foreign
			}
		case text.from == text.to:
			h.end = at + 1
			if h.host < 0 || !h.hasSize {
				return foreign
			}
			return ours
		case len(h.fields) == maxFields || !h.addField(p, text):
			return foreign
		}
	}
}

// requestLine reads the first line, which has begun with POST /.
func (h *head) requestLine(p []byte, text span) bool {
	line := text.of(p)
	if len(line) < len(begin)+len(version) || !bytes.HasSuffix(line, []byte(version)) {
		return false
	}
	h.target = span{text.from + len("POST "), text.to - len(version)}
	target := h.target.of(p)
	if len(target) > maxTarget || len(target) > 1 && target[1] == '/' {
		return false
	}
	for _, b := range target {
		if class[b]&inPath == 0 {
			return false
		}
	}
	return true
}

// addField reads a line. It reports false when net/http must see the request.
func (h *head) addField(p []byte, text span) bool {
	colon := bytes.IndexByte(text.of(p), ':')
	if colon <= 0 {
		return false
	}
	f := field{span{text.from, text.from + colon}, span{text.from + colon + 1, text.to}}
	for _, b := range f.value.of(p) {
		if b < ' ' || b > '~' {
			return false
		}
	}
	for f.value.from < f.value.to && p[f.value.from] == ' ' {
		f.value.from++
	}
	for f.value.from < f.value.to && p[f.value.to-1] == ' ' {
		f.value.to--
	}
	r, ok := roleOf(f.name.of(p))
	if !ok || !h.special(r, f.value.of(p)) {
		return false
	}
	h.fields = append(h.fields, f)
	return true
}

// special looks at the fields that say how a message is framed, or where it goes.
func (h *head) special(r role, value []byte) bool {
	switch r {
	case isHost:
		if h.host >= 0 || !validHost(value) {
			return false
		}
		h.host = len(h.fields)
	case isLength:
		if h.hasSize {
			return false
		}
		h.length, h.hasSize = decimal(value)
		return h.hasSize
	case isConnection:
		return strings.EqualFold(string(value), "keep-alive")
	case isForeign:
		return false
	}
	return true
}

// decimal reads a Content-Length: digits without a sign or leading zeros.
func decimal(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > maxDigits || text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	for _, b := range text {
		if b < '0' || b > '9' {
			return 0, false
		}
		n = 10*n + int64(b-'0')
	}
	return n, true
}

func validHost(text []byte) bool {
	for _, b := range text {
		if class[b]&inHost == 0 {
			return false
		}
	}
	return len(text) > 0
}

// urlOf returns what net/url reads of a target in which every byte is inPath.
func urlOf(target string) url.URL { return url.URL{Path: target} }

// A role is what a field means for the reader.
type role uint8

const (
	plain role = iota
	isHost
	isLength
	isConnection
	isForeign // net/http must see the request
)

// A name is the name of a field in the form of http.Header.
type name struct {
	text string
	role role
}

// roleOf returns the role of a field, without an allocation. It reports false when
// its name is not a token (RFC 9110, section 5.6.2).
func roleOf(raw []byte) (role, bool) {
	if known, ok := names[string(raw)]; ok {
		return known.role, true
	}
	var lower [maxName]byte
	for i, b := range raw {
		if class[b]&inToken == 0 {
			return plain, false
		}
		if b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		if i < len(lower) {
			lower[i] = b
		}
	}
	if len(raw) > len(lower) {
		return plain, true
	}
	return names[string(lower[:len(raw)])].role, true // plain where it is not known
}

// maxName is longer than the names in the table.
const maxName = 32

// canonical returns the name of a field in the form of http.Header.
func canonical(raw []byte) string {
	if known, ok := names[string(raw)]; ok {
		return known.text
	}
	return textproto.CanonicalMIMEHeaderKey(string(raw))
}

// names has the fields that we know, in the two forms that clients write.
var names = tableOfNames(map[role][]string{
	isHost:       {"Host"},
	isLength:     {"Content-Length"},
	isConnection: {"Connection"},
	isForeign: {
		"Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Te", "Keep-Alive",
		"Proxy-Connection", "Pragma", "Http2-Settings",
	},
	plain: {
		"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Baggage", "Cache-Control",
		"Content-Encoding", "Content-Type", "Cookie", "Dpop", "Forwarded", "Last-Event-Id",
		"Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id", "Origin", "Referer",
		"Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Signature", "Signature-Input",
		"Traceparent", "Tracestate", "User-Agent", "X-Api-Key", "X-Forwarded-For",
		"X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "X-Request-Id",
	},
})

func tableOfNames(byRole map[role][]string) map[string]name {
	table := map[string]name{"MCP-Protocol-Version": {"Mcp-Protocol-Version", plain}}
	for r, list := range byRole {
		for _, text := range list {
			table[text] = name{text, r}
			table[strings.ToLower(text)] = name{text, r}
		}
	}
	return table
}

const (
	inToken = 1 << iota
	inPath
	inHost
)

// class says where a byte may be.
var class = tableOfClasses()

func tableOfClasses() (table [256]uint8) {
	const alphanumeric = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for where, list := range map[uint8]string{
		inToken: alphanumeric + "!#$%&'*+-.^_`|~",
		inPath:  alphanumeric + "/-._~",
		inHost:  alphanumeric + "-._:[]",
	} {
		for _, c := range []byte(list) {
			table[c] |= where
		}
	}
	return table
}
