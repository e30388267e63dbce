package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/observe/levels"
)

// LogLevel implements control.Backend.
func (o operator) LogLevel(context.Context) (*control.LogLevel, error) {
	at := o.g.opts.LogLevels
	if at == nil {
		return nil, control.NewProblem(http.StatusNotImplemented, "the level of this log is fixed: the program that embeds the gateway sets Options.LogLevels, and farcall needs a log")
	}
	base, own := at.Get()
	return &control.LogLevel{Level: base, Components: own}, nil
}

// SetLogLevel implements control.Backend. All of it is set, or nothing.
func (o operator) SetLogLevel(ctx context.Context, to *control.LogLevel) (*control.LogLevel, error) {
	if _, err := o.LogLevel(ctx); err != nil {
		return nil, err
	}
	if to.Level == "" && len(to.Components) == 0 {
		return nil, control.NewProblem(http.StatusUnprocessableEntity, "neither level nor components is given: there is nothing to set")
	}
	err := o.g.opts.LogLevels.Apply(to.Level, to.Components)
	if err == nil {
		return o.LogLevel(ctx)
	}
	p := control.NewProblem(http.StatusUnprocessableEntity, err.Error())
	if e, ok := errors.AsType[*levels.Error](err); ok {
		p.Candidates = e.Candidates
	}
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

// Dump implements control.Backend.
func (o operator) Dump(context.Context) (*control.Dumped, error) {
	if o.g.opts.Dump == nil {
		return nil, control.NewProblem(http.StatusNotImplemented, "this gateway has no flight recorder: remove 'recorder: off' from its configuration")
	}
	path, err := o.g.opts.Dump("operator")
	if err != nil {
		return nil, control.NewProblem(http.StatusInternalServerError, "the flight recorder could not be written: "+err.Error())
	}
	return &control.Dumped{File: path}, nil
}
