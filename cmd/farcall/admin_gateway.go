package main

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// gatewayCommands are those about the gateway as a whole.
func gatewayCommands() []*adminCommand {
	return []*adminCommand{
		{
			use: "sessions TARGET", short: "List the sessions of MCP",
			args: cobra.ExactArgs(1), run: listSessions,
		},
		{
			use: "calls TARGET", short: "List the last calls that failed or took long",
			args: cobra.ExactArgs(1), run: listCalls,
		},
		{
			use: "end-session TARGET ID", short: "End a session",
			args: cobra.ExactArgs(2), run: endSession,
		},
		{
			use: "log-level TARGET [LEVELS]", short: "Show the levels of the log, or set them",
			args: cobra.RangeArgs(1, 2), run: logLevel,
		},
		{
			use: "dump-capture TARGET", short: "Have the flight recorder written to a file",
			args: cobra.ExactArgs(1), run: dumpCapture,
		},
		{
			use: "reload TARGET", short: "Have the configuration read again",
			args: cobra.ExactArgs(1), run: reloadGateway,
		},
	}
}

func listSessions(ctx context.Context, o *adminOptions, _ []string) error {
	var all struct {
		Sessions []struct {
			ID        string    `json:"id"`
			Path      string    `json:"path"`
			Principal string    `json:"principal"`
			Client    string    `json:"client"`
			Revision  string    `json:"revision"`
			Address   string    `json:"address"`
			Since     time.Time `json:"since"`
		} `json:"sessions"`
	}
	show, err := o.get(ctx, "/sessions", &all)
	if err != nil || !show {
		return err
	}
	var rows [][]string
	for _, s := range all.Sessions {
		age := "-"
		if !s.Since.IsZero() {
			age = rounded(time.Since(s.Since))
		}
		rows = append(rows, []string{s.ID, inLine(s.Path), or(inLine(s.Principal)), or(shortened(inLine(s.Client), 40)), inLine(s.Revision), or(inLine(s.Address)), age})
	}
	return o.table([]string{"ID", "PATH", "PRINCIPAL", "CLIENT", "REVISION", "ADDRESS", "AGE"}, rows)
}

func listCalls(ctx context.Context, o *adminOptions, _ []string) error {
	var all struct {
		Calls []struct {
			At        time.Time `json:"at"`
			Outcome   string    `json:"outcome"`
			Method    string    `json:"method"`
			Name      string    `json:"name"`
			Upstream  string    `json:"upstream"`
			Principal string    `json:"principal"`
			Trace     string    `json:"trace"`
			Error     string    `json:"error"`
			Took      float64   `json:"tookMs"`
		} `json:"calls"`
	}
	show, err := o.get(ctx, "/calls", &all)
	if err != nil || !show {
		return err
	}
	var rows [][]string
	for _, c := range slices.Backward(all.Calls) {
		took := rounded(time.Duration(c.Took * float64(time.Millisecond)))
		rows = append(rows, []string{
			c.At.Local().Format(time.DateTime), c.Outcome, shortened(inLine(strings.TrimSpace(c.Method+" "+c.Name)), 60), or(inLine(c.Upstream)),
			or(inLine(c.Principal)), took, or(c.Trace), or(shortened(inLine(c.Error), 120)),
		})
	}
	return o.table([]string{"AT", "OUTCOME", "CALL", "UPSTREAM", "PRINCIPAL", "TOOK", "TRACE", "ERROR"}, rows)
}

// or is a text, "-" for none.
func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func endSession(ctx context.Context, o *adminOptions, args []string) error {
	var s struct {
		ID     string `json:"id"`
		Client string `json:"client"`
	}
	show, err := o.change(ctx, "/sessions/"+url.PathEscape(args[0])+"/end", nil, &s)
	if err != nil || !show {
		return err
	}
	return o.say("ended %s of %s", inLine(s.ID), or(inLine(s.Client)))
}

func logLevel(ctx context.Context, o *adminOptions, args []string) error {
	type logLevels struct {
		Level      string            `json:"level,omitempty"`
		Components map[string]string `json:"components,omitempty"`
	}
	var at logLevels
	method, body := http.MethodGet, any(nil)
	if len(args) == 1 {
		to := logLevels{Components: map[string]string{}}
		for part := range strings.SplitSeq(args[0], ",") {
			if component, level, of := strings.Cut(part, "="); of {
				to.Components[component] = level
			} else {
				to.Level = part
			}
		}
		method, body = http.MethodPut, to
	}
	show, err := o.send(ctx, method, "/log-level", body, &at)
	if err != nil || !show {
		return err
	}
	for _, component := range slices.Sorted(maps.Keys(at.Components)) {
		at.Level += "," + component + "=" + at.Components[component]
	}
	return o.say("%s", inLine(at.Level))
}

func reloadGateway(ctx context.Context, o *adminOptions, _ []string) error {
	var r struct {
		Changes []string `json:"changes"`
	}
	show, err := o.change(ctx, "/reload", nil, &r)
	if err != nil || !show {
		return err
	}
	if len(r.Changes) == 0 {
		return o.say("no key has changed")
	}
	return o.say("changed: %s", inLine(strings.Join(r.Changes, ", ")))
}

func dumpCapture(ctx context.Context, o *adminOptions, _ []string) error {
	var d struct {
		File string `json:"file"`
	}
	show, err := o.change(ctx, "/capture/dump", nil, &d)
	if err != nil || !show {
		return err
	}
	return o.say("%s", inLine(d.File))
}
