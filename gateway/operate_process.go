package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/control"
)

// logLevels are the levels of the log by their names.
var logLevels = []struct {
	name  string
	level slog.Level
}{{"debug", slog.LevelDebug}, {"info", slog.LevelInfo}, {"warn", slog.LevelWarn}, {"error", slog.LevelError}}

// LogLevel implements control.Backend.
func (o operator) LogLevel(context.Context) (*control.LogLevel, error) {
	at := o.g.opts.LogLevel
	if at == nil {
		return nil, control.NewProblem(http.StatusNotImplemented, "the level of this log is fixed: the program that embeds the gateway sets Options.LogLevel, and farcall needs a log")
	}
	name := "debug"
	for _, l := range logLevels {
		if at.Level() >= l.level {
			name = l.name
		}
	}
	return &control.LogLevel{Level: name}, nil
}

// SetLogLevel implements control.Backend.
func (o operator) SetLogLevel(ctx context.Context, to *control.LogLevel) (*control.LogLevel, error) {
	if _, err := o.LogLevel(ctx); err != nil {
		return nil, err
	}
	var names []string
	for _, l := range logLevels {
		if l.name == to.Level {
			o.g.opts.LogLevel.Set(l.level)
			return to, nil
		}
		names = append(names, l.name)
	}
	p := control.NewProblem(http.StatusUnprocessableEntity, fmt.Sprintf("there is no level %.100q: use %s", to.Level, strings.Join(names, ", ")))
	p.Candidates = names
	return nil, p
}

// Reload implements control.Backend.
func (o operator) Reload(context.Context) (*control.Reloaded, error) {
	if o.g.opts.Reload == nil {
		return nil, control.NewProblem(http.StatusNotImplemented, "this gateway has no configuration file: start it with --config to reload one")
	}
	changes, err := o.g.opts.Reload()
	if err == nil {
		return &control.Reloaded{Changes: slices.Concat([]string{}, changes)}, nil
	}
	p := control.NewProblem(http.StatusUnprocessableEntity, "the new configuration is refused, and the one before goes on: "+err.Error())
	if bad, ok := errors.AsType[*ConfigError](err); ok {
		p.Detail = "the new configuration is refused, and the one before goes on: correct the findings and reload it again"
		for _, f := range bad.Problems {
			p.Findings = append(p.Findings, control.Finding{File: bad.File, Line: f.Line, Column: f.Column, Path: f.Path, Message: f.Message, Hint: f.Hint})
		}
	}
	return nil, p
}
