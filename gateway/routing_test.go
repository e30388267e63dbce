package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A prefix that is stripped from a name made header and body disagree: here a
// server that compares them finds both with its own name.
func TestNameHeader(t *testing.T) {
	a, b := newMock("modern"), newMock("modern")
	for _, m := range []*mock{a, b} {
		m.AddPrompt(mcp.Prompt{Name: "greet"},
			func(context.Context, map[string]string) (*mcp.PromptResult, error) {
				return &mcp.PromptResult{
					Messages: []mcp.PromptMessage{{Role: "user", Content: mcp.Text("hello")}},
				}, nil
			})
		m.AddResource(mcp.Resource{URI: "test://thing", Name: "thing"},
			func(_ context.Context, uri string) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{{URI: uri, Text: "thing"}}, nil
			})
	}
	seen := make(chan string, 1000)
	note := func(r *http.Request) {
		if name := r.Header.Get("Mcp-Name"); name != "" {
			seen <- r.Header.Get("Mcp-Method") + " " + name
		}
	}
	one := a.http(t, "a", note)
	one.Tools.Rename = map[string]string{"wait": "linger"}
	l := newLab(t, nil, one, b.http(t, "b", note))
	for _, call := range []struct{ method, name, params, header string }{
		{"tools/call", "b__echo", `"name":"b__echo","arguments":{"text":"x"}`, "tools/call echo"},
		{"prompts/get", "b__greet", `"name":"b__greet"`, "prompts/get greet"},
		{"resources/read", "a+test://thing", `"uri":"a+test://thing"`, "resources/read test://thing"},
		{"resources/read", "b+test://thing", `"uri":"b+test://thing"`, "resources/read test://thing"},
	} {
		r, err := l.modern(t.Context(), call.method, call.name, call.params)
		if err != nil || r.err != nil || r.status != http.StatusOK {
			t.Errorf("%s %s: %v, %v", call.method, call.name, r, err)
			continue
		}
		if got := received(t, "a request", seen); got != call.header {
			t.Errorf("the server was sent %q, not %q", got, call.header)
		}
		if strings.HasPrefix(call.name, "b+") && !strings.Contains(r.body, `"uri":"b+test://thing"`) {
			t.Errorf("the contents do not go by the name that was asked for: %v", r)
		}
	}
	a.release <- struct{}{}
	r, err := l.modern(t.Context(), "tools/call", "linger", `"name":"linger","arguments":{"text":"x"}`)
	if got := received(t, "a request", seen); err != nil || r.err != nil || got != "tools/call wait" {
		t.Errorf("%v, %v, %s", r, err, got)
	}
	// Headers that disagree with the body are refused at the door.
	r, err = l.modern(t.Context(), "tools/call", "a__echo",
		`"name":"b__echo","arguments":{"text":"x"}`)
	if err != nil || r.err == nil || r.status != http.StatusBadRequest || len(seen) != 0 {
		t.Errorf("%v, %v", r, err)
	}
}

// Methods that no server has are answered with -32601, in the modern era with
// status 404; those that one of them has go to that one.
func TestUnknownMethods(t *testing.T) {
	a, b := newMock(""), newMock("")
	b.AddExtension("com.example/x", map[string]any{})
	b.Handle("x/custom", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return map[string]int{"n": 1}, nil
	}))
	l := newLab(t, nil, a.tcp(t, "a"), b.tcp(t, "b"))
	for _, era := range []string{"legacy", "modern"} {
		c := l.client(t, mcp.ClientOptions{Era: era})
		var out struct {
			N int `json:"n"`
		}
		if err := c.Request(t.Context(), "x/custom", map[string]any{}, &out); err != nil || out.N != 1 {
			t.Errorf("%s: %v, %v", era, out, err)
		}
		if err := c.Request(t.Context(), "x/other", map[string]any{}, nil); !errors.Is(err,
			jsonrpc.MethodNotFound) {
			t.Errorf("%s: %v", era, err)
		}
	}
	r, err := l.modern(t.Context(), "x/other", "", "")
	if err != nil || r.err == nil || r.err.Code != jsonrpc.MethodNotFound ||
		r.status != http.StatusNotFound {
		t.Error(r, err)
	}
}

// restartable is an HTTP server of sessions that can forget all of them.
type restartable struct {
	m       *mock
	handler atomic.Pointer[mcphttp.Handler]
	begun   atomic.Int64 // sessions
	url     string
}

func newRestartable(t *testing.T) *restartable {
	t.Helper()
	r := &restartable{m: newMock("legacy")}
	r.restart()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost && req.Header.Get("Mcp-Session-Id") == "" {
			r.begun.Add(1)
		}
		r.handler.Load().ServeHTTP(w, req)
	}))
	r.url = s.URL + "/mcp"
	t.Cleanup(func() {
		r.m.Close()
		s.CloseClientConnections()
		s.Close()
	})
	return r
}

func (r *restartable) restart() {
	r.handler.Store(mcphttp.NewHandler(r.m.Server, nil))
}

// A server that was restarted never recovered, and a session that had expired left
// the composite one half alive: here the gateway begins a new one, and its clients
// notice nothing.
func TestServerRestarts(t *testing.T) {
	web := newRestartable(t)
	l := newLab(t, nil, &gateway.Upstream{Name: "web", URL: web.url, Era: "legacy"},
		child("other", "ok"))
	for _, era := range []string{"legacy", "modern"} {
		c := l.client(t, mcp.ClientOptions{Era: era})
		for range 3 {
			wants(t, c, "web__echo", "hello", "hello")
			web.restart()
		}
		wants(t, c, "other__echo", "hello", "hello")
	}
}

// Health checks of a gateway opened sessions until the server ran out of memory:
// here a server has the sessions that calls need, however often one looks.
func TestFewSessions(t *testing.T) {
	web := newRestartable(t)
	l := newLab(t, nil, &gateway.Upstream{Name: "web", URL: web.url, Era: "legacy"})
	for range 100 {
		l.status(t)
		l.get(t, "/")
		l.get(t, "/readyz")
	}
	if n := web.begun.Load(); n != 0 {
		t.Errorf("looking at the gateway has begun %d sessions", n)
	}
	for range 10 {
		c := l.client(t, mcp.ClientOptions{Era: "legacy"})
		wants(t, c, "echo", "hello", "hello")
		c.Close()
	}
	if n := web.begun.Load(); n > 2 { // and what finds out which revision it speaks
		t.Errorf("ten clients, one after the other, have begun %d sessions", n)
	}
}

// A session that is not there is answered with status 404, so that clients begin
// again, and not with 400; a client that does not send the session back gets an error that says so.
func TestSessionNotFound(t *testing.T) {
	l := newLab(t, nil, child("c", "ok"))
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	r, err := l.post(t.Context(), "/mcp", ping, "Mcp-Session-Id: long-gone",
		"MCP-Protocol-Version: "+legacy)
	if err != nil || r.status != http.StatusNotFound {
		t.Error(r, err)
	}
	r, err = l.post(t.Context(), "/mcp", ping)
	if err != nil || r.status != http.StatusBadRequest ||
		!strings.Contains(r.body, "Mcp-Session-Id is missing") {
		t.Error(r, err)
	}
}

// A second GET of the event stream killed the child: here it goes on.
func TestSecondEventStream(t *testing.T) {
	l := newLab(t, nil, child("c", "ok"))
	r, err := l.post(t.Context(), "/mcp", initialize)
	if err != nil || r.err != nil {
		t.Fatal(r, err)
	}
	session := "Mcp-Session-Id: " + r.header.Get("Mcp-Session-Id")
	call := func() string {
		t.Helper()
		r, err := l.post(t.Context(), "/mcp",
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"pid","arguments":{}}}`, session,
			"MCP-Protocol-Version: "+legacy)
		if err != nil || r.err != nil {
			t.Fatal(r, err)
		}
		return string(r.result)
	}
	before := call()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 3 {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, l.url+"/mcp", nil)
		req.Header = http.Header{
			"Accept":         {"text/event-stream"},
			"Mcp-Session-Id": {r.header.Get("Mcp-Session-Id")}, "Mcp-Protocol-Version": {legacy},
		}
		got, err := l.web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
	}
	if after := call(); after != before {
		t.Errorf("it was served by %s, then by %s", before, after)
	}
}

// A header was cut off at 4 KB, and the token in it with it.
func TestLongHeader(t *testing.T) {
	seen := make(chan string, 1000)
	m := newMock("modern")
	u := m.http(t, "m", func(r *http.Request) { seen <- r.Header.Get("Authorization") })
	u.Headers = map[string]string{"Authorization": "Bearer " + strings.Repeat("t", 32<<10)}
	l := newLab(t, nil, u)
	r, err := l.modern(t.Context(), "tools/call", "echo", `"name":"echo","arguments":{"text":"x"}`,
		"Authorization: Bearer "+strings.Repeat("u", 16<<10))
	if err != nil || r.err != nil {
		t.Fatal(r, err)
	}
	if got := received(t, "a request", seen); got != u.Headers["Authorization"] {
		t.Errorf("%d bytes arrived: %.20s", len(got), got)
	}
}

// A list of 2.1 MB made a server vanish behind a gateway.
func TestLongList(t *testing.T) {
	t.Parallel()
	m := newMock("legacy")
	for n := range 300 {
		m.AddTool(mcp.Tool{
			Name: fmt.Sprintf("tool-%03d", n), Description: strings.Repeat("d", 10_000),
			InputSchema: jsonrpc.Raw(`{"type":"object"}`),
		}, func(context.Context, jsonrpc.Raw) (*mcp.ToolResult, error) { return &mcp.ToolResult{}, nil })
	}
	l := newLabOf(t, nil,
		&gateway.Config{Upstreams: []*gateway.Upstream{m.tcp(t, "m")}, PageSize: 1000})
	c := l.client(t, mcp.ClientOptions{Era: "legacy"})
	var r spec.ListToolsResult
	if err := c.Request(t.Context(), spec.MethodToolsList, nil, &r); err != nil ||
		len(r.Tools) != 303 {
		t.Errorf("%d tools, %v", len(r.Tools), err)
	}
}
