package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

const (
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	modernAdd = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"math_add",` +
		`"arguments":{"a":2,"b":3},` + modernMeta + `}}`
	modernListen = `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen",` +
		`"params":{"notifications":{"toolsListChanged":true},` + modernMeta + `}}`
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
		`"params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c",` +
		`"version":"1"}}}`
)

// mcpWay is a way to reach the server with MCP.
type mcpWay struct {
	transport string // in the log
	eras      []string
	connect   func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error)
}

var bothEras = []string{"2025-11-25", "2026-07-28"}

// mcpWays are those to a server on a TCP port and a unix socket.
func mcpWays(host, unix string, config *tls.Config) map[string]mcpWay {
	dial := func(target string) func(context.Context, *mcp.ClientOptions) (*mcp.Client, error) {
		return func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
			return mcp.Dial(ctx, target, o)
		}
	}
	connect := func(
		network, addr string, framing stream.Framing, config *tls.Config,
	) func(context.Context, *mcp.ClientOptions) (*mcp.Client, error) {
		return func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
			t, err := stream.Dial(ctx, network, addr, framing, &stream.Options{TLS: config})
			if err != nil {
				return nil, err
			}
			return mcp.Connect(ctx, t, o)
		}
	}
	path := strings.TrimPrefix(unix, "unix:")
	return map[string]mcpWay{
		"Streamable HTTP": {
			"http", append([]string{"2025-03-26"}, bothEras...),
			dial("http://" + host + "/mcp"),
		},
		"Streamable HTTP in TLS": {"https", bothEras, dial("https://" + host + "/mcp")},
		"HTTP+SSE":               {"sse", []string{"2024-11-05"}, dial("http://" + host + "/sse")},
		"HTTP+SSE in TLS":        {"sse+tls", []string{"2024-11-05"}, dial("https://" + host + "/sse")},
		"WebSocket":              {"ws", bothEras, dial("ws://" + host + "/mcp")},
		"WebSocket of JSON-RPC":  {"ws", bothEras, dial("ws://" + host + "/rpc/ws")},
		"WebSocket in TLS":       {"wss", bothEras, dial("wss://" + host + "/mcp")},
		"TCP": {
			"tcp", append([]string{"2024-11-05"}, bothEras...),
			dial("tcp://" + host),
		},
		"TCP with headers":        {"tcp", bothEras, connect("tcp", host, stream.Header, nil)},
		"TCP in TLS":              {"tcp+tls", bothEras, connect("tcp", host, stream.NDJSON, config)},
		"unix socket":             {"unix", bothEras, dial(unix)},
		"unix socket in TLS":      {"unix+tls", bothEras, connect("unix", path, stream.NDJSON, config)},
		"unix socket with header": {"unix", bothEras, connect("unix", path, stream.Header, nil)},
	}
}

// tryMCP uses a client: a list, calls, what a handler sends before its result, a
// question to the user, a resource.
func tryMCP(t *testing.T, way mcpWay, era string, config *tls.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	client, err := way.connect(ctx, &mcp.ClientOptions{
		Era: era, HTTP: &mcphttp.DialOptions{TLS: config},
		Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{Action: spec.ElicitDecline}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got := client.Server().Revision; got != era {
		t.Errorf("revision %s, want %s", got, era)
	}
	if tools, err := client.Tools(ctx); len(tools) < 20 || err != nil {
		t.Errorf("%d tools, %v", len(tools), err)
	}
	steps := 0
	progress := mcp.OnProgress(ctx, func(spec.ProgressNotificationParams) { steps++ })
	if _, err := client.CallTool(progress, "demo_progress",
		map[string]int{"steps": 20, "ms": 0}); steps != 20 || err != nil {
		t.Errorf("%d progress notifications, %v", steps, err)
	}
	if sum, err := mcp.CallTool[float64](ctx, client, "math_add",
		map[string]int{"a": 2, "b": 3}); sum != 5 || err != nil {
		t.Errorf("math_add: %v, %v", sum, err)
	}
	if era >= "2025-06-18" {
		if r, err := client.CallTool(ctx, "demo_form", nil); err != nil ||
			!strings.Contains(r.Content[0].Text, "decline") {
			t.Errorf("demo_form: %v, %v", r, err)
		}
	}
	if r, err := client.Read(ctx, "playground://guide"); err != nil || len(r.Contents) != 1 {
		t.Errorf("guide: %v, %v", r, err)
	}
}

// MCP in every revision, over everything that carries JSON-RPC, beside it.
func TestServeMCP(t *testing.T) {
	t.Parallel()
	cert, key, config := trust(t)
	s := serve(t, "--listen", "127.0.0.1:0", "--listen", "unix:"+t.TempDir()+"/s", "--tls-cert", cert,
		"--tls-key", key, "--insecure")
	host := s.hostport(t)
	for name, way := range mcpWays(host, s.addrs[1], config) {
		for _, era := range way.eras {
			t.Run(name+" "+era, func(t *testing.T) {
				tryMCP(t, way, era, config)
				s.logged(t, 1,
					`method=tools/call .* transport=`+strings.ReplaceAll(way.transport, "+", `\+`)+
						` conn=[a-z+]+-[0-9]+`)
			})
		}
	}
	for _, c := range []struct {
		addr   string
		config *tls.Config
	}{{host, nil}, {host, config}, {s.addrs[1], nil}} {
		if got := dial(t, c.addr, c.config).call(t, addCall); got != addAnswer {
			t.Errorf("JSON-RPC: %s", got)
		}
	}
	if got := request(t, httpClient(nil), "POST", "http://"+host+"/rpc",
		addCall); got.body != addAnswer {
		t.Errorf("JSON-RPC: %s", got.body)
	}
	s.stop(t)
}

func TestServeMCPStdio(t *testing.T) {
	t.Parallel()
	for name, framing := range map[string]stream.Framing{
		"lines":   stream.NDJSON,
		"headers": stream.Header,
	} {
		for _, era := range append([]string{"2024-11-05", "auto"}, bothEras...) {
			t.Run(name+" "+era, func(t *testing.T) {
				t.Parallel()
				want := era
				if era == "auto" {
					want = bothEras[1]
				}
				tryMCP(t, mcpWay{connect: func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
					o.Era = era
					child, err := stream.Command(program(t, "serve", "--stdio", "--log", "off"), framing, nil)
					if err != nil {
						return nil, err
					}
					return mcp.Connect(ctx, child, o)
				}}, want, nil)
			})
		}
	}
}

// The records of MCP are like those of JSON-RPC.
func TestServeMCPLog(t *testing.T) {
	t.Parallel()
	s := serve(t, "--log", "json", "--log-payloads")
	dial(t, s.addrs[0], nil).call(t, modernAdd)
	request(t, httpClient(nil), "POST", s.addrs[0]+"/mcp", initialize)
	request(t, httpClient(nil), "POST", s.addrs[0]+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	for _, want := range []struct{ method, transport, conn string }{
		{"tools/call", "tcp", "tcp-1"}, {"initialize", "http", "http-1"},
	} {
		line := s.logged(t, 1, `"method":"`+want.method+`"`)[0]
		var r struct {
			ID                json.RawMessage
			Code              *int
			LatencyMS         *float64 `json:"latency_ms"`
			BytesIn           int      `json:"bytes_in"`
			BytesOut          int      `json:"bytes_out"`
			Transport, Conn   string
			Request, Response string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if string(r.ID) != "1" || r.Code == nil || *r.Code != 0 || r.LatencyMS == nil ||
			r.BytesIn != len(r.Request) || r.BytesOut != len(r.Response) ||
			r.Transport != want.transport || r.Conn != want.conn ||
			!strings.Contains(r.Response, `"result"`) {
			t.Errorf("%s: %s", want.method, line)
		}
	}
	s.stop(t)
	if calls := s.logged(t, 0, `"method":"math/add"`); len(calls) > 0 {
		t.Errorf("the tool's method is recorded as well: %s", calls)
	}
}

func TestServeMCPLimits(t *testing.T) {
	t.Parallel()
	s := serve(t, "--max-message", "1KB", "--log", "off")
	big := strings.Replace(modernAdd, `"b":3`, `"b":3,"c":"`+strings.Repeat("x", 1000)+`"`, 1)
	if res := request(t, httpClient(nil), "POST", s.addrs[0]+"/mcp",
		big); res.status != http.StatusRequestEntityTooLarge || !strings.Contains(res.body, `"error"`) {
		t.Errorf("%d %s", res.status, res.body)
	}
	w := dial(t, s.addrs[0], nil)
	w.call(t, modernAdd)
	if got := w.call(t, big); !strings.Contains(got, "too large") {
		t.Error(got)
	}
	if got := w.call(t, modernAdd); !strings.Contains(got, `"structuredContent":5`) {
		t.Error(got)
	}
	s.stop(t)
}

// postModern makes a modern request with an answer that is an event stream, and returns its
// lines.
func postModern(t *testing.T, base, method, name, body string) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/mcp",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
	} {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	res, err := httpClient(nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	return bufio.NewScanner(res.Body)
}

func rest(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	var all strings.Builder
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	return all.String()
}

// A signal ends sessions and subscriptions in order, after the calls in flight.
func TestServeMCPDrains(t *testing.T) {
	t.Parallel()
	s := serve(t, "--log", "off")
	clients := map[string]*mcp.Client{}
	for name, target := range map[string]string{
		"http": s.addrs[0] + "/mcp", "sse": s.addrs[0] + "/sse", "tcp": "tcp://" + s.hostport(t),
		"ws": "ws://" + s.hostport(t) + "/mcp",
	} {
		era := "2025-11-25"
		if name == "sse" {
			era = "2024-11-05"
		}
		client, err := mcp.Dial(t.Context(), target, &mcp.ClientOptions{Era: era})
		if err != nil {
			t.Fatal(name, err)
		}
		clients[name] = client
	}
	const slow = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo_progress",` +
		`"arguments":{"steps":15,"ms":100},"_meta":{"progressToken":1,`
	calling := postModern(t, s.addrs[0], "tools/call", "demo_progress",
		slow+strings.TrimPrefix(modernMeta, `"_meta":{`)+"}}")
	calling.Scan() // it is under way
	listening := postModern(t, s.addrs[0], "subscriptions/listen", "", modernListen)
	listening.Scan()
	line := dial(t, s.addrs[0], nil)
	if got := line.call(t, modernListen); !strings.Contains(got, "acknowledged") {
		t.Fatal(got)
	}
	silent := dial(t, s.addrs[0], nil)

	under := make(chan struct{}, len(clients))
	results := make(chan error, len(clients))
	for _, client := range clients {
		go func() {
			once := false
			ctx := mcp.OnProgress(t.Context(), func(spec.ProgressNotificationParams) {
				if !once {
					once = true
					under <- struct{}{}
				}
			})
			_, err := client.CallTool(ctx, "demo_progress", map[string]int{"steps": 15, "ms": 100})
			results <- err
		}()
	}
	for range clients {
		<-under
	}
	began := time.Now()
	s.signal(t, syscall.SIGTERM)
	refused(t, s)
	for range clients {
		if err := <-results; err != nil {
			t.Errorf("a call in flight fails: %v", err)
		}
	}
	if got := rest(t, calling); !strings.Contains(got, "Took 15 steps.") {
		t.Errorf("the call in flight got %s", got)
	}
	if got := rest(t, listening); !strings.Contains(got, `"result"`) ||
		!strings.Contains(got, `"id":"l"`) {
		t.Errorf("the subscription over HTTP ends with %q", got)
	}
	if got := line.line(t); !strings.Contains(got, "notifications/cancelled") {
		t.Errorf("the subscription over TCP ends with %s", got)
	}
	if got := line.line(t); !strings.Contains(got, `"result"`) || !strings.Contains(got, `"id":"l"`) {
		t.Errorf("the subscription over TCP ends with %s", got)
	}
	if _, err := silent.r.ReadByte(); err == nil {
		t.Error("the silent connection got something")
	}
	if code := s.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if d := time.Since(began); d > drainTime {
		t.Errorf("it took %v", d)
	}
	for name, client := range clients {
		if err := client.Close(); err != nil && !errors.Is(err, farcall.ErrClosed) &&
			!errors.Is(err, mcphttp.ErrConnect) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
