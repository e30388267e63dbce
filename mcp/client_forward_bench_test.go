//go:build !race

package mcp

import (
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
)

// echoingClient is a client of a server that does next to nothing, over a Pipe:
// it answers tools/call always in the same way.
func echoingClient(tb testing.TB, rev, result string) *Client {
	tb.Helper()
	all := legacyFake(nil)
	if rev == revModern {
		all = modernFake(nil)
	}
	mine, theirs := farcall.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var out []byte
		for {
			frame, err := theirs.Read()
			if err != nil {
				return
			}
			id := scan.Member(frame, "id")
			if id == nil {
				continue
			}
			text := result
			if answer, ok := all[string(scan.Unquote(scan.Member(frame, "method")))].(string); ok {
				text = answer
			}
			out = append(append(append(out[:0], `{"jsonrpc":"2.0","id":`...), id...), `,"result":`...)
			if theirs.Write(append(append(out, text...), '}')) != nil {
				return
			}
		}
	}()
	c, err := Connect(tb.Context(), mine, &ClientOptions{Era: rev})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.Close()
		<-done
	})
	return c
}

const forwardedMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}`

// forwardedCalls are tools/call from one revision to another.
func forwardedCalls(tb testing.TB) map[string]func() {
	tb.Helper()
	const legacyResult = `{"content":[{"type":"text","text":"5"}],"structuredContent":{"sum":5}}`
	const modernResult = `{"resultType":"complete","content":[{"type":"text","text":"5"}],` +
		`"structuredContent":{"sum":5}}`
	calls := map[string]func(){}
	for _, x := range []struct{ from, to, params, result string }{
		{revLegacy, revLegacy, `{"name":"add","arguments":{"a":2,"b":3}}`, legacyResult},
		{
			revModern, revModern, `{"name":"add","arguments":{"a":2,"b":3},` + forwardedMeta + `}`,
			modernResult,
		},
		{revLegacy, revModern, `{"name":"add","arguments":{"a":2,"b":3}}`, modernResult},
		{
			revModern, revLegacy, `{"name":"add","arguments":{"a":2,"b":3},` + forwardedMeta + `}`,
			legacyResult,
		},
	} {
		c := echoingClient(tb, x.to, x.result)
		f := &relay.Forward{
			Method: "tools/call", Params: jsonrpc.Raw(x.params), Revision: era.Lookup(x.from),
			Info:         jsonrpc.Raw(`{"name":"x","version":"1"}`),
			Capabilities: jsonrpc.Raw(`{"elicitation":{"form":{}}}`),
		}
		ctx := tb.Context()
		calls[x.from+" to "+x.to] = func() {
			raw, in, err := c.Forward(ctx, f)
			if err != nil || string(raw) != x.result || in != era.Lookup(x.to) {
				tb.Fatal(string(raw), in, err)
			}
		}
	}
	return calls
}

func BenchmarkForward(b *testing.B) {
	for name, call := range forwardedCalls(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

// What a gateway does with every call must cost little.
func TestForwardAllocations(t *testing.T) {
	for name, call := range forwardedCalls(t) {
		n := testing.AllocsPerRun(500, call)
		t.Logf("%s: %v allocations", name, n)
		const server = 2 // of these: its frame in the Pipe
		limit := 20.0 + server
		if name != revLegacy+" to "+revLegacy && name != revModern+" to "+revModern {
			limit = 40
		}
		if n > limit {
			t.Errorf("%s: %v allocations, %v at most", name, n, limit)
		}
	}
}
