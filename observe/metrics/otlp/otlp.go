// Package otlp sends what package metrics has counted to a collector of OpenTelemetry.
//
//	e, err := otlp.FromEnvironment(ctx, m, nil)
//	defer e.Shutdown(ctx)
//
// The metrics of OpenTelemetry's conventions have the names and attributes that those give them;
// others have their names of Prometheus.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/farcall-dev/farcall/observe/internal/telemetry"
	"github.com/farcall-dev/farcall/observe/metrics"
)

// The variables of metrics alone. The protocol of all signals may be http/json, which is for
// traces.
const (
	envExporter = "OTEL_METRICS_EXPORTER"
	envProtocol = "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"
)

// Options are what FromEnvironment needs beside the environment. The zero value and nil mean the
// defaults.
type Options struct {
	// Name and Version are those of the program, unless OTEL_SERVICE_NAME and
	// OTEL_RESOURCE_ATTRIBUTES say other ones.
	Name, Version string
	// Logger gets a warning when metrics could not be sent. Default: slog.Default.
	Logger *slog.Logger
}

// Exporter sends metrics to a collector. The nil Exporter sends none.
type Exporter struct {
	provider *sdk.MeterProvider
}

// FromEnvironment returns the exporter of m that the environment asks for by OpenTelemetry's
// variables, or nil. It asks for one with OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_EXPORTER_OTLP_METRICS_ENDPOINT or OTEL_METRICS_EXPORTER=otlp, unless OTEL_SDK_DISABLED is
// true or OTEL_METRICS_EXPORTER is none, or prometheus, which reads them from m.
// OTEL_METRIC_EXPORT_INTERVAL says how often they are sent, in milliseconds, 60000 without it.
// Those of the OTLP exporter (headers, certificates, compression, timeout) and of the resource
// hold. Metrics are sent over HTTP, as protobuf.
func FromEnvironment(ctx context.Context, m *metrics.Metrics, o *Options) (*Exporter, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	const signal = telemetry.Signal("metrics")
	if os.Getenv(envExporter) == "prometheus" {
		return nil, nil //nolint:nilnil // nothing is sent
	}
	if on, err := signal.Wanted(); !on || err != nil {
		return nil, err
	}
	if p := os.Getenv(envProtocol); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("metrics: %s: metrics are sent as http/protobuf only, not as %q",
			envProtocol, p)
	}
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w; see %s and %s", err, telemetry.Endpoint, signal.Endpoint())
	}
	about, err := telemetry.Resource(ctx, signal, opts.Name, opts.Version)
	if err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	reader := sdk.NewPeriodicReader(&warning{exporter, opts.Logger},
		sdk.WithProducer(producer{bridge.NewMetricProducer(bridge.WithGatherer(m.Gatherer()))}))
	return &Exporter{sdk.NewMeterProvider(sdk.WithResource(about), sdk.WithReader(reader))}, nil
}

// Shutdown sends the metrics as they are now, the last time. The context bounds how long that
// takes.
func (e *Exporter) Shutdown(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return e.provider.Shutdown(ctx)
}

// warning is an exporter that logs what was not sent.
type warning struct {
	sdk.Exporter

	log *slog.Logger
}

// Export implements sdk.Exporter.
func (w *warning) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	if err := w.Exporter.Export(ctx, all); err != nil {
		w.log.WarnContext(ctx, "metrics were not sent to the collector; "+telemetry.Endpoint+
			" names another one, OTEL_METRICS_EXPORTER=none sends none", "error", err.Error())
	}
	return nil // the log has the error
}

// producer gives metrics the names of OpenTelemetry's conventions.
type producer struct{ sdk.Producer }

// Produce implements sdk.Producer.
func (p producer) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	all, err := p.Producer.Produce(ctx)
	for _, scope := range all {
		for i := range scope.Metrics {
			m := &scope.Metrics[i]
			if name := metrics.Convention(m.Name); name != "" {
				m.Name, m.Unit = name, "s" // each of them is a duration
				rename(m.Data)
			}
		}
	}
	return all, err
}

// rename renames the attributes of a histogram.
func rename(data metricdata.Aggregation) {
	switch d := data.(type) {
	case metricdata.Histogram[float64]:
		for i := range d.DataPoints {
			d.DataPoints[i].Attributes = attributes(d.DataPoints[i].Attributes)
		}
	case metricdata.ExponentialHistogram[float64]:
		for i := range d.DataPoints {
			d.DataPoints[i].Attributes = attributes(d.DataPoints[i].Attributes)
		}
	}
}

// attributes returns those of a set with a value, under the names of the conventions.
func attributes(set attribute.Set) attribute.Set {
	all := make([]attribute.KeyValue, 0, set.Len())
	for at := set.Iter(); at.Next(); {
		kv := at.Attribute()
		if kv.Value.AsString() == "" {
			continue
		}
		if name := metrics.Convention(string(kv.Key)); name != "" {
			kv.Key = attribute.Key(name)
		}
		all = append(all, kv)
	}
	return attribute.NewSet(all...)
}
