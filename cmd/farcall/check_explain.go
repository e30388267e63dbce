package main

import (
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall/gateway"
)

func (e *env) explainConfig(r *checkReport) error {
	off := 0
	for _, u := range r.Upstreams {
		if u.Disabled {
			off++
		}
	}
	what := "a guard, for serve --guard"
	if len(r.Upstreams) > 0 {
		what = countOf(len(r.Upstreams), "upstream")
	}
	if off > 0 {
		what += fmt.Sprintf(", %d disabled", off)
	}
	fmt.Fprintf(e.stdout, "%s: OK: %s\n", tame(r.File), what)
	if len(r.Listen) > 0 {
		fmt.Fprintf(e.stdout, "it listens on %s\n", tame(strings.Join(r.Listen, ", ")))
	}
	for _, u := range r.Upstreams {
		if err := e.explainUpstream(u); err != nil {
			return err
		}
	}
	if r.Guard != nil {
		if err := e.section("Guard", r.Guard.rows()); err != nil {
			return err
		}
	}
	if len(r.Upstreams) > 0 { // a guard alone is none of a gateway's
		if err := e.explainGateway(r); err != nil {
			return err
		}
	}
	if err := e.explainStarted(r); err != nil {
		return err
	}
	return e.section("Notices", mapped(r.Notices, func(n checkProblem) []string {
		return []string{"  " + tame(gateway.Problem(n).String())}
	}))
}

// section prints a heading and a table, if there is anything in it.
func (e *env) section(heading string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintf(e.stdout, "\n%s\n", e.paint(colourName, heading))
	return columns(e.stdout, rows, nil)
}

func (e *env) explainUpstream(u checkUpstream) error {
	what := "MCP, "
	if u.Profile == "raw" {
		what = "JSON-RPC, "
	}
	verb, kind := "connects to", u.Kind
	switch u.Kind {
	case "command":
		verb = "runs"
	case "api":
		verb, kind = "calls", "HTTP API"
	}
	if u.Disabled {
		what = "disabled, " + what
	}
	fmt.Fprintf(e.stdout, "\n%s  %s%s\n", e.paint(colourName, u.Name), what, article(kind))
	var rows namedRows
	rows.add(verb, u.Target)
	rows.add("in", u.Cwd)
	rows.add("environment", u.Env...)
	rows.add("inherits", strings.Join(u.Inherits, ", "))
	rows.add("headers", u.Headers...)
	rows.add("credentials", u.Auth)
	rows.add("sandbox", u.Sandbox)
	rows.add("reaches", u.Reaches...)
	if u.Lifetime != "" {
		rows.add("lifetime", u.Lifetime+": "+u.Sharing)
	}
	rows.add("limits", strings.Join(u.Limits, ", "))
	rows.add("failing", strings.Join(u.Failing, ", "))
	rows.add("shows", u.Shows...)
	rows.add("reached at", strings.Join(u.Paths, ", "))
	if err := columns(e.stdout, rows, nil); err != nil || u.API == nil {
		return err
	}
	return e.explainAPI(u.Name, u.API)
}

// explainGateway prints where a gateway is reached, and what bounds it.
func (e *env) explainGateway(r *checkReport) error {
	rows := mapped(r.Endpoints, func(p checkEndpoint) []string {
		return []string{"  " + p.Path, p.What}
	})
	if err := e.section("Endpoints", rows); err != nil {
		return err
	}
	return e.section("Limits", mapped(r.Limits, func(text string) []string {
		return []string{"  " + text}
	}))
}
