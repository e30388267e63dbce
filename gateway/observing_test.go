package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/observe/metrics"
)

// The metrics have each call of a client by the name that the gateway offers, each call to a server by the server,
// and the state of the servers. Names that the gateway does not offer are in no metric.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := metrics.New(nil)
	l := newLabOf(t, &gateway.Options{Metrics: m, RPC: &farcall.Options{Observer: m.Observer()}}, &gateway.Config{
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
	l.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/metrics", nil))
	text := w.Body.String()
	for _, want := range []string{
		`mcp_server_operation_duration_seconds_count{error_type="",gen_ai_prompt_name="",gen_ai_tool_name="a__echo",mcp_method_name="tools/call",mcp_protocol_version="2025-06-18",network_transport="tcp"} 1`,
		`mcp_server_operation_duration_seconds_count{error_type="-32602",gen_ai_prompt_name="",gen_ai_tool_name="",mcp_method_name="tools/call",mcp_protocol_version="2025-06-18",network_transport="tcp"} 1`,
		`error_type="",gen_ai_prompt_name="",gen_ai_tool_name="",mcp_method_name="tools/call",mcp_protocol_version="",network_transport="tcp",upstream="a"} 1`,
		`network_transport="pipe",upstream="b"} 1`,
		`farcall_sessions{mcp_protocol_version="2025-06-18",side="server",transport="mcp-http"} 1`,
		`farcall_upstream_state{state="up",upstream="a"} 1`,
		`farcall_children{upstream="b"} 1`,
		`farcall_child_starts_total{upstream="b"} 1`,
		`farcall_suspended 0`,
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
