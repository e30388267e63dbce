package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/stream"
)

// BenchmarkCall calls a tool through a gateway, 64 callers at once, without HTTP
// connections: what is left is the gateway, a socket, and a server with a part that is
// the same in all of them.
func BenchmarkCall(b *testing.B) {
	for _, way := range []struct{ client, server string }{
		{"2025-06-18", "2025-06-18"},
		{"2026-07-28", "2025-06-18"},
		{"2026-07-28", "2026-07-28"},
		{"2025-06-18", "2026-07-28"},
		{"2025-03-26", "2025-06-18"},
	} {
		b.Run(way.client+" to "+way.server, func(b *testing.B) {
			c := &benchClient{g: newBenchGateway(b, way.server), revision: way.client}
			c.begin(b)
			c.inParallel(b)
		})
	}
}

// BenchmarkCallBeside is BenchmarkCall in one pair of revisions, with and without what the calls
// make no use of, and at an endpoint. The rows are to be compared with the first:
//
//	go test ./gateway -run '^$' -bench CallBeside -count 10 | benchstat -col /config -
func BenchmarkCallBeside(b *testing.B) {
	for _, row := range []struct {
		name, path string
		config     *gateway.Config
	}{
		{"nothing", "/mcp", &gateway.Config{}},
		{"endpoints", "/mcp", withUnused()},
		{"endpoint", "/mcp/plain", withUnused()},
		{"override", "/mcp/changed", withUnused()},
	} {
		b.Run("config="+row.name, func(b *testing.B) {
			c := &benchClient{
				g: newBenchGatewayOf(b, row.config, "2025-06-18"), path: row.path,
				revision: "2025-06-18",
			}
			c.begin(b)
			c.inParallel(b)
		})
	}
}

// inParallel measures calls of many callers.
func (c *benchClient) inParallel(b *testing.B) {
	b.Helper()
	b.ReportAllocs()
	b.SetParallelism(32)
	var callers atomic.Int64
	b.RunParallel(func(p *testing.PB) {
		call := c.call(b, strings.Replace(benchCall, "100", strconv.FormatInt(callers.Add(1), 10), 1))
		for p.Next() {
			if answer := call(); !bytes.Contains(answer, []byte(`hello`)) {
				b.Errorf("answered %s", answer)
				return
			}
		}
	})
}

const benchCall = `{"jsonrpc":"2.0","id":100,"method":"tools/call",` +
	`"params":{"name":"server__greet","arguments":{"name":"hello"}}}`

// newBenchGateway serves a server of that revision that is in this process.
func newBenchGateway(b *testing.B, revision string) *gateway.Gateway {
	b.Helper()
	return newBenchGatewayOf(b, &gateway.Config{}, revision)
}

func newBenchGatewayOf(b *testing.B, c *gateway.Config, revision string) *gateway.Gateway {
	b.Helper()
	path := filepath.Join(b.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	s := mcp.NewServer("bench", "1", nil)
	type person struct {
		Name string `json:"name"`
	}
	mcp.AddTool(s, mcp.Tool{Name: "greet", Description: "Greet a person"},
		func(_ context.Context, in person) (person, error) { return in, nil })
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if err := s.Serve(b.Context(), stream.New(conn, stream.NDJSON, nil)); err != nil &&
				!errors.Is(err, farcall.ErrClosed) {
				b.Log(err)
			}
		}
	}()
	c.Upstreams = []*gateway.Upstream{{Name: "server", URL: "unix:" + path, Era: revision}}
	g, err := gateway.New(c, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := g.Shutdown(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
		l.Close()
		<-served
	})
	return g
}

// benchClient makes requests as net/http does, without a connection.
type benchClient struct {
	g                       *gateway.Gateway
	path, revision, session string // "": /mcp
}

func (c *benchClient) modern() bool { return c.revision == "2026-07-28" }

func (c *benchClient) begin(tb testing.TB) {
	tb.Helper()
	if c.modern() {
		return
	}
	w := c.serve(
		c.request(tb, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+
			c.revision+
			`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`))
	c.session = w.header.Get("Mcp-Session-Id")
	c.serve(c.request(tb, `{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

func (c *benchClient) request(tb testing.TB, body string) *http.Request {
	tb.Helper()
	local := net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80})
	r, err := http.NewRequestWithContext(
		context.WithValue(tb.Context(), http.LocalAddrContextKey, local),
		http.MethodPost, "http://127.0.0.1:80"+cmp.Or(c.path, "/mcp"), strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	r.RemoteAddr = "127.0.0.1:1234"
	r.Header = http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/event-stream"},
	}
	switch {
	case c.modern():
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "server__greet")
		r.Header.Set("Mcp-Protocol-Version", c.revision)
	case c.session != "":
		r.Header.Set("Mcp-Session-Id", c.session)
		r.Header.Set("Mcp-Protocol-Version", c.revision)
	}
	return r
}

// call returns what makes the same call again and again.
func (c *benchClient) call(tb testing.TB, body string) func() []byte {
	tb.Helper()
	if c.modern() {
		body = strings.Replace(body, `"params":{`,
			`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"`+c.revision+
				`","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},`+
				`"io.modelcontextprotocol/clientCapabilities":{}},`, 1)
	}
	r, text, w := c.request(tb, body), strings.NewReader(body), &benchWriter{header: http.Header{}}
	again := io.NopCloser(text)
	return func() []byte {
		text.Reset(body)
		r.Body = again // handlers put others in its place
		clear(w.header)
		w.body = w.body[:0]
		c.g.ServeHTTP(w, r)
		return w.body
	}
}

func (c *benchClient) serve(r *http.Request) *benchWriter {
	w := &benchWriter{header: http.Header{}}
	c.g.ServeHTTP(w, r)
	return w
}

// benchWriter keeps an answer.
type benchWriter struct {
	header http.Header
	body   []byte
}

func (w *benchWriter) Header() http.Header              { return w.header }
func (w *benchWriter) WriteHeader(int)                  {}
func (w *benchWriter) Flush()                           {}
func (w *benchWriter) SetReadDeadline(time.Time) error  { return nil }
func (w *benchWriter) SetWriteDeadline(time.Time) error { return nil }

func (w *benchWriter) Write(p []byte) (int, error) {
	w.body = append(w.body, p...)
	return len(p), nil
}
