package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/audit"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe/levels"
	"github.com/farcall-dev/farcall/observe/metrics/otlp"
	"github.com/farcall-dev/farcall/observe/traces"
)

// flushTime is how long the last spans may take to get to the collector when the process ends.
const flushTime = 5 * time.Second

// parentLink is the trace.parent of a configuration with which the spans of callers are links.
const parentLink = "link"

// trace begins to make spans and to send metrics, if the environment asks for that.
func (f *serveFlags) trace(ctx context.Context, log *slog.Logger) (err error) {
	f.tracer, err = traces.FromEnvironment(ctx,
		&traces.Environment{Version: versionName(), Logger: orDiscard(log).With(levels.Key, "trace")})
	if err != nil {
		return usagef("The variables are those of OpenTelemetry; OTEL_SDK_DISABLED=true makes no traces.",
			"%w", err)
	}
	f.sent, err = otlp.FromEnvironment(ctx, f.measured(), &otlp.Options{
		Version: versionName(), Logger: orDiscard(log).With(levels.Key, "trace"),
	})
	if err != nil {
		return usagef("The variables are those of OpenTelemetry; OTEL_METRICS_EXPORTER=none sends no "+
			"metrics.", "%w", err)
	}
	return nil
}

// linked returns what reports for a call whether its caller's span is a link: by the address that
// it arrived at.
func (f *serveFlags) linked(c *gateway.Config) func(context.Context) bool {
	all, apart := c.Trace.Parent == parentLink, c.Trace.Listeners
	if len(apart) == 0 {
		if !all {
			return nil
		}
		return func(context.Context) bool { return true }
	}
	return func(ctx context.Context) bool {
		at := owner.ConnFrom(ctx).At
		if all := f.opened.Load(); all != nil {
			for _, l := range *all {
				if parent, is := apart[l.address]; is && port.ArrivedAt(l.at, at) {
					return parent == parentLink
				}
			}
		}
		return all
	}
}

// setTraces applies what a configuration says of traces.
func (f *serveFlags) setTraces(c *gateway.Config) {
	f.tracer.Set(f.linked(c), c.Trace.Slow)
	f.tracer.Payloads(nil)
	if c.Trace.Payloads {
		var secret []string
		if c.Guard != nil {
			secret = c.Guard.Audit.Redact
		}
		f.tracer.Payloads(func(raw jsonrpc.Raw) []byte { return audit.Redact(raw, secret) })
	}
}

// flush hands over the spans, the metrics and the lines of the log that are left.
func (f *serveFlags) flush(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	defer func() { _ = f.exported.Shutdown(ctx) }() // a loss is in the log
	defer func() { _ = f.sent.Shutdown(ctx) }()     // likewise
	if err := f.tracer.Shutdown(ctx); err != nil {
		orDiscard(log).With(levels.Key, "trace").Warn("the last spans were not handed over", "error",
			err.Error())
	}
}
