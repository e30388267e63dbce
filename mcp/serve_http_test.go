package mcp

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// httpClient posts messages to a handler, without a network.
type httpClient struct {
	handler http.Handler
	header  http.Header
	sink    sink
}

func newHTTPClient(s *Server, header ...string) *httpClient {
	c := &httpClient{handler: mcphttp.NewHandler(s, nil), header: http.Header{}}
	c.header.Set("Content-Type", "application/json")
	c.header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		c.header.Set(header[i], header[i+1])
	}
	return c
}

// begin opens a session; later messages carry its id.
func (c *httpClient) begin(revision string) {
	c.send(hello(revision))
	c.header.Set("Mcp-Session-Id", c.sink.header.Get("Mcp-Session-Id"))
	c.header.Set("MCP-Protocol-Version", revision)
}

// send posts a message and returns what was answered, for as long as nothing
// else is sent.
func (c *httpClient) send(message string) []byte { return c.do(http.MethodPost, message) }

func (c *httpClient) do(method, message string) []byte {
	clear(c.sink.header)
	c.sink.body = c.sink.body[:0]
	c.handler.ServeHTTP(&c.sink, &http.Request{
		Method: method, URL: &url.URL{Path: "/mcp"}, Header: c.header, Host: "localhost",
		Body: io.NopCloser(strings.NewReader(message)), ContentLength: int64(len(message)),
	})
	return c.sink.body
}

// sink is an http.ResponseWriter.
type sink struct {
	header http.Header
	body   []byte
}

func (s *sink) Header() http.Header {
	if s.header == nil {
		s.header = http.Header{}
	}
	return s.header
}

func (s *sink) Write(p []byte) (int, error) {
	s.body = append(s.body, p...)
	return len(p), nil
}

func (s *sink) WriteHeader(int) {}

// Flush implements http.Flusher.
func (s *sink) Flush() {}

// TestHTTPProgress: the root's progress goes out as MCP has it.
func TestHTTPProgress(t *testing.T) {
	s := calculator(nil)
	AddTool(s, Tool{Name: "work"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "done", farcall.Progress(ctx, map[string]any{"progress": 1})
	})
	const want = `data: {"jsonrpc":"2.0","method":"notifications/progress",` +
		`"params":{"progressToken":"p","progress":1}}`
	modern := newHTTPClient(s, "MCP-Protocol-Version", modernName, "Mcp-Method", "tools/call",
		"Mcp-Name", "work")
	if got := modern.send(strings.Replace(modernFrame("1", "tools/call", `"name":"work"`), `"_meta":{`,
		`"_meta":{"progressToken":"p",`, 1)); !strings.Contains(string(got), want) {
		t.Errorf("modern: %s", got)
	}
	legacy := newHTTPClient(s)
	legacy.begin(legacyName)
	if got := legacy.send(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work",` +
			`"_meta":{"progressToken":"p"}}}`); !strings.Contains(string(got), want) {
		t.Errorf("legacy: %s", got)
	}
}

// TestHTTPTaskNotifications: the call that made a task has its answer; what the
// task says goes out on the stream of GET, also when that comes later.
func TestHTTPTaskNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calculator(nil)
		defer s.Close()
		AddTool(s, Tool{Name: "work", Execution: &spec.ToolExecution{TaskSupport: spec.TaskRequired}},
			func(ctx context.Context, _ struct{}) (string, error) {
				<-time.After(time.Second)
				return "done", Log(ctx, spec.LogWarning, "", "half done")
			})
		c := newHTTPClient(s)
		c.begin(legacyName)
		if got := c.send(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work",` +
				`"task":{}}}`); !strings.Contains(string(got), `"taskId"`) {
			t.Fatalf("%s", got)
		}
		<-time.After(2 * time.Second)
		stream := make(chan string)
		go func() { stream <- string(c.do(http.MethodGet, "")) }()
		synctest.Wait()
		if err := c.handler.(*mcphttp.Handler).Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if got := <-stream; strings.Count(got, `"half done"`) != 1 ||
			!strings.Contains(got, spec.MetaRelatedTask) {
			t.Errorf("GET: %s", got)
		}
	})
}

// TestListenAndServe serves both eras on one address, and stops in order.
func TestListenAndServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := calculator(nil)
	s.AddTool(Tool{Name: "headers", InputSchema: []byte(headerSchema)},
		func(context.Context, jsonrpc.Raw) (*ToolResult, error) { return nil, nil })
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.serveHTTP(ctx, l) }()
	post := func(body string, headers ...string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.Addr().String()+"/mcp",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status + " " + string(b)
	}
	version := []string{"MCP-Protocol-Version", modernName, "Mcp-Method", "tools/call", "Mcp-Name"}
	if got := post(modernFrame("1", "tools/call", `"name":"add","arguments":{"a":1,"b":2}`),
		append(version, "add")...); !strings.Contains(got, `{"sum":3}`) {
		t.Error("modern:", got)
	}
	call := modernFrame("1", "tools/call", `"name":"headers","arguments":{"region":"x"}`)
	if got := post(call, append(version, "headers")...); !strings.HasPrefix(got, "400") ||
		!strings.Contains(got, `"code":-32020`) {
		t.Error("without its header:", got)
	}
	if got := post(call, append(version, "headers", "mcp-param-region", "x")...); !strings.HasPrefix(
		got, "200") {
		t.Error("with its header:", got)
	}
	c, err := Dial(ctx, l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := CallTool[addOut](ctx, c, "add", addIn{1, 2}); err != nil || got.Sum != 3 {
		t.Error("host:port:", got, err)
	}
	mustClose(t, c)
	if got := post(hello(legacyName)); !strings.Contains(got, `"protocolVersion":"2025-11-25"`) {
		t.Error("legacy:", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.ListenAndServe(t.Context(), "256.0.0.1:x"); err == nil {
		t.Error("an address that there is not")
	}
}

// TestWarnOfReach: a library has no flag to insist with, so it says what it does.
func TestWarnOfReach(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 80} }
	for _, c := range []struct {
		addr net.Addr
		want bool
	}{
		{tcp("127.0.0.1"), false},
		{tcp("::1"), false},
		{&net.UnixAddr{Name: "/run/x", Net: "unix"}, false},
		{tcp("0.0.0.0"), true},
		{tcp("::"), true},
		{tcp("192.168.1.5"), true},
	} {
		var log strings.Builder
		s := NewServer("s", "1", &ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if s.warnOfReach(t.Context(), c.addr); strings.Contains(log.String(), "level=WARN") != c.want {
			t.Errorf("%v: logged %q, want a warning: %v", c.addr, log.String(), c.want)
		}
	}
}
