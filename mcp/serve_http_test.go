package mcp

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// TestListenAndServe serves both eras on one address, and stops in order.
func TestListenAndServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := calculator(nil)
	s.AddTool(Tool{Name: "headers", InputSchema: []byte(headerSchema)}, func(context.Context, jsonrpc.Raw) (*ToolResult, error) { return nil, nil })
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.serveHTTP(ctx, l) }()
	post := func(body string, headers ...string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.Addr().String()+"/mcp", strings.NewReader(body))
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
	if got := post(modernFrame("1", "tools/call", `"name":"add","arguments":{"a":1,"b":2}`), append(version, "add")...); !strings.Contains(got, `{"sum":3}`) {
		t.Error("modern:", got)
	}
	call := modernFrame("1", "tools/call", `"name":"headers","arguments":{"region":"x"}`)
	if got := post(call, append(version, "headers")...); !strings.HasPrefix(got, "400") || !strings.Contains(got, `"code":-32020`) {
		t.Error("without its header:", got)
	}
	if got := post(call, append(version, "headers", "mcp-param-region", "x")...); !strings.HasPrefix(got, "200") {
		t.Error("with its header:", got)
	}
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

// TestSessionMemory holds many idle sessions.
func TestSessionMemory(t *testing.T) {
	const n = 2000
	s := calculator(nil)
	all := make([]mcphttp.Session, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i] = s.Accept(t.Context(), nil)
		if _, err := all[i].ServeRPC(t.Context(), newRequest("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"t","version":"1"}}`)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n; each > 1024 {
		t.Errorf("%d bytes for a session, want 1024 at most", each)
	} else {
		t.Log(each, "bytes for a session")
	}
	for _, x := range all {
		x.Close()
	}
	if n := len(s.listeners.sessions); n != 0 {
		t.Error(n, "sessions are left")
	}
}
