// Package logs sends the lines of a log/slog logger to a collector of OpenTelemetry.
//
//	e, err := logs.FromEnvironment(ctx, nil)
//	log := slog.New(slog.NewMultiHandler(slog.NewTextHandler(os.Stderr, nil), e.Handler()))
//	defer e.Shutdown(ctx)
//
// A line with a span of OpenTelemetry in its context has its trace and span, as those of
// farcall's calls have when package observe/traces makes spans.
package logs

import (
	"context"
	"encoding"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	sdk "go.opentelemetry.io/otel/sdk/log"

	"github.com/farcall-dev/farcall/observe/internal/telemetry"
)

// envProtocol is the variable with the protocol of logs alone. That of all signals may be
// http/json, which is for traces.
const envProtocol = "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL"

// maxText is how long a text of a line may be, in characters.
const maxText = 2000

// warnEvery is how often the loss of lines is logged.
const warnEvery = time.Minute

// Options are what FromEnvironment needs beside the environment. The zero value and nil mean the
// defaults.
type Options struct {
	// Name and Version are those of the program, unless OTEL_SERVICE_NAME and
	// OTEL_RESOURCE_ATTRIBUTES say other ones.
	Name, Version string
}

// Exporter sends lines to a collector, in batches. The nil Exporter sends none. Its methods may
// be called concurrently.
type Exporter struct {
	provider *sdk.LoggerProvider
	losses   *losses
}

// FromEnvironment returns the exporter that the environment asks for by OpenTelemetry's
// variables, or nil. It asks for one with OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_EXPORTER_OTLP_LOGS_ENDPOINT or OTEL_LOGS_EXPORTER=otlp, unless OTEL_SDK_DISABLED is true
// or OTEL_LOGS_EXPORTER none. Those of the OTLP exporter (headers, certificates, compression,
// timeout), of the batches (OTEL_BLRP_…) and of the resource hold. Lines are sent over HTTP, as
// protobuf.
func FromEnvironment(ctx context.Context, o *Options) (*Exporter, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	const signal = telemetry.Signal("logs")
	if on, err := signal.Wanted(); !on || err != nil {
		return nil, err
	}
	if p := os.Getenv(envProtocol); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("logs: %s: lines are sent as http/protobuf only, not as %q",
			envProtocol, p)
	}
	exporter, err := otlploghttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("logs: %w; see %s and %s", err, telemetry.Endpoint, signal.Endpoint())
	}
	about, err := telemetry.Resource(ctx, signal, opts.Name, opts.Version)
	if err != nil {
		return nil, err
	}
	e := &Exporter{losses: &losses{Exporter: exporter}}
	e.provider = sdk.NewLoggerProvider(sdk.WithResource(about),
		sdk.WithProcessor(sdk.NewBatchProcessor(e.losses)), sdk.WithAttributeValueLengthLimit(maxText))
	return e, nil
}

// Warn sets the log that reports, once a minute at most, that lines could not be sent. It must
// not be one of the Handler: those reports would be lost as well.
func (e *Exporter) Warn(log *slog.Logger) {
	if e != nil {
		e.losses.mu.Lock()
		defer e.losses.mu.Unlock()
		e.losses.log = log
	}
}

// Handler returns a handler that sends lines of each level. That of a nil Exporter discards them.
func (e *Exporter) Handler() slog.Handler {
	if e == nil {
		return slog.DiscardHandler
	}
	const scope = "github.com/farcall-dev/farcall"
	return &handler{otelslog.NewHandler(scope, otelslog.WithLoggerProvider(e.provider))}
}

// Shutdown sends what is left. The context bounds how long that takes.
func (e *Exporter) Shutdown(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return e.provider.Shutdown(ctx)
}

// losses is an exporter that says what was lost.
type losses struct {
	sdk.Exporter

	mu    sync.Mutex
	log   *slog.Logger
	lines int
	told  time.Time
}

// Export implements sdk.Exporter.
func (l *losses) Export(ctx context.Context, lines []sdk.Record) error {
	err := l.Exporter.Export(ctx, lines)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines += len(lines)
	if l.log != nil && time.Since(l.told) >= warnEvery {
		l.log.WarnContext(ctx, "lines of the log were not sent to the collector; "+
			telemetry.Endpoint+" names another one, OTEL_LOGS_EXPORTER=none sends none",
			"lines", l.lines, "error", err.Error())
		l.lines, l.told = 0, time.Now()
	}
	return nil // the log has the error
}

// handler gives the bridge values that it can send: those that marshal themselves as text.
type handler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	plain := true
	r.Attrs(func(a slog.Attr) bool {
		plain = a.Value.Kind() != slog.KindAny
		return plain
	})
	if plain {
		return h.Handler.Handle(ctx, r)
	}
	next := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		next.AddAttrs(texted(a))
		return true
	})
	return h.Handler.Handle(ctx, next)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	attrs = slices.Clone(attrs)
	for i := range attrs {
		attrs[i] = texted(attrs[i])
	}
	return &handler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler { return &handler{h.Handler.WithGroup(name)} }

// texted replaces a value that can marshal itself as text by that text.
func texted(a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindAny {
		return a
	}
	if m, ok := a.Value.Any().(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return slog.String(a.Key, string(text))
		}
	}
	return a
}
