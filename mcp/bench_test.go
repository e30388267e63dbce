package mcp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// sumServer has a tool with input and output that are validated.
func sumServer() *Server { return sumServerWith(nil) }

func sumServerWith(o *ServerOptions) *Server {
	type out struct {
		Sum int `json:"sum" min:"-1000000" max:"1000000"` // without limits the type would be enough
	}
	s := NewServer("calc", "1.0", o)
	AddTool(s, Tool{Name: "add", Description: "Add two numbers"},
		func(_ context.Context, in addIn) (out, error) { return out{in.A + in.B}, nil })
	return s
}

// callInProcess returns a function that makes one call as a transport makes it.
func callInProcess(tb testing.TB) func() {
	tb.Helper()
	return sumCall(tb, sumServer())
}

func sumCall(tb testing.TB, s *Server) func() {
	tb.Helper()
	r := farcall.NewResponder(s, nil)
	frame := []byte(modernFrame("1", "tools/call", `"name":"add","arguments":{"a":2,"b":3}`))
	ctx := tb.Context()
	var dst []byte
	return checked(tb, func() []byte {
		dst = r.Respond(ctx, dst[:0], frame, nil)
		return dst
	})
}

// checked returns a function that makes a call and looks at the answer, at no
// cost worth measuring.
func checked(tb testing.TB, call func() []byte) func() {
	tb.Helper()
	first := bytes.Clone(call())
	if !bytes.Contains(first, []byte(`"structuredContent":{"sum":5}`)) {
		tb.Fatalf("%s", first)
	}
	return func() {
		if got := call(); !bytes.Equal(got, first) {
			tb.Fatalf("%s", got)
		}
	}
}

// callOverHTTP is the same through the HTTP handler, without net/http's share.
func callOverHTTP(tb testing.TB, revision string) func() {
	tb.Helper()
	s := sumServer()
	c, call := newHTTPClient(s),
		modernFrame("1", "tools/call", `"name":"add","arguments":{"a":2,"b":3}`)
	if revision == modernName {
		c = newHTTPClient(s, "MCP-Protocol-Version", modernName, "Mcp-Method", "tools/call",
			"Mcp-Name", "add")
	} else {
		c.begin(revision)
		call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add",` +
			`"arguments":{"a":2,"b":3}}}`
	}
	body := strings.NewReader(call)
	r := &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: "/mcp"}, Header: c.header, Host: "localhost",
		Body: io.NopCloser(body), ContentLength: int64(len(call)),
	}
	r = r.WithContext(tb.Context())
	return checked(tb, func() []byte {
		clear(c.sink.header)
		c.sink.body = c.sink.body[:0]
		body.Reset(call)
		c.handler.ServeHTTP(&c.sink, r)
		return c.sink.body
	})
}

// BenchmarkToolsCall is the server's own work for tools/call of a typed tool,
// with input and output validated.
func BenchmarkToolsCall(b *testing.B) {
	for _, bench := range []struct {
		name string
		call func()
	}{
		{"process", callInProcess(b)},
		{"http", callOverHTTP(b, modernName)},
		{"session", callOverHTTP(b, "2025-06-18")},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bench.call()
			}
		})
	}
}

func TestToolsCallAllocations(t *testing.T) {
	call := callInProcess(t)
	if n := testing.AllocsPerRun(100, call); n > 12 {
		t.Errorf("%v allocations, want 12 at most", n)
	}
	const calls = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		call()
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / calls; n > 1536 {
		t.Errorf("%d bytes, want 1536 at most", n)
	}
}

// TestSessionMemory holds many idle sessions: the heap of all layers for one
// that was initialized and has made a call.
func TestSessionMemory(t *testing.T) {
	const n, limit = 2000, 3 << 10
	s := sumServer()
	c := newHTTPClient(s)
	var before, after runtime.MemStats
	run := func(n int) {
		for range n {
			c.header.Del("Mcp-Session-Id")
			c.begin(legacyName)
			c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			if got := c.send(
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add",` +
					`"arguments":{"a":2,"b":3}}}`); !bytes.Contains(got, []byte(`{"sum":5}`)) {
				t.Fatalf("%s", got)
			}
		}
		runtime.GC()
		runtime.GC()
	}
	run(10)
	goroutines := runtime.NumGoroutine()
	runtime.ReadMemStats(&before)
	run(n)
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n
	t.Log(each, "bytes for a session")
	if each > limit {
		t.Errorf("%d bytes for a session, want %d at most", each, limit)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 0 {
		t.Errorf("%d goroutines for %d idle sessions", more, n)
	}
	if err := c.handler.(*mcphttp.Handler).Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(s.listeners.sessions); n != 0 {
		t.Error(n, "sessions are left")
	}
}
