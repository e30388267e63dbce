package gateway_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/metrics"
	"github.com/farcall-dev/farcall/stream"
)

// The metrics have each call of a client by the name that the gateway offers, each call to a server
// by the server, and the state of the servers. Names that the gateway does not offer are in no
// metric.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := metrics.New(nil)
	l := newLabOf(t, &gateway.Options{Metrics: m, RPC: &farcall.Options{Observer: m.Observer()}},
		&gateway.Config{
			Upstreams: []*gateway.Upstream{newMock("").tcp(t, "a"), child("b", "ok")}, Namespace: "always",
		})
	m.Read(l.Readings)
	c := l.client(t, mcp.ClientOptions{Era: "2025-06-18"})
	for _, name := range []string{"a__echo", "b__echo", "hostile-name"} {
		_, err := c.CallTool(t.Context(), name, map[string]string{"text": "x"})
		if (err != nil) != (name == "hostile-name") {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := httptest.NewRecorder()
	l.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://localhost/metrics", nil))
	text := w.Body.String()
	for _, want := range []string{
		`mcp_server_operation_duration_seconds_count{error_type="",gen_ai_prompt_name="",` +
			`gen_ai_tool_name="a__echo",mcp_method_name="tools/call",mcp_protocol_version="2025-06-18",` +
			`network_transport="tcp"} 1`,
		`mcp_server_operation_duration_seconds_count{error_type="-32602",gen_ai_prompt_name="",` +
			`gen_ai_tool_name="",mcp_method_name="tools/call",mcp_protocol_version="2025-06-18",` +
			`network_transport="tcp"} 1`,
		`error_type="",gen_ai_prompt_name="",gen_ai_tool_name="",mcp_method_name="tools/call",` +
			`mcp_protocol_version="",network_transport="tcp",upstream="a"} 1`,
		`network_transport="pipe",upstream="b"} 1`,
		`farcall_sessions{mcp_protocol_version="2025-06-18",side="server",transport="mcp-http"} 1`,
		`farcall_upstream_state{state="up",upstream="a"} 1`,
		`farcall_children{state="running",upstream="b"} 1`,
		`farcall_child_start_seconds_count{upstream="b"} 1`,
		`farcall_breaker_state{upstream="a"} 0`,
		`farcall_child_starts_total{upstream="b"} 1`,
		`farcall_suspended 0`,
		`farcall_translated_total{from="2025-06-18",to="2025-11-25"} 1`,
		`farcall_translated_total{from="2025-06-18",to="2026-07-28"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no\n\t%s", want)
		}
	}
	if strings.Contains(text, "hostile-name") {
		t.Error("a name that the gateway does not offer is a label")
	}
	// Each reading has a row in the table, or it would be lost without a word.
	for r := range l.Readings {
		if !strings.Contains(text, "\n"+r.Name) {
			t.Errorf("%s is not in the metrics", r.Name)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// A call of JSON-RPC that passes through a pipe has the trace that its message has.
func TestPipedTrace(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	seen := make(chan observe.Call, 10)
	o := &observe.Observer{Traces: true, End: func(_ context.Context, c *observe.Call) {
		seen <- observe.Call{Method: strings.Clone(c.Method), Caller: c.Caller}
	}}
	server := &rawLog{}
	l := newLabOf(t, &gateway.Options{RPC: &farcall.Options{Observer: o}}, &gateway.Config{
		Upstreams: []*gateway.Upstream{{Name: "r", URL: listen(t, server.serve), Profile: "raw"}},
	})
	addr := strings.TrimPrefix(listen(t, func(conn net.Conn) {
		l.ServeStream(stream.New(conn, stream.NDJSON, nil), &guard.Conn{Transport: "stdio", Local: true})
	}), "tcp://")
	conn := dialTCP(t, addr)
	defer conn.Close()
	in := bufio.NewReader(conn)
	for params, want := range map[string]bool{
		`{"a":1}`:                                    false,
		`{"a":1},"traceparent":"` + parent + `"`:     true,
		`{"_meta":{"traceparent":"` + parent + `"}}`: true,
		`{"_meta":{"traceparent":"00-1-2-3"}}`:       false,
		`{"_meta":{"traceparent":7}}`:                false,
	} {
		ask(t, conn, in, `{"jsonrpc":"2.0","id":1,"method":"math/add","params":`+params+`}`)
		c := received(t, "the call", seen)
		id := hex.EncodeToString(c.Caller.Trace[:])
		if got := c.Caller.Sampled && strings.Contains(parent, id); c.Method != "math/add" ||
			got != want {
			t.Errorf("%s: %s %+v", params, c.Method, c.Caller)
		}
	}
}
