package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/gateway"
)

// checkStarted is what a server has said when it was started.
type checkStarted struct {
	Name      string  `json:"name"`
	Error     string  `json:"error,omitempty"`
	SignIn    bool    `json:"signIn,omitzero"` // it was not started: each principal signs in to it
	Server    string  `json:"server,omitempty"`
	Revision  string  `json:"revision,omitempty"`
	Seconds   float64 `json:"seconds,omitzero"`
	Tools     int     `json:"tools"`
	Resources int     `json:"resources"`
	Templates int     `json:"templates"`
	Prompts   int     `json:"prompts"`
	Bytes     int     `json:"toolsBytes"`
}

// checkToolList is the list of tools at an address.
type checkToolList struct {
	Path    string   `json:"path"`
	Tools   int      `json:"tools"`
	Bytes   int      `json:"bytes"`
	Of      int      `json:"of,omitzero"`       // are searched
	Missing []string `json:"missing,omitempty"` // upstreams
}

// closeTime is how long the servers may take to end.
const closeTime = 5 * time.Second

// start starts the servers of a configuration, and adds what they say to the report. It reports
// whether all are there.
func (r *checkReport) start(ctx context.Context, given *gateway.Config) (ok bool, err error) {
	c := *given
	c.Tasks.Dir, c.SignIn.Dir = "", "" // a gateway that is served may have them
	if c.Guard != nil {
		guarded := *c.Guard
		guarded.Audit.File = ""
		c.Guard = &guarded
	}
	g, err := gateway.New(&c,
		&gateway.Options{
			Version: versionName(), Logger: slog.New(slog.DiscardHandler),
			Sandbox: launcher(), Hide: ownFiles(given),
		})
	if err != nil {
		return false, configFailure(err)
	}
	servers, findings := g.Survey(ctx)
	lists, err := g.ToolLists(ctx)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_ = g.Shutdown(closing) // its error is the context's: children that do not end are killed
	if err != nil {
		return false, err
	}
	for _, l := range lists {
		r.ToolLists = append(r.ToolLists, checkToolList{l.Path, l.Tools, l.Bytes, l.Of, l.Missing})
	}
	ok = true
	for i := range servers {
		s := &servers[i]
		d := checkStarted{
			Name: s.Upstream, Server: s.Server, Revision: s.Revision, Seconds: s.Took.Seconds(),
			Tools: s.Tools, Resources: s.Resources, Templates: s.Templates, Prompts: s.Prompts,
			Bytes: s.Bytes,
		}
		if s.SignIn {
			d = checkStarted{Name: s.Upstream, SignIn: true}
		} else if s.Err != nil {
			d, ok = checkStarted{Name: s.Upstream, Error: s.Err.Error()}, false
		}
		r.Started = append(r.Started, d)
	}
	for _, p := range findings {
		r.Notices = append(r.Notices, checkProblem(p))
	}
	return ok, nil
}

// explainStarted prints what servers have said.
func (e *env) explainStarted(r *checkReport) error {
	var rows [][]string
	for _, s := range r.Started {
		if s.SignIn {
			rows = append(rows, []string{"  " + s.Name, "was not started: each principal signs in to it"})
			continue
		}
		if s.Error != "" {
			rows = append(rows, []string{"  " + s.Name, "cannot be used: " + tame(s.Error)})
			continue
		}
		rows = append(rows,
			[]string{"  " + s.Name, fmt.Sprintf("%s, MCP %s, there after %.1f s: %s (%s for a model), %s, %s, %s",
				tame(s.Server), tame(s.Revision), s.Seconds, countOf(s.Tools, "tool"), modelTokens(s.Bytes),
				countOf(s.Resources, "resource"), countOf(s.Templates, "template"),
				countOf(s.Prompts, "prompt"))})
	}
	if err := e.section("Started", rows); err != nil {
		return err
	}
	rows = nil
	for _, l := range r.ToolLists {
		text := countOf(l.Tools, "tool") + ", " + modelTokens(l.Bytes)
		if l.Of > 0 {
			text += ", to search " + countOf(l.Of, "tool")
		}
		if len(l.Missing) > 0 {
			text += "; without " + strings.Join(l.Missing, ", ")
		}
		rows = append(rows, []string{"  " + l.Path, tame(text)})
	}
	return e.section("Tools for a model, before the guard", rows)
}

// modelTokens is what a text costs a model, about.
func modelTokens(bytes int) string { return "about " + countOf((bytes+3)/4, "token") }

// finish prints a report and makes the exit of it.
func (e *env) finish(r *checkReport, asJSON, strict, started bool) error {
	r.OK = started && (!strict || len(r.Notices) == 0)
	if asJSON {
		if err := e.printValue(r); err != nil {
			return err
		}
	} else if err := e.explainConfig(r); err != nil {
		return err
	}
	switch {
	case r.OK:
		return nil
	case asJSON:
		return &exitError{code: exitFailure}
	case !started:
		return &exitError{
			code: exitFailure, err: fmt.Errorf("not every server of %s can be used", r.File),
		}
	}
	return &exitError{
		code: exitFailure,
		err: fmt.Errorf("%s for %s, and --strict allows none",
			countOf(len(r.Notices), "notice"), r.File),
	}
}

// sessionsText says where sessions are.
func sessionsText(c *gateway.Config) string {
	s := &c.Sessions
	switch s.Mode {
	case "none":
		return "clients get no sessions: nothing can be asked, and nothing is sent but answers"
	case "sealed":
		text := fmt.Sprintf(
			"sessions are sealed with %s and last %s: they survive a restart, and other replicas with the "+
				"same keys serve them", countOf(len(s.Keys), "key"), brief(s.MaxAge))
		if len(s.Keys) == 0 {
			text = "sessions are sealed with a key of the cluster and last " + brief(s.MaxAge) +
				": they survive a restart, and all nodes serve them"
		}
		if s.Advertise == "" {
			return text +
				"; answers to questions of this replica are refused at others, which advertise would change"
		}
		return text + "; answers to its questions are forwarded to " + s.Advertise
	}
	return "sessions are in memory: a restart ends them"
}
