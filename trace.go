package farcall

import (
	"context"

	"github.com/farcall-dev/farcall/jsonrpc"
)

type traceKey struct{}

// WithTrace returns a context whose calls carry a W3C trace context: the
// traceparent header over HTTP, a top-level member of that name elsewhere.
func WithTrace(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceparent)
}

// TraceFrom returns the traceparent that came with a call, or was set with
// WithTrace, or "".
func TraceFrom(ctx context.Context) string {
	t, _ := ctx.Value(traceKey{}).(string)
	return t
}

// messageTrace finds the traceparent in a message: top-level, or in
// params._meta as MCP has it.
func messageTrace(m *jsonrpc.Message) string {
	raw := extension(m, "traceparent")
	// A traceparent has no characters that JSON escapes (W3C Trace Context §3.2).
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return string(raw[1 : len(raw)-1])
}
