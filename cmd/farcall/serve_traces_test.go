package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// With a collector in the environment each call has its span there, at the latest when the process ends.
func TestServeTraces(t *testing.T) {
	t.Parallel()
	got := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(collector.Close)
	cmd := program(t, "serve")
	cmd.Env = append(cmd.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=http/json", "OTEL_SERVICE_NAME=shop", "OTEL_BSP_SCHEDULE_DELAY=3600000")
	s := serveProgram(t, cmd)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.addrs[0]+"/rpc",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"echo","params":[1],"traceparent":"00-`+trace+`-b7ad6b7169203331-01"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	s.stop(t)
	select {
	case text := <-got:
		for _, want := range []string{"/v1/traces ", `"shop"`, `"echo"`, trace, `"parentSpanId":"b7ad6b7169203331"`, "service.version"} {
			if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
				t.Errorf("there is no %s in %s", want, text)
			}
		}
	default:
		t.Error("the process has ended, and the collector got nothing")
	}
}

// What the environment says that is not valid is refused, and nothing is served.
func TestServeTracesRefused(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=zipkin": "use otlp or none", "OTEL_TRACES_SAMPLER=some": "parentbased_",
		"OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=2": "from 0 to 1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc": "http/protobuf",
	} {
		cmd := program(t, "serve", "--listen", "127.0.0.1:0")
		cmd.Env = append(cmd.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1")
		cmd.Env = append(cmd.Env, strings.Fields(variable)...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", variable, err, out)
		}
	}
}
