package farcall

import (
	"bytes"
	"context"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Trace is the trace context of a call: the members, and over HTTP the headers, traceparent and tracestate of W3C
// Trace Context and baggage of W3C Baggage. The other end chooses all of it, and it may be false.
type Trace struct {
	// Parent is the traceparent. It is valid, or "".
	Parent string
	// State is the tracestate, and "" without a Parent. It has at most 32 list members and 8 KiB.
	State string
	// Baggage has at most 64 list members and 8 KiB.
	Baggage string
}

const (
	maxTraceList      = 8 << 10 // bytes (W3C Baggage §3.3.2); Trace Context §3.3.1.5 wants 512 at least
	maxStateMembers   = 32      // W3C Trace Context §3.3.1.1
	maxBaggageMembers = 64      // W3C Baggage §3.3.2
)

type traceKey struct{}

// WithTrace returns a context whose calls carry t: in headers over HTTP, in top-level members elsewhere, and in
// the Meta of the dialect where it has one. It drops a Parent that is not valid, with its State, and text that has
// other than printable ASCII characters, and cuts lists that are too long after the last member that fits.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t.bounded())
}

// TraceFrom returns the trace context that came with a call, or was set with WithTrace. What the message has
// counts before the headers of its HTTP request; a State belongs to its Parent.
func TraceFrom(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}

// WithTraceHeader is WithTrace for the headers of a request, which may be an http.Header. It returns ctx when they have none.
func WithTraceHeader(ctx context.Context, header map[string][]string) context.Context {
	parent, state, baggage := header["Traceparent"], header["Tracestate"], header["Baggage"]
	if len(parent) == 0 && len(baggage) == 0 {
		return ctx
	}
	var t Trace
	if len(parent) == 1 { // several are not valid (W3C Trace Context §3.2.1)
		t.Parent, t.State = parent[0], strings.Join(state, ",")
	}
	t.Baggage = strings.Join(baggage, ",")
	return WithTrace(ctx, t)
}

// SetHeader sets the headers of a request, which may be an http.Header.
func (t Trace) SetHeader(header map[string][]string) {
	for _, v := range [...]struct{ name, value string }{{"Traceparent", t.Parent}, {"Tracestate", t.State}, {"Baggage", t.Baggage}} {
		if v.value != "" {
			header[v.name] = []string{v.value}
		}
	}
}

// appendMembers appends the members of a message, each with the comma before it.
func (t Trace) appendMembers(dst []byte) []byte {
	for _, v := range [...]struct{ name, value string }{{"traceparent", t.Parent}, {"tracestate", t.State}, {"baggage", t.Baggage}} {
		if v.value != "" {
			dst = appendMember(dst, v.name, jsonrpc.AppendString(nil, v.value))
		}
	}
	return dst
}

// or returns t with what it lacks from the headers.
func (t Trace) or(header Trace) Trace {
	if t.Parent == "" {
		t.Parent, t.State = header.Parent, header.State
	}
	if t.Baggage == "" {
		t.Baggage = header.Baggage
	}
	return t
}

func (t Trace) bounded() Trace {
	t.State, t.Baggage = cutList(t.State, maxStateMembers), cutList(t.Baggage, maxBaggageMembers)
	if !validParent(t.Parent) {
		t.Parent, t.State = "", ""
	}
	return t
}

// messageTrace finds the trace context in a message: top-level, or in params._meta as MCP has it (SEP-414).
func messageTrace(m *jsonrpc.Message) Trace {
	meta := scan.Member(m.Params, "_meta")
	text := func(name string) string {
		raw := m.Member(name)
		if raw == nil && meta != nil {
			raw = scan.Member(meta, name)
		}
		if len(raw) < 2 || raw[0] != '"' {
			return ""
		}
		return unquoteSome(raw)
	}
	t := Trace{Parent: text("traceparent"), Baggage: text("baggage")}
	if t.Parent != "" {
		t.State = text("tracestate")
	}
	return t.bounded()
}

// unquoteSome returns the characters of a string, or of a long one as many as show where to cut it: a megabyte is
// not copied. A long one with escapes there yields "".
func unquoteSome(raw []byte) string {
	if len(raw) <= 6*maxTraceList { // as long as a list that fits with each character escaped
		return string(scan.Unquote(raw))
	}
	some := raw[1 : maxTraceList+2]
	if bytes.IndexByte(some, '\\') >= 0 {
		return ""
	}
	return string(some)
}

// validParent reports whether s is a traceparent (W3C Trace Context §3.2.2). Those of later versions may be longer.
func validParent(s string) bool {
	const size = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(s) < size || len(s) > maxParent || s[:2] == "ff" {
		return false
	}
	if len(s) > size && (s[:2] == "00" || s[size] != '-' || strings.ContainsFunc(s[size:], unprintable)) {
		return false
	}
	for i := range size {
		want := "0123456789abcdef"
		if i == 2 || i == 35 || i == 52 {
			want = "-"
		}
		if strings.IndexByte(want, s[i]) < 0 {
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

// unprintable reports whether a character is none of printable ASCII.
func unprintable(c rune) bool { return c < ' ' || c > '~' }

// maxParent bounds a traceparent of a later version.
const maxParent = 512

// cutList returns the first members of a list that keep the limits, or "" when these have other than printable
// ASCII characters: the text may become a header.
func cutList(s string, members int) string {
	end, comma := 0, -1
	for ; end < len(s); end++ {
		if s[end] == ',' {
			if members--; members == 0 {
				return s[:end]
			}
			comma = end
		}
		if end == maxTraceList {
			return s[:max(comma, 0)]
		}
		if c := s[end]; (c < ' ' || c > '~') && c != '\t' {
			return ""
		}
	}
	return s
}
