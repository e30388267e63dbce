package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// What filters, a lock and a lifetime keep from a client cannot be had by calling it as
// JSON-RPC, which the profile auto also offers.
func TestFiltersHoldBesidesMCP(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask",` +
		`"arguments":{}}}`
	u := newMock("").tcp(t, "a")
	open := newLab(t, nil, u)
	if r, err := open.post(t.Context(), "/rpc/a", initialize); err != nil || r.result == nil {
		t.Errorf("without filters: %v, %v", r, err)
	}
	denied, owned := *u, *u
	denied.Tools.Deny = []string{"ask"}
	owned.Lifetime = "principal"
	lock := filepath.Join(t.TempDir(), "farcall.lock")
	if _, _, err := open.Pin(t.Context(), lock, true); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*lab{
		"deny": newLab(t, nil, &denied), "lifetime": newLab(t, nil, &owned),
		"lock": newLabOf(t, nil, &gateway.Config{Upstreams: []*gateway.Upstream{u}, Lock: lock}),
	} {
		for _, path := range []string{"/rpc", "/rpc/a", "/rpc/a/ws"} {
			for _, body := range []string{initialize, call} {
				if r, err := l.post(t.Context(), path, body); err != nil || r.status != http.StatusNotFound {
					t.Errorf("%s: %s: %v, %v", name, path, r, err)
				}
			}
		}
		tr := l.stream(t)
		for _, frame := range []string{`{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}`, call} {
			if err := tr.Write([]byte(frame)); err != nil {
				t.Fatal(err)
			}
			if got, err := tr.Read(); err != nil || !strings.Contains(string(got), `"error"`) {
				t.Errorf("%s: %s, %v", name, got, err)
			}
		}
	}
}

// A lock that is another one after a reload counts at each address, also for the
// lists of a server that has not changed, and is asked for them no more.
func TestReloadedLock(t *testing.T) {
	m := newMock("legacy")
	u := m.tcp(t, "a")
	c := &gateway.Config{Upstreams: []*gateway.Upstream{u}}
	l := newLabOf(t, nil, c)
	lock := filepath.Join(t.TempDir(), "farcall.lock")
	if _, _, err := l.Pin(t.Context(), lock, true); err != nil {
		t.Fatal(err)
	}
	mcp.AddTool(m.Server, mcp.Tool{Name: "evil"}, func(context.Context, textIn) (string, error) {
		return "evil", nil
	})
	clients := []*mcp.Client{
		l.clientAt(t, "/mcp", mcp.ClientOptions{}),
		l.clientAt(t, "/mcp/a", mcp.ClientOptions{}),
	}
	for _, c := range clients {
		until(t, "the new tool is listed", func() bool {
			names, _ := toolsOf(t, c)
			return slices.Contains(names, "evil")
		})
	}
	pinned := *c
	pinned.Lock = lock
	for range 2 {
		if err := l.Reload(&pinned); err != nil {
			t.Fatal(err)
		}
		for i, c := range clients {
			if got, err := say(t.Context(), c, "evil", ""); err == nil ||
				!strings.Contains(err.Error(), "blocked") {
				t.Errorf("client %d called a tool that was not accepted: %q, %v", i, got, err)
			}
		}
		if err := l.Reload(c); err != nil {
			t.Fatal(err)
		}
		for _, c := range clients {
			wants(t, c, "evil", "", "evil")
		}
	}
}

// Anyone who comes by WebSocket has a principal as well.
func TestWebSocketPrincipals(t *testing.T) {
	var conns atomic.Int64
	s := newMock("").Server
	url := listen(t, func(conn net.Conn) {
		conns.Add(1)
		_ = mcp.Serve(context.Background(), s, stream.New(conn, stream.NDJSON, nil), nil)
	})
	t.Cleanup(s.Close)
	l := newLab(t, &gateway.Options{Owner: func(r *http.Request) string {
		return r.Header.Get("X-User")
	}},
		&gateway.Upstream{Name: "a", URL: url, Lifetime: "principal"})
	for _, who := range []string{"alice", "bob", "alice"} {
		at := strings.Replace(l.url, "http", "ws", 1) + "/mcp"
		tr, err := wsrpc.Dial(t.Context(), at, &wsrpc.Options{Header: http.Header{"X-User": {who}}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := mcp.Connect(t.Context(), tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		wants(t, c, "echo", who, who)
		c.Close()
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections for two principals", n)
	}
}

// A method goes to the server that declares an extension, and is not called at the next one because
// it failed.
func TestCustomMethodIsCalledOnce(t *testing.T) {
	var called [3]atomic.Int64
	var all []*gateway.Upstream
	for i := range called {
		m := newMock("")
		if i == 1 {
			m.AddExtension("com.example/pay", map[string]any{})
		}
		if i > 0 {
			m.Handle("pay/now", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
				called[i].Add(1)
				return nil, jsonrpc.Errorf(1234, "the card was refused")
			}))
		}
		all = append(all, m.tcp(t, fmt.Sprint("s", i)))
	}
	l := newLab(t, nil, all...)
	r, err := l.modern(t.Context(), "pay/now", "", "")
	if err != nil || r.err == nil || r.err.Code != 1234 || called[1].Load() != 1 ||
		called[2].Load() != 0 {
		t.Errorf("%v, %v, calls %v", r, err, &called)
	}
	if r, err := l.modern(t.Context(), "pay/later", "", ""); err != nil || r.err == nil ||
		r.err.Code != jsonrpc.MethodNotFound {
		t.Errorf("%v, %v", r, err)
	}
}

// A server cannot make a client believe that the gateway does not speak its
// revision.
func TestAnswerAboutConnection(t *testing.T) {
	for _, eras := range []string{"modern", "legacy"} {
		m := newMock(eras)
		m.Handle("x/lie", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
			code := jsonrpc.Code(-32022)
			if eras == "legacy" {
				code = jsonrpc.InvalidParams
			}
			return nil, &jsonrpc.Error{
				Code: code, Message: "no",
				Data: jsonrpc.Raw(`{"supported":["1999-01-01"],"requested":"` + modern + `"}`),
			}
		}))
		l := newLab(t, nil, m.tcp(t, "a"))
		r, err := l.modern(t.Context(), "x/lie", "", "")
		if err != nil || r.err == nil || r.err.Code != jsonrpc.InternalError {
			t.Errorf("%s: %v, %v", eras, r, err)
		}
	}
}

// A client that was asked and does not read its messages holds up no other
// client's calls.
func TestSuspendedClientDoesNotRead(t *testing.T) {
	m := newMock("legacy")
	release := make(chan struct{})
	mcp.AddTool(m.Server, mcp.Tool{Name: "flood"},
		func(ctx context.Context, _ textIn) (string, error) {
			if _, err := mcp.Elicit[nameForm](ctx, "name"); err != nil {
				return "", err
			}
			text := strings.Repeat("x", 100_000)
			for ctx.Err() == nil {
				select {
				case <-release:
					return "", nil
				default:
					_ = mcp.Log(ctx, "info", "", text) // until the client's window is full
				}
			}
			return "", ctx.Err()
		})
	l := newLab(t, nil, m.tcp(t, "a"))
	r, err := l.modern(t.Context(), "tools/call", "flood", `"name":"flood","arguments":{}`)
	if err != nil || r.result == nil {
		t.Fatal(r, err)
	}
	var asked struct {
		State    json.RawMessage            `json:"requestState"`
		Requests map[string]json.RawMessage `json:"inputRequests"`
	}
	if err := json.Unmarshal(r.result, &asked); err != nil || len(asked.Requests) != 1 {
		t.Fatal(r, err)
	}
	var back strings.Builder
	back.WriteString(
		`"name":"flood","arguments":{},"requestState":` + string(asked.State) + `,"inputResponses":{"`)
	for key := range asked.Requests {
		back.WriteString(key + `":{"action":"accept","content":{"name":"x"}}}`)
	}
	deaf := l.deaf(t, "flood", back.String())
	until(t, "its log is full", func() bool { return l.status(t).Upstreams[0].Dropped > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r, err := l.modern(ctx, "tools/call", "flood", back.String()); err != nil || r.err == nil {
		t.Errorf("a second request goes on with the same call: %v, %v", r, err)
	}
	if r, err := l.modern(ctx, "tools/call", "ask", `"name":"ask","arguments":{}`); err != nil ||
		!strings.Contains(r.body, "input_required") {
		t.Errorf("another client: %v, %v", r, err)
	}
	close(release)
	deaf.Close()
}

// Nor does one keep a connection that it does not need any more.
func TestDeafClientKeepsNoConnection(t *testing.T) {
	m := newMock("legacy")
	ended := make(chan bool, 1)
	mcp.AddTool(m.Server, mcp.Tool{Name: "talk"}, func(ctx context.Context, _ textIn) (string, error) {
		text := strings.Repeat("x", 100_000)
		for range 150 {
			_ = mcp.Log(ctx, "info", "", text)
		}
		ended <- true
		return "", nil
	})
	u := m.tcp(t, "a")
	u.Pool = 1
	l := newLab(t, nil, u)
	deaf := l.deaf(t, "talk", `"name":"talk","arguments":{}`)
	received(t, "the end of the call", ended)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r, err := l.modern(ctx, "tools/call", "echo",
		`"name":"echo","arguments":{"text":"hello"}`); err != nil || !strings.Contains(r.body, "hello") {
		t.Errorf("%v, %v", r, err)
	}
	deaf.Close()
}

// deaf calls a tool and reads nothing of the answer.
func (l *lab) deaf(t *testing.T, tool, params string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(l.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + params +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern +
		`","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/logLevel":"debug",` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`
	fmt.Fprintf(conn,
		"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"+
			"Accept: application/json, text/event-stream\r\n"+
			"MCP-Protocol-Version: %s\r\nMcp-Method: tools/call\r\nMcp-Name: %s\r\n"+
			"Content-Length: %d\r\n\r\n%s", modern, tool, len(body), body)
	return conn
}

// A name that may be of a server which is down is no mistake of the client's.
func TestUnknownNameWhileDown(t *testing.T) {
	down := newClosedPort(t)
	l := newLab(t, nil, newMock("").tcp(t, "a"),
		&gateway.Upstream{Name: "b", URL: "tcp://" + down.addr})
	for _, era := range []string{"legacy", "modern"} {
		_, err := say(t.Context(), l.client(t, mcp.ClientOptions{Era: era}), "of-b", "")
		if a := aboutOf(t, err); a.Sent != "no" || !a.Retryable || !strings.Contains(err.Error(), "b (") {
			t.Errorf("%v, %+v", err, a)
		}
	}
}
