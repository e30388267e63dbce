package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcptest"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/metrics"
	"github.com/farcall-dev/farcall/store"
)

// scrape returns what Prometheus reads, without what is not farcall's.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	var b strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") &&
			!strings.HasPrefix(name, "promhttp_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// wantLines checks that the text has the lines.
func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("there is no line\n\t%s\nin\n%s", line, text)
		}
	}
}

// Both ends of calls of plain JSON-RPC, and what is in no call, are in the metrics of each end.
func TestCalls(t *testing.T) {
	t.Parallel()
	server, client := metrics.New(&metrics.Options{Version: "1.2"}), metrics.New(nil)
	mux := farcall.NewMux()
	inside := make(chan string, 1)
	farcall.Handle(mux, "add", func(_ context.Context, n []int) (int, error) {
		inside <- scrape(t, server)
		return n[0] + n[1], nil
	})
	a, b := farcall.Pipe()
	serving := farcall.NewPeer(a, mux, &farcall.Options{Transport: "tcp", Observer: server.Observer()})
	peer := farcall.NewPeer(b, nil, &farcall.Options{Transport: "stdio", Observer: client.Observer()})
	var sum int
	if err := peer.Call(t.Context(), "add", []int{1, 2}, &sum); err != nil {
		t.Fatal(err)
	}
	wantLines(t, <-inside, `farcall_inflight{side="server"} 1`)
	if err := peer.Call(t.Context(), "no/such/method", nil, nil); err == nil {
		t.Error("a method that does not exist was called")
	}
	wantLines(t, scrape(t, server),
		`farcall_inflight{side="server"} 0`,
		`rpc_server_call_duration_seconds_count{error_type="",network_transport="tcp",rpc_method="add",`+
			`rpc_system_name="jsonrpc"} 1`,
		`rpc_server_call_duration_seconds_count{error_type="-32601",network_transport="tcp",`+
			`rpc_method="_OTHER",rpc_system_name="jsonrpc"} 1`,
		`farcall_frames_total{direction="in",transport="tcp"} 2`,
		`farcall_frames_total{direction="out",transport="tcp"} 2`,
		`farcall_connections{transport="tcp"} 1`,
	)
	if text := scrape(t, server); !strings.Contains(text, `farcall_build_info{goversion="go`) ||
		!strings.Contains(text, `version="1.2"} 1`) {
		t.Error("there is no farcall_build_info with the version")
	}
	if err := b.Write([]byte(`{"jsonrpc":"2.0","id":77,"result":1}`), []byte("[}")); err != nil {
		t.Fatal(err)
	}
	_ = peer.Call(t.Context(), "no/such/method", nil, nil) // the frames before it have been read then
	peer.Close()
	serving.Close()
	<-serving.Done()
	<-peer.Done()
	wantLines(t, scrape(t, server),
		`farcall_answers_dropped_total{kind="unknown",transport="tcp"} 1`,
		`farcall_bad_frames_total{kind="syntax",transport="tcp"} 1`,
		`farcall_refused_total{reason="syntax",transport="tcp"} 1`,
		`farcall_connections{transport="tcp"} 0`,
	)
	wantLines(t, scrape(t, client),
		`rpc_client_call_duration_seconds_count{error_type="",network_transport="pipe",`+
			`rpc_method="_OTHER",rpc_system_name="jsonrpc",upstream=""} 1`)
}

// What a gateway and its guard tell has the names that their configuration has.
func TestGateway(t *testing.T) {
	t.Parallel()
	m := metrics.New(nil)
	o := m.Observer()
	o.Decide(observe.Decision{Outcome: "denied", Policy: "nights", Took: 2 * time.Microsecond})
	o.Close(observe.Lifetime{Kind: observe.Queue, Upstream: "files", Took: time.Second})
	c := &observe.Call{Outgoing: true, MCP: true, Known: true, Method: "tools/call", Upstream: "files"}
	o.End(o.Start(t.Context(), c), c)
	for range 2 { // two gateways in one process
		m.Read(func(yield func(observe.Reading) bool) {
			_ = yield(observe.Reading{Name: "farcall_queued", Upstream: "files", Value: 2}) &&
				yield(observe.Reading{
					Name: "farcall_upstream_state", Upstream: "files", State: "up",
					Value: 0.5,
				}) &&
				yield(observe.Reading{Name: "farcall_unheard_of", Value: 1})
		})
	}
	text := scrape(t, m)
	wantLines(t, text,
		`farcall_guard_decisions_total{decision="denied",policy="nights"} 1`,
		`farcall_guard_seconds_bucket{decision="denied",le="5e-06"} 1`,
		`farcall_queue_wait_seconds_count{upstream="files"} 1`,
		`mcp_client_operation_duration_seconds_count{error_type="",gen_ai_prompt_name="",`+
			`gen_ai_tool_name="",mcp_method_name="tools/call",mcp_protocol_version="",`+
			`network_transport="",upstream="files"} 1`,
		`farcall_queued{upstream="files"} 4`,
		`farcall_upstream_state{state="up",upstream="files"} 1`)
	if strings.Contains(text, "farcall_unheard_of") {
		t.Error("a reading that the documentation does not list is there")
	}
}

// Calls of MCP have the tool and the revision, and sessions their duration.
func TestMCP(t *testing.T) {
	t.Parallel()
	const revision = "2025-06-18"
	m := metrics.New(nil)
	s := mcp.NewServer("s", "1",
		&mcp.ServerOptions{RPC: &farcall.Options{Transport: "unix", Observer: m.Observer()}})
	mcp.AddTool(s, mcp.Tool{Name: "fail"}, func(context.Context, struct{}) (int, error) {
		return 0, fmt.Errorf("no")
	})
	t.Run("talk", func(t *testing.T) {
		c := mcptest.Client(t, s, &mcp.ClientOptions{Era: revision})
		_, _ = c.CallTool(t.Context(), "fail", nil)
		wantLines(t, scrape(t, m),
			`farcall_sessions{mcp_protocol_version="`+revision+`",side="server",transport="unix"} 1`,
			`mcp_server_operation_duration_seconds_count{error_type="tool_error",gen_ai_prompt_name="",`+
				`gen_ai_tool_name="fail",mcp_method_name="tools/call",mcp_protocol_version="`+revision+
				`",network_transport="unix"} 1`)
	})
	wantLines(t, scrape(t, m),
		`farcall_sessions{mcp_protocol_version="`+revision+`",side="server",transport="unix"} 0`,
		`mcp_server_session_duration_seconds_count{mcp_protocol_version="`+revision+
			`",network_transport="unix"} 1`)
}

// What exceeds the bound of a metric is in one series, and is counted.
func TestOverflow(t *testing.T) {
	t.Parallel()
	m := metrics.New(&metrics.Options{MaxSeries: 3})
	o := m.Observer()
	for range 2 {
		for i := range 10 {
			c := &observe.Call{Known: true, Method: fmt.Sprint("m", i)}
			o.End(o.Start(t.Context(), c), c)
		}
	}
	text := scrape(t, m)
	if n := strings.Count(text, "rpc_server_call_duration_seconds_count"); n != 4 {
		t.Errorf("%d series, want 3 and one that has all others", n)
	}
	wantLines(t, text,
		`rpc_server_call_duration_seconds_count{error_type="_OTHER",network_transport="_OTHER",`+
			`rpc_method="_OTHER",rpc_system_name="_OTHER"} 14`,
		`rpc_server_call_duration_seconds_count{error_type="",network_transport="",rpc_method="m2",`+
			`rpc_system_name="jsonrpc"} 2`,
		`farcall_metrics_overflow_total{metric="rpc_server_call_duration_seconds"} 14`)
}

// Names, units and help are as Prometheus wants them.
func TestLint(t *testing.T) {
	t.Parallel()
	problems, err := promlint.New(strings.NewReader(scrape(t, used(t)))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// used returns metrics that have a series each.
func used(t *testing.T) *metrics.Metrics {
	t.Helper()
	m := metrics.New(&metrics.Options{MaxSeries: 1})
	o := m.Observer()
	for range 2 {
		for i, both := range []bool{true, false} {
			for _, method := range []string{"a", "b"} { // one too many
				c := &observe.Call{Outgoing: both, MCP: i > 0, Known: true, Method: method}
				o.End(o.Start(t.Context(), c), c)
				c.MCP = !c.MCP
				o.End(o.Start(t.Context(), c), c)
			}
			o.Frame(observe.Frame{Out: both})
			l := observe.Lifetime{Kind: observe.Session, Outgoing: both}
			o.Open(l)
			o.Close(l)
		}
	}
	o.Open(observe.Lifetime{Kind: observe.Connection})
	o.Open(observe.Lifetime{Kind: observe.Stream})
	o.Refuse(t.Context(), &observe.Call{})
	o.Bad(observe.Frame{}, "syntax")
	o.Bad(observe.Frame{}, "late answer")
	o.Close(observe.Lifetime{Kind: observe.Queue})
	o.Decide(observe.Decision{})
	s := m.Store(store.NewMemory(nil))
	_, _ = s.Since(t.Context())
	_ = s.Close()
	_, _ = s.Since(t.Context())
	return m
}

// Only GET reads.
func TestMethods(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	metrics.New(nil).ServeHTTP(w,
		httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/metrics", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("status %d for POST", w.Code)
	}
}
