package traces

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/farcall-dev/farcall/observe/internal/telemetry"
)

// The variables that say what is recorded. The exporter reads more: see FromEnvironment.
const (
	envSampler  = "OTEL_TRACES_SAMPLER"
	envArgument = "OTEL_TRACES_SAMPLER_ARG"
)

// Environment is what FromEnvironment needs beside the environment. The zero value and nil mean the
// defaults.
type Environment struct {
	// Name and Version are those of the program, unless OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
	// say other ones.
	Name, Version string
	// Logger gets a warning when spans could not be handed over. Default: slog.Default.
	Logger *slog.Logger
}

// FromEnvironment returns the tracer that the environment asks for by OpenTelemetry's variables, or
// nil, which makes no spans. It asks for one with OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_TRACES_EXPORTER=otlp, unless OTEL_SDK_DISABLED is true
// or OTEL_TRACES_EXPORTER none. OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG say what is
// recorded. Those of the OTLP exporter (headers, certificates, compression, timeout), of the
// batches (OTEL_BSP_…) and of the resource hold. Spans are sent over HTTP, as protobuf or, with
// OTEL_EXPORTER_OTLP_PROTOCOL=http/json, as JSON.
//
// Shutdown hands over what is left.
func FromEnvironment(ctx context.Context, e *Environment) (*Tracer, error) {
	var env Environment
	if e != nil {
		env = *e
	}
	const signal = telemetry.Signal("traces")
	if on, err := signal.Wanted(); !on || err != nil {
		return nil, err
	}
	o, err := sampler()
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w; see %s and %s", err, telemetry.Endpoint, signal.Endpoint())
	}
	if o.Resource, err = telemetry.Resource(ctx, signal, env.Name, env.Version); err != nil {
		return nil, err
	}
	if env.Logger == nil {
		env.Logger = slog.Default()
	}
	o.Spans = sdk.NewBatchSpanProcessor(&warning{exporter, env.Logger})
	return New(o), nil
}

// sampler reads what is recorded.
func sampler() (*Options, error) {
	name, ratio := os.Getenv(envSampler), 1.0
	base := strings.TrimPrefix(cmp.Or(name, "parentbased_always_on"), "parentbased_")
	switch base {
	case "always_on":
	case "always_off":
		ratio = -1
	case "traceidratio":
		text := cmp.Or(os.Getenv(envArgument), "1")
		var err error
		if ratio, err = strconv.ParseFloat(text, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return nil,
				fmt.Errorf("traces: %s: %q is not a number from 0 to 1; 0.01 records one trace of a hundred",
					envArgument, text)
		}
		if ratio == 0 {
			ratio = -1
		}
	default:
		return nil,
			fmt.Errorf(
				"traces: %s: there is no sampler %q; use always_on, always_off or traceidratio, each also "+
					"with parentbased_ before it", envSampler, name)
	}
	return &Options{Ratio: ratio, Apart: name == base}, nil
}

// warning is an exporter that says in the log what was lost.
type warning struct {
	sdk.SpanExporter

	log *slog.Logger
}

// ExportSpans implements sdk.SpanExporter.
func (w *warning) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := w.SpanExporter.ExportSpans(ctx, spans); err != nil {
		w.log.WarnContext(ctx,
			"spans were not sent to the collector; "+telemetry.Endpoint+" names another one",
			"spans", len(spans), "error", err.Error())
	}
	return nil
}
