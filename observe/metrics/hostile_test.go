package metrics_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/observe/metrics"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// hostileNames is how many names the test sends: a million with FARCALL_FULL, which takes a minute.
func hostileNames() int {
	if full.Wanted() {
		return 1_000_000
	}
	return 2000
}

// Whatever methods, tools, prompts, sessions, clients, revisions and error codes the other end
// names, over whichever transport: there are as many series as after the first few, and no memory
// is kept.
func TestHostileNames(t *testing.T) {
	m := metrics.New(nil)
	rpc := &farcall.Options{Observer: m.Observer()}
	say := []func(name string){
		overPipe(t, rpc), overHTTP(t, rpc), overMCP(t, rpc),
		overMCPHTTP(t, rpc), overTCP(t, rpc), overWS(t, rpc),
	}
	each := hostileNames() / (len(say) * 8)
	series := func() int { return strings.Count(scrape(t, m), "\n") }
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	flood := func(round, n int) {
		for i := range n {
			for _, f := range say {
				f(fmt.Sprintf("x%d-%d", round, i))
			}
		}
	}
	flood(0, 1+each/20)
	lines, bytes := series(), heap()
	flood(1, each)
	text := scrape(t, m)
	if got := strings.Count(text, "\n"); got != lines {
		t.Errorf("%d lines after %d more names of each kind, %d before", got, each, lines)
	}
	if i := strings.Index(text, "x1-"); i >= 0 {
		t.Errorf("a name of the other end is a label: %s", text[max(i-200, 0):i+20])
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "farcall_metrics_overflow_total{") &&
			!strings.HasSuffix(line, " 0\n") {
			t.Errorf("a metric has too many series: %s", line)
		}
	}
	grown := heap() - bytes
	if grown > 2<<20 {
		t.Errorf("%d bytes more are kept after %d names of each kind", grown, each)
	}
	t.Logf("%d lines, %d bytes more in memory, after %d names of each kind", lines, grown, each)
	for _, want := range []string{
		`transport="tcp"`, `transport="ws"`, `mcp_method_name="_OTHER"`,
		`mcp_method_name="tools/call"`, `rpc_method="_OTHER"`, `error_type="_OTHER"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing has %s: the names were not sent", want)
		}
	}
}

// overPipe calls methods over a connection, which answer with unregistered codes.
func overPipe(t *testing.T, rpc *farcall.Options) func(string) {
	t.Helper()
	mux := farcall.NewMux()
	farcall.Handle(mux, "fail", func(_ context.Context, code []int) (int, error) {
		return 0, &jsonrpc.Error{Code: jsonrpc.Code(code[0]), Message: "hostile"}
	})
	a, b := farcall.Pipe()
	server, client := farcall.NewPeer(a, mux, rpc), farcall.NewPeer(b, nil, rpc)
	t.Cleanup(func() { client.Close(); server.Close() })
	n := 0
	return func(name string) {
		n++
		_ = client.Call(t.Context(), name, nil, nil)
		_ = client.Call(t.Context(), "fail", []int{100_000 + n}, nil)
		_ = client.Notify(t.Context(), name, nil)
	}
}

// post sends a body to a handler.
func post(t *testing.T, h http.Handler, body string, header ...string) http.Header {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/",
		strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Header()
}

func overHTTP(t *testing.T, rpc *farcall.Options) func(string) {
	t.Helper()
	h := httprpc.NewHandler(farcall.NewMux(), &httprpc.Options{RPC: rpc})
	return func(name string) {
		post(t, h, `{"jsonrpc":"2.0","id":1,"method":"`+name+`"}`)
		post(t, h, `[{"jsonrpc":"2.0","id":"`+name+`","method":"`+name+`"},{"method":"`+name+`"}]`)
	}
}

// hostileCalls are calls of MCP that name what no server offers.
func hostileCalls(name string) []string {
	calls := []string{`"` + name + `","params":{}`}
	for _, method := range []string{"tools/call", "prompts/get", "completion/complete"} {
		calls = append(calls,
			fmt.Sprintf(
				`"%s","params":{"name":%q,"ref":{"type":"ref/prompt","name":%q},"argument":{"name":"a",`+
					`"value":"b"}}`, method, name, name))
	}
	return append(calls, `"resources/read","params":{"uri":"x://`+name+`"}`)
}

func hostileInitialize(name string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":%q,`+
			`"capabilities":{},"clientInfo":{"name":%q,"version":%q}}}`, name, name, name)
}

func offering(rpc *farcall.Options) *mcp.Server {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{RPC: rpc})
	mcp.AddTool(s, mcp.Tool{Name: "add"}, func(context.Context, struct{}) (int, error) {
		return 1, nil
	})
	s.AddPrompt(mcp.Prompt{Name: "hello"},
		func(context.Context, map[string]string) (*mcp.PromptResult, error) {
			return &mcp.PromptResult{}, nil
		})
	return s
}

// overMCP opens a connection for each client.
func overMCP(t *testing.T, rpc *farcall.Options) func(string) {
	t.Helper()
	s := offering(rpc)
	return func(name string) {
		a, b := farcall.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.ServeTransport(t.Context(), a, rpc)
		}()
		sayAll(t, b, name)
		<-ended
	}
}

// sayAll begins a session, calls what there is not, and closes the connection.
func sayAll(t *testing.T, b farcall.Transport, name string) {
	t.Helper()
	exchange := func(frame string) {
		if err := b.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Read(); err != nil {
			t.Fatal(err)
		}
	}
	exchange(hostileInitialize(name))
	for _, call := range hostileCalls(name) {
		exchange(`{"jsonrpc":"2.0","id":1,"method":` + call + `}`)
	}
	b.Close()
}

// overTCP opens a connection for each client.
func overTCP(t *testing.T, rpc *farcall.Options) func(string) {
	t.Helper()
	s, o := offering(rpc), *rpc
	o.Transport = "tcp"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func(name string) {
		b, err := stream.Dial(t.Context(), "tcp", l.Addr().String(), stream.NDJSON, nil)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.ServeTransport(t.Context(), stream.New(conn, stream.NDJSON, nil), &o)
		}()
		sayAll(t, b, name)
		<-ended
	}
}

// overWS is overTCP with WebSocket.
func overWS(t *testing.T, rpc *farcall.Options) func(string) {
	t.Helper()
	s, o := offering(rpc), *rpc
	o.Transport = "ws"
	ended := make(chan struct{}, 1)
	server := httptest.NewServer(wsrpc.NewHandler(func(a farcall.Transport, _ *http.Request) {
		go func() {
			_ = s.ServeTransport(t.Context(), a, &o)
			ended <- struct{}{}
		}()
	}, nil))
	t.Cleanup(server.Close)
	return func(name string) {
		b, err := wsrpc.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		sayAll(t, b, name)
		<-ended
	}
}

// overMCPHTTP opens a session for each client, and names others that there are not.
func overMCPHTTP(t *testing.T, rpc *farcall.Options) func(string) {
	t.Helper()
	h := mcphttp.NewHandler(offering(rpc), &mcphttp.Options{RPC: rpc})
	t.Cleanup(func() { _ = h.Shutdown(context.Background()) })
	return func(name string) {
		id := post(t, h, hostileInitialize(name)).Get("Mcp-Session-Id")
		for _, call := range hostileCalls(name) {
			post(t, h, `{"jsonrpc":"2.0","id":1,"method":`+call+`}`, "Mcp-Session-Id", id)
			post(t, h, `{"jsonrpc":"2.0","id":1,"method":`+call+`}`, "Mcp-Session-Id", name,
				"Mcp-Protocol-Version", name)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "http://localhost/", nil)
		r.Header.Set("Mcp-Session-Id", id)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}
