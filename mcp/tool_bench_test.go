package mcp

import (
	"bytes"
	"context"
	"testing"

	"github.com/farcall-dev/farcall"
)

// callInProcess returns a function that makes one call as a transport makes it.
func callInProcess(tb testing.TB) func() {
	tb.Helper()
	type out struct {
		Sum int `json:"sum" min:"-1000000" max:"1000000"` // constrained: the output is validated
	}
	s := NewServer("calc", "1.0", nil)
	AddTool(s, "add", "Add two numbers", func(_ context.Context, in addIn) (out, error) { return out{in.A + in.B}, nil })
	r := farcall.NewResponder(s, nil)
	frame := []byte(modernFrame("1", "tools/call", `"name":"add","arguments":{"a":2,"b":3}`))
	ctx := tb.Context()
	var dst []byte
	return func() {
		dst = r.Respond(ctx, dst[:0], frame, nil)
		if !bytes.Contains(dst, []byte(`"structuredContent":{"sum":5}`)) {
			tb.Fatal(string(dst))
		}
	}
}
