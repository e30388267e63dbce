package otlp_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/metrics"
	"github.com/farcall-dev/farcall/observe/metrics/otlp"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// counted returns metrics with one call of a tool in them.
func counted(ctx context.Context) *metrics.Metrics {
	m := metrics.New(nil)
	o := m.Observer()
	c := &observe.Call{
		MCP: true, Known: true, Method: "tools/call", Tool: "weather", Transport: "stdio",
	}
	o.End(o.Start(ctx, c), c)
	o.Open(observe.Lifetime{Kind: observe.Connection, Transport: "tcp"})
	return m
}

// Metrics get to the collector with the names of OpenTelemetry's conventions where they have one.
func TestExport(t *testing.T) {
	var got bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got.WriteString(r.URL.Path + " ")
		_, _ = io.Copy(&got, r.Body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_SERVICE_NAME", "shop")
	e, err := otlp.FromEnvironment(t.Context(), counted(t.Context()), &otlp.Options{Version: "v7"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/v1/metrics ", "shop", "v7", "mcp.server.operation.duration", "mcp.method.name",
		"tools/call", "gen_ai.tool.name", "weather", "network.transport", "pipe",
		"farcall_connections", "transport", "go_goroutines",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("there is no %q in what the collector got: %q", want, got.String())
		}
	}
	for _, unwanted := range []string{
		"mcp_method_name", "network_transport", "error.type", "gen_ai.prompt.name",
	} {
		if strings.Contains(got.String(), unwanted) {
			t.Errorf("there is %q in what the collector got", unwanted)
		}
	}
}

// A collector that refuses metrics is reported in the log.
func TestRefused(t *testing.T) {
	collector := httptest.NewServer(http.NotFoundHandler())
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	var said bytes.Buffer
	e, err := otlp.FromEnvironment(t.Context(), counted(t.Context()), &otlp.Options{
		Logger: slog.New(slog.NewTextHandler(&said, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "metrics were not sent") {
		t.Errorf("the log has %q", said.String())
	}
}

// What the environment does not ask for is not there, and what is wrong with it is an error.
func TestEnvironment(t *testing.T) {
	const (
		endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 "
		own      = "OTEL_EXPORTER_OTLP_METRICS_"
	)
	for name, want := range map[string]string{
		"": "none",
		own + "ENDPOINT=http://127.0.0.1:1/v1/metrics":             "",
		endpoint + "OTEL_METRICS_EXPORTER=none":                    "none",
		endpoint + "OTEL_METRICS_EXPORTER=prometheus":              "none",
		endpoint + "OTEL_SDK_DISABLED=true":                        "none",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1":    "none",
		"OTEL_METRICS_EXPORTER=console":                            "there is no exporter",
		endpoint + own + "PROTOCOL=http/json":                      "protobuf only",
		endpoint + "OTEL_EXPORTER_OTLP_PROTOCOL=grpc":              "http/protobuf",
		endpoint + "OTEL_RESOURCE_ATTRIBUTES=no-equals-sign-there": "OTEL_RESOURCE_ATTRIBUTES",
	} {
		t.Run(name, func(t *testing.T) {
			for variable := range strings.FieldsSeq(name) {
				key, value, _ := strings.Cut(variable, "=")
				t.Setenv(key, value)
			}
			m := counted(t.Context())
			e, err := otlp.FromEnvironment(t.Context(), m, &otlp.Options{
				Logger: slog.New(slog.DiscardHandler),
			})
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // nothing is sent
			_ = e.Shutdown(ctx)
			switch {
			case want == "none" && (e != nil || err != nil), want == "" && (e == nil || err != nil):
				t.Errorf("%v, %v", e, err)
			case want != "" && want != "none" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%v, want an error with %q", err, want)
			}
		})
	}
}
