package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/traces"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A caller's span, and its header.
const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
	traceparent  = "00-" + callersTrace + "-" + callersSpan + "-01"
)

// collected runs farcall with a collector in its environment until call has returned, and returns
// what the collector got.
func collected(t *testing.T, call func(address string), args ...string) string {
	t.Helper()
	return exported(t, []string{"OTEL_LOGS_EXPORTER=none"}, call, args...)
}

// exported is collected with more variables.
func exported(
	t *testing.T, environment []string, call func(address string), args ...string,
) string {
	t.Helper()
	got := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(collector.Close)
	cmd := program(t, args...)
	cmd.Env = append(cmd.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL,
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/json", "OTEL_SERVICE_NAME=shop",
		"OTEL_BSP_SCHEDULE_DELAY=3600000", "OTEL_BLRP_SCHEDULE_DELAY=3600000",
		"OTEL_METRICS_EXPORTER=none")
	cmd.Env = append(cmd.Env, environment...)
	s := serveProgram(t, cmd)
	call(s.addrs[0])
	s.stop(t)
	var text strings.Builder
	for len(got) > 0 {
		text.WriteString(strings.ToLower(<-got))
	}
	if text.String() == "" {
		t.Error("the process has ended, and the collector got nothing")
	}
	return text.String()
}

// With a collector in the environment each call has its span there, at the latest when the process
// ends.
func TestServeTraces(t *testing.T) {
	t.Parallel()
	text := collected(t, func(address string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/rpc",
			strings.NewReader(
				`{"jsonrpc":"2.0","id":1,"method":"echo","params":[1],"traceparent":"`+traceparent+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}, "serve")
	for _, want := range []string{
		"/v1/traces ", `"shop"`, `"echo"`, callersTrace,
		`"parentspanid":"` + callersSpan + `"`, "service.version",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in %s", want, text)
		}
	}
}

// With a collector in the environment the lines of the log get there, too, with the trace of their
// call.
func TestServeLogs(t *testing.T) {
	t.Parallel()
	text := exported(t, []string{"OTEL_TRACES_EXPORTER=none"}, func(address string) {
		if out, err := program(t, "call", address, "echo", "[1]").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}, "serve", "--log-format", "off", "--log-level", "warn,call=info")
	for _, want := range []string{
		"/v1/logs ", "shop", "service.version", "component", "call", "echo",
		"outcome", "latency_ms",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in %q", want, text)
		}
	}
}

// With a collector in the environment the metrics get there, too, when the process ends.
func TestServeMetricsToCollector(t *testing.T) {
	t.Parallel()
	text := exported(t, []string{
		"OTEL_TRACES_EXPORTER=none", "OTEL_LOGS_EXPORTER=none", "OTEL_METRICS_EXPORTER=otlp",
	}, func(address string) {
		if out, err := program(t, "call", address, "echo", "[1]").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}, "serve")
	for _, want := range []string{
		"/v1/metrics ", "shop", "rpc.server.call.duration", "rpc.method", "echo", "farcall_build_info",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in %q", want, text)
		}
	}
}

// A configuration says what the span of a caller is for those of the gateway.
func TestServeTraceParent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "farcall.yaml")
	for parent, linked := range map[string]bool{"remote": false, "link": true} {
		config := "upstreams: {up: 'http://127.0.0.1:1/mcp'}\ntrace: {parent: " + parent + "}\n"
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		text := collected(t, func(address string) {
			if out, err := program(t, "mcp", "call", address, "nothing", "--header",
				"traceparent: "+traceparent).CombinedOutput(); err == nil {
				t.Fatalf("a tool that is not there answers %s", out)
			}
		}, "serve", "--config", path)
		if strings.Contains(text, `"parentspanid":"`+callersSpan) == linked ||
			linked != strings.Contains(text, `"links":[{"traceid":"`+callersTrace) {
			t.Errorf("%s: %s", parent, text)
		}
	}
}

// Each listener may have its own, for all that it accepts: lines, requests of HTTP, also one
// without Content-Length, which net/http reads, and WebSockets.
func TestServeTraceListeners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, called, other := filepath.Join(dir, "farcall.yaml"), filepath.Join(dir, "a"),
		filepath.Join(dir, "b")
	web := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", called)
	}}
	t.Cleanup(web.CloseIdleConnections)
	for link, linked := range map[string]bool{called: true, other: false} {
		config := "upstreams: {up: 'http://127.0.0.1:1/mcp'}\nlisten: ['unix:" + called + "', 'unix:" +
			other + "']\n" +
			"trace: {listeners: {'unix:" + link + "': link}}\n"
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		ways := []func(request string) (answer string, err error){
			func(request string) (string, error) {
				conn, err := new(net.Dialer).DialContext(t.Context(), "unix", called)
				if err != nil {
					return "", err
				}
				defer conn.Close()
				fmt.Fprintln(conn, request)
				return bufio.NewReader(conn).ReadString('\n')
			},
			func(request string) (string, error) { return postMCP(t, web, strings.NewReader(request)) },
			func(request string) (string, error) {
				return postMCP(t, web, io.MultiReader(strings.NewReader(request)))
			},
			func(request string) (string, error) {
				conn, err := wsrpc.Dial(t.Context(), "ws://127.0.0.1/mcp",
					&wsrpc.Options{Client: &http.Client{Transport: web}})
				if err != nil {
					return "", err
				}
				defer conn.Close()
				if err := conn.Write([]byte(request)); err != nil {
					return "", err
				}
				answer, err := conn.Read()
				return string(answer), err
			},
		}
		text := collected(t, func(string) {
			for i, call := range ways {
				request := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+
					`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"},`+
					`"_meta":{"traceparent":"00-%s%d-%s-01"}}}`, callersTrace[1:], i, callersSpan)
				if answer, err := call(request); err != nil || !strings.Contains(answer, "cannot be reached") {
					t.Errorf("way %d: got %s, %v", i, answer, err)
				}
			}
			web.CloseIdleConnections()
		}, "serve", "--config", path, "--listen", "unix:"+called, "--listen", "unix:"+other)
		for i := range ways {
			trace := fmt.Sprint(callersTrace[1:], i)
			child, _ := regexp.MatchString(
				`"traceid":"`+trace+`","spanid":"\w+","parentspanid":"`+callersSpan, text)
			if child == linked || linked != strings.Contains(text, `"links":[{"traceid":"`+trace) {
				t.Errorf("way %d, linked %v, child %v", i, linked, child)
			}
		}
	}
}

// postMCP sends a request to the address of MCP.
func postMCP(t *testing.T, web *http.Transport, request io.Reader) (string, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/mcp", request)
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	answer, err := web.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

// What the environment says that is not valid is refused, and nothing is served.
func TestServeTracesRefused(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=zipkin": "use otlp or none", "OTEL_TRACES_SAMPLER=some": "parentbased_",
		"OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=2": "from 0 to 1",
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                           "http/protobuf",
	} {
		cmd := program(t, "serve", "--listen", "127.0.0.1:0")
		cmd.Env = append(cmd.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1")
		cmd.Env = append(cmd.Env, strings.Fields(variable)...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", variable, err, out)
		}
	}
}

// A configuration says whether spans have arguments and results. Those have no secrets, by the
// rules of the audit.
func TestTracePayloads(t *testing.T) {
	t.Parallel()
	recorded := &lastSpan{}
	f := &serveFlags{tracer: traces.New(&traces.Options{Spans: recorded})}
	o := f.tracer.Observer()
	for _, v := range []struct{ config, want string }{
		{`trace: {parent: remote}`, ""},
		{
			"trace: {payloads: true}\nguard: {anonymous: true, audit: {file: '-', params: true, redact: " +
				"[arguments.body]}}",
			`{"body":"[redacted]","password":"[redacted]","to":"Ann"} {"token":"[redacted]","sent":true}`,
		},
		{`trace: {payloads: false}`, ""},
	} {
		c, err := gateway.Parse("farcall.yaml",
			[]byte(v.config+"\nupstreams: {a: {url: 'http://127.0.0.1:1/mcp'}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		f.setTraces(c)
		call := &observe.Call{
			MCP: true, Known: true, Method: "tools/call",
			Request: jsonrpc.Raw(
				`{"params":{"name":"mail","arguments":{"body":"dear","password":"x","to":"Ann"}}}`),
			Response: jsonrpc.Raw(`{"result":{"token":"y","sent":true}}`),
		}
		o.End(o.Start(t.Context(), call), call)
		var got []string
		for _, a := range recorded.span.Attributes() {
			if strings.HasPrefix(string(a.Key), "gen_ai.tool.call.") {
				got = append(got, a.Value.String())
			}
		}
		if is := strings.Join(got, " "); is != v.want {
			t.Errorf("%s: got %s, want %s", v.config, is, v.want)
		}
	}
}

// lastSpan is a processor that keeps the last span.
type lastSpan struct {
	sdk.SpanProcessor

	span sdk.ReadOnlySpan
}

func (l *lastSpan) OnEnd(s sdk.ReadOnlySpan) { l.span = s }
