package farcall

import (
	"bytes"
	"context"
	"strings"

	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

// Trace is the trace context of a call: the members, and over HTTP the headers, traceparent and
// tracestate of W3C Trace Context and baggage of W3C Baggage. The other end chooses all of it, and
// it may be false.
type Trace struct {
	// Parent is the traceparent. It is valid, or "".
	Parent string
	// State is the tracestate, and "" without a Parent. It has at most 32 list members and 8 KiB.
	State string
	// Baggage has at most 64 list members and 8 KiB.
	Baggage string
}

// memberParent is the member with the traceparent, and memberState that with the tracestate.
const (
	memberParent = "traceparent"
	memberState  = "tracestate"
)

const (
	// bytes (W3C Baggage §3.3.2); Trace Context §3.3.1.5 wants 512 at least
	maxTraceList      = 8 << 10
	maxStateMembers   = 32 // W3C Trace Context §3.3.1.1
	maxBaggageMembers = 64 // W3C Baggage §3.3.2
)

// traceKey is the key of the *Trace of a context, and spanKey that of the *observe.Span in which
// calls are made.
type (
	traceKey struct{}
	spanKey  struct{}
)

// traced is a context with a trace context.
type traced struct {
	callctx.Context

	trace Trace
	span  observe.Span
}

// ContextValue implements callctx.Values.
func (x *traced) ContextValue(key any) (any, bool) {
	switch key.(type) {
	case traceKey:
		return &x.trace, true
	case spanKey:
		return &x.span, true
	}
	return nil, false
}

// WithTrace returns a context; calls with it carry t: in headers over HTTP, in top-level members
// elsewhere, and in the Meta of the dialect where it has one. It drops a Parent that is not valid,
// with its State, and text that has other than printable ASCII characters, and cuts lists that are
// too long after the last member that fits.
func WithTrace(ctx context.Context, t Trace) context.Context {
	x := &traced{trace: t.bounded()}
	x.Context = callctx.Over(ctx, x)
	x.span, _ = parseParent(x.trace.Parent)
	return x
}

// TraceFrom returns the trace context that came with a call, or was set with WithTrace. What the
// message has counts before the headers of its HTTP request; a State belongs to its Parent.
func TraceFrom(ctx context.Context) Trace {
	if t, _ := ctx.Value(traceKey{}).(*Trace); t != nil {
		return *t
	}
	return Trace{}
}

// WithTraceHeader is WithTrace for the headers of a request, which may be an http.Header. It
// returns ctx when they have none.
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
	for _, v := range [...]struct{ name, value string }{
		{"Traceparent", t.Parent},
		{"Tracestate", t.State},
		{"Baggage", t.Baggage},
	} {
		if v.value != "" {
			header[v.name] = []string{v.value}
		}
	}
}

// appendMembers appends the members of a message, each with the comma before it.
func (t Trace) appendMembers(dst []byte) []byte {
	for _, v := range [...]struct{ name, value string }{
		{memberParent, t.Parent},
		{memberState, t.State},
		{"baggage", t.Baggage},
	} {
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
	if _, ok := parseParent(t.Parent); !ok {
		t.Parent, t.State = "", ""
	}
	return t
}

// messageTrace finds the trace context in a message: top-level, or in params._meta as MCP has it
// (SEP-414).
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
	t := Trace{Parent: text(memberParent), Baggage: text("baggage")}
	if t.Parent != "" {
		t.State = text(memberState)
	}
	return t.bounded()
}

// unquoteSome returns the characters of a string, or of a long one as many as show where to cut it:
// a megabyte is not copied. A long one with escapes there yields "".
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

// messageSpan sets the span of messageTrace, without an allocation, and reports whether there is
// one.
func messageSpan(m *jsonrpc.Message, span *observe.Span) bool {
	raw := m.Member(memberParent)
	if raw == nil {
		raw = scan.Member(scan.Member(m.Params, "_meta"), memberParent)
	}
	if len(raw) < 2 || raw[0] != '"' {
		return false
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		raw = append(append([]byte{'"'}, unquoteSome(raw)...), '"')
	}
	said, ok := parseParent(raw[1 : len(raw)-1])
	if ok {
		*span = said
	}
	return ok
}

// spanOf returns the span in which a context makes calls.
func spanOf(ctx context.Context) observe.Span {
	if span, _ := ctx.Value(spanKey{}).(*observe.Span); span != nil {
		return *span
	}
	return observe.Span{}
}

// parseParent reads a traceparent (W3C Trace Context §3.2.2). Those of later versions may be
// longer.
func parseParent[T string | jsonrpc.Raw](s T) (span observe.Span, ok bool) {
	const size = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(s) < size || len(s) > maxParent || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return observe.Span{}, false
	}
	var version, flags [1]byte
	if !unhex(version[:], s[:2]) || !unhex(span.Trace[:], s[3:35]) || !unhex(span.ID[:], s[36:52]) ||
		!unhex(flags[:], s[53:55]) {
		return observe.Span{}, false
	}
	if version[0] == 0xff || len(s) > size && (version[0] == 0 || !furtherParent(s[size:])) {
		return observe.Span{}, false
	}
	span.Sampled = flags[0]&1 != 0
	return span, span.Trace != [16]byte{} && span.ID != [8]byte{}
}

// furtherParent reports whether s may be what a later version has after the flags.
func furtherParent[T string | jsonrpc.Raw](s T) bool {
	for i := range len(s) {
		if i == 0 && s[i] != '-' || unprintable(rune(s[i])) {
			return false
		}
	}
	return true
}

// unhex decodes digits of lower case, two for each byte of dst.
func unhex[T string | jsonrpc.Raw](dst []byte, s T) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return false
		}
		dst[i/2] = dst[i/2]<<4 | c
	}
	return true
}

// unprintable reports whether a character is not printable ASCII.
func unprintable(c rune) bool { return c < ' ' || c > '~' }

// maxParent bounds a traceparent of a later version.
const maxParent = 512

// cutList returns the first members of a list that keep the limits, or "" when these have other
// than printable ASCII characters: the text may become a header.
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
