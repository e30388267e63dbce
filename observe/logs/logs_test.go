package logs_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/observe/logs"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

type word string

func (w word) MarshalText() ([]byte, error) { return []byte("<" + w + ">"), nil }

// Lines get to the collector with their attributes, their level, and the span of their context.
func TestExport(t *testing.T) {
	var got bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.WriteString(r.URL.Path + " ")
		_, _ = io.Copy(&got, r.Body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_SERVICE_NAME", "shop")
	t.Setenv("OTEL_BLRP_SCHEDULE_DELAY", "3600000")
	e, err := logs.FromEnvironment(t.Context(), &logs.Options{Version: "v7"})
	if err != nil {
		t.Fatal(err)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID([]byte("0123456789abcdef")),
		SpanID:  trace.SpanID([]byte("ABCDEFGH")), TraceFlags: 1,
	})
	log := slog.New(e.Handler()).With("component", "call", "with", word("b"))
	log.WarnContext(trace.ContextWithSpanContext(t.Context(), span), "a line",
		"id", word("7"), "error", errors.New("broken"), "long", strings.Repeat("x", 5000))
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/v1/logs ", "shop", "v7", "a line", "WARN", "component", "call",
		"<b>", "<7>", "broken", "0123456789abcdef", "ABCDEFGH",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("there is no %q in what the collector got: %q", want, got.String())
		}
	}
	if n := strings.Count(got.String(), "x"); n > 2100 {
		t.Errorf("a text of %d characters was sent", n)
	}
}

// What the environment does not ask for is not there, and what is wrong with it is an error.
func TestEnvironment(t *testing.T) {
	const both = "OTEL_LOGS_EXPORTER=otlp OTEL_EXPORTER_OTLP_"
	for name, want := range map[string]string{
		"": "none",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1":                         "",
		"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=http://127.0.0.1:1/v1/logs":            "",
		"OTEL_LOGS_EXPORTER=otlp":                                                "",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_LOGS_EXPORTER=none": "none",
		"OTEL_LOGS_EXPORTER=otlp OTEL_SDK_DISABLED=true":                         "none",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1":                  "none",
		both + "PROTOCOL=http/json":                                              "",
		both + "LOGS_PROTOCOL=http/json":                                         "protobuf only",
		"OTEL_LOGS_EXPORTER=console":                                             "there is no exporter",
		both + "PROTOCOL=grpc":                                                   "http/protobuf",
	} {
		t.Run(name, func(t *testing.T) {
			for pair := range strings.FieldsSeq(name) {
				key, value, _ := strings.Cut(pair, "=")
				t.Setenv(key, value)
			}
			e, err := logs.FromEnvironment(t.Context(), nil)
			switch {
			case want == "none" || want == "":
				if err != nil || (e == nil) != (want == "none") {
					t.Errorf("%v, %v", e, err)
				}
			case err == nil || !strings.Contains(err.Error(), want):
				t.Errorf("%v, want %q", err, want)
			}
			e.Warn(nil)
			slog.New(e.Handler()).With("a", 1).Log(t.Context(), slog.LevelDebug-100, "")
			if e != nil {
				return // there is a line, and no collector
			}
			if err := e.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Lines that cannot be sent are counted in one line, which is not sent.
func TestLoss(t *testing.T) {
	var asked atomic.Int32
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", collector.URL)
	t.Setenv("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "1")
	e, err := logs.FromEnvironment(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e.Warn(slog.New(slog.NewTextHandler(&out, nil)))
	log := slog.New(e.Handler())
	for range 5 {
		log.Info("line")
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	const want = "lines of the log were not sent"
	n := strings.Count(out.String(), "\n")
	if n != 1 || !strings.Contains(out.String(), want) || asked.Load() == 0 {
		t.Errorf("%d lines after %d attempts: %s", n, asked.Load(), &out)
	}
}
