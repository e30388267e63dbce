package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// gatewayCommands are those about the gateway as a whole.
func gatewayCommands() []*adminCommand {
	which := &adminSignIns{}
	return []*adminCommand{
		{"sessions TARGET", "List the sessions of MCP", listSessions, nil},
		{"calls TARGET", "List the last calls that failed or took long", listCalls, nil},
		{"end-session TARGET ID", "End a session", endSession, nil},
		{"sign-ins TARGET", "List the principals that have signed in to upstreams", listSignIns, nil},
		{"end-sign-ins TARGET", "Sign principals out of upstreams", which.end, which.flags},
		{"log-level TARGET [LEVELS]", "Show the levels of the log, or set them", logLevel, nil},
		{"dump-capture TARGET", "Have the flight recorder written to a file", dumpCapture, nil},
		{"reload TARGET", "Have the configuration read again", reloadGateway, nil},
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
	return o.get(ctx, "/sessions", &all, func() error {
		var rows [][]string
		for _, s := range all.Sessions {
			age := "-"
			if !s.Since.IsZero() {
				age = rounded(time.Since(s.Since))
			}
			rows = append(rows,
				[]string{s.ID, inLine(s.Path), or(inLine(s.Principal)), or(shorten(inLine(s.Client), 40)), inLine(s.Revision), or(inLine(s.Address)), age})
		}
		return o.table([]string{"ID", "PATH", "PRINCIPAL", "CLIENT", "REVISION", "ADDRESS", "AGE"}, rows)
	})
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
	return o.get(ctx, "/calls", &all, func() error {
		var rows [][]string
		for _, c := range slices.Backward(all.Calls) {
			took := rounded(time.Duration(c.Took * float64(time.Millisecond)))
			rows = append(rows, []string{
				c.At.Local().Format(time.DateTime), c.Outcome,
				shorten(inLine(strings.TrimSpace(c.Method+" "+c.Name)), 60), or(inLine(c.Upstream)),
				or(inLine(c.Principal)), took, or(c.Trace), or(shorten(inLine(c.Error), 120)),
			})
		}
		return o.table([]string{
			"AT", "OUTCOME", "CALL", "UPSTREAM", "PRINCIPAL", "TOOK", "TRACE",
			"ERROR",
		}, rows)
	})
}

// or is a text, "-" for none.
func or(text string) string { return cmp.Or(text, "-") }

func endSession(ctx context.Context, o *adminOptions, args []string) error {
	var s struct {
		ID     string `json:"id"`
		Client string `json:"client"`
	}
	return o.change(ctx, "/sessions/"+url.PathEscape(args[0])+"/end", nil, &s, func() error {
		return o.say("ended %s of %s", inLine(s.ID), or(inLine(s.Client)))
	})
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
	return o.send(ctx, method, "/log-level", body, &at, func() error {
		for _, component := range slices.Sorted(maps.Keys(at.Components)) {
			at.Level += "," + component + "=" + at.Components[component]
		}
		return o.say("%s", inLine(at.Level))
	})
}

func reloadGateway(ctx context.Context, o *adminOptions, _ []string) error {
	var r struct {
		Changes []string `json:"changes"`
	}
	return o.change(ctx, "/reload", nil, &r, func() error {
		if len(r.Changes) == 0 {
			return o.say("no key has changed")
		}
		return o.say("changed: %s", inLine(strings.Join(r.Changes, ", ")))
	})
}

func dumpCapture(ctx context.Context, o *adminOptions, _ []string) error {
	var d struct {
		File string `json:"file"`
	}
	return o.change(ctx, "/capture/dump", nil, &d, func() error { return o.say("%s", inLine(d.File)) })
}

// decisionCommands are those about pins and about the guard.
func decisionCommands() []*adminCommand {
	var digest string
	q := &adminQuestion{}
	return []*adminCommand{
		{"pins TARGET [NAME]", "Show what is pinned, or what an upstream has changed", listPins, nil},
		{
			"accept-pins TARGET NAME", "Pin what an upstream says now",
			func(ctx context.Context, o *adminOptions, args []string) error {
				return acceptPins(ctx, o, args[0], digest)
			},
			func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&digest, "digest", "", "accept only what has this `digest`")
			},
		},
		{"explain TARGET CALL", "Say whether the guard allows a call, and why", q.run, q.flags},
	}
}

// pinState is what the API says of the pins of an upstream.
type pinState struct {
	Upstream string `json:"upstream"`
	File     string `json:"file"`
	Digest   string `json:"digest"`
	Pinned   int    `json:"pinned"`
	Changes  []struct {
		What string `json:"what"`
		Name string `json:"name"`
		Kind string `json:"kind"`
		Diff string `json:"diff"`
	} `json:"changes"`
}

// show prints what differs.
func (p *pinState) show(o *adminOptions) error {
	for _, c := range p.Changes {
		if err := o.say("%s %s: %s", inLine(c.What), strconv.Quote(inLine(c.Name)),
			inLine(c.Kind)); err != nil {
			return err
		}
		for line := range strings.Lines(c.Diff) {
			if err := o.say("  %s", inLine(strings.TrimSuffix(line, "\n"))); err != nil {
				return err
			}
		}
	}
	return nil
}

func listPins(ctx context.Context, o *adminOptions, args []string) error {
	if len(args) == 1 {
		return showPins(ctx, o, args[0])
	}
	var all struct {
		File      string     `json:"file"`
		Upstreams []pinState `json:"upstreams"`
	}
	return o.get(ctx, "/pins", &all, func() error {
		var rows [][]string
		for i := range all.Upstreams {
			u := &all.Upstreams[i]
			rows = append(rows,
				[]string{inLine(u.Upstream), strconv.Itoa(u.Pinned), strconv.Itoa(len(u.Changes))})
		}
		return o.table([]string{"UPSTREAM", "PINNED", "DIFFERENT"}, rows)
	})
}

func showPins(ctx context.Context, o *adminOptions, name string) error {
	var p pinState
	return o.get(ctx, upstreamPath(name, "/pins"), &p, func() error {
		if len(p.Changes) == 0 {
			return o.say("%s of %s, all as pinned in %s", countOf(p.Pinned, "definition"),
				inLine(p.Upstream), inLine(p.File))
		}
		if err := p.show(o); err != nil {
			return err
		}
		hint := fmt.Sprintf(
			"Read the changes above: a model will act on them. 'farcall admin accept-pins TARGET %s "+
				"--digest %s' accepts them.", inLine(p.Upstream), inLine(p.Digest))
		return failf(exitFailure, hint, "%s is not as %s has it", inLine(p.Upstream), inLine(p.File))
	})
}

func acceptPins(ctx context.Context, o *adminOptions, name, digest string) error {
	if digest == "" {
		var p pinState
		if _, err := o.read(ctx, http.MethodGet, upstreamPath(name, "/pins"), nil, &p); err != nil {
			return err
		}
		if digest = p.Digest; !o.asJSON {
			if err := p.show(o); err != nil {
				return err
			}
		}
	}
	var p pinState
	path, body := upstreamPath(name, "/pins/accept"), map[string]string{"digest": digest}
	return o.change(ctx, path, body, &p, func() error {
		return o.say("pinned %s of %s in %s", countOf(p.Pinned, "definition"), inLine(p.Upstream),
			inLine(p.File))
	})
}

// adminQuestion is what the flags of admin explain say.
type adminQuestion struct {
	as, arguments string
	roles         []string
	local         bool
}

func (q *adminQuestion) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&q.as, "as", "",
		"the caller: the `ID` of a principal of the configuration, or anonymous")
	f.StringArrayVar(&q.roles, "role", nil,
		"a `role` of the caller, in place of those in the configuration; can be repeated")
	f.StringVar(&q.arguments, "arguments", "", "arguments of the call, as `JSON`")
	f.BoolVar(&q.local, "local", false, "the call comes from the machine of the gateway")
}

func (q *adminQuestion) run(ctx context.Context, o *adminOptions, args []string) error {
	query := url.Values{"call": {args[0]}, "role": q.roles}
	for name, value := range map[string]string{"as": q.as, "arguments": q.arguments} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if q.local {
		query.Set("local", "true")
	}
	var x explained
	text, err := o.read(ctx, http.MethodGet, "/explain?"+query.Encode(), nil, &x)
	if err != nil {
		return err
	}
	if o.asJSON {
		err = o.printJSON(text)
	} else {
		err = (&explaining{env: o.env}).show(&x)
	}
	if err == nil && !x.Allowed {
		return &exitError{code: exitDenied}
	}
	return err
}

// upstreamCommands are those about upstreams.
func upstreamCommands() []*adminCommand {
	var graceful bool
	return []*adminCommand{
		{"upstreams TARGET [NAME]", "List the upstreams and their states", listUpstreams, nil},
		{
			"restart TARGET NAME", "Restart an upstream",
			func(ctx context.Context, o *adminOptions, args []string) error {
				return orderUpstream(ctx, o, args[0], "restart", map[string]bool{"graceful": graceful})
			},
			func(cmd *cobra.Command) {
				cmd.Flags().BoolVar(&graceful, "graceful", false,
					"let the calls under way end first, for as long as drain_timeout")
			},
		},
		{"drain TARGET NAME", "Let the calls of an upstream end, and disable it", orderOf("drain"), nil},
		{"disable TARGET NAME", "Disable an upstream at once", orderOf("disable"), nil},
		{"enable TARGET NAME", "Enable an upstream that was drained or disabled", orderOf("enable"), nil},
	}
}

func upstreamPath(name, rest string) string { return "/upstreams/" + url.PathEscape(name) + rest }

// orderOf has the gateway change an upstream.
func orderOf(change string) func(ctx context.Context, o *adminOptions, args []string) error {
	return func(ctx context.Context, o *adminOptions, args []string) error {
		return orderUpstream(ctx, o, args[0], change, nil)
	}
}

func orderUpstream(ctx context.Context, o *adminOptions, name, change string, body any) error {
	var u upstreamState
	return o.change(ctx, upstreamPath(name, "/"+change), body, &u, func() error {
		text := inLine(u.Name) + " is " + inLine(u.State)
		if u.State == "draining" {
			text += ", " + countOf(u.InFlight, "call") + " under way"
		}
		if u.State == "down" || u.State == "open" {
			text += ": " + inLine(u.LastError)
		}
		return o.say("%s", text)
	})
}

func listUpstreams(ctx context.Context, o *adminOptions, args []string) error {
	if len(args) == 1 {
		return showUpstream(ctx, o, args[0])
	}
	var all struct {
		Upstreams []upstreamState `json:"upstreams"`
	}
	return o.get(ctx, "/upstreams", &all, func() error {
		var rows [][]string
		for i := range all.Upstreams {
			u := &all.Upstreams[i]
			note := cmp.Or(u.Reason, u.LastError)
			if u.Blocked > 0 {
				note = fmt.Sprintf("%s withheld, as not pinned so; %s", countOf(u.Blocked, "definition"), note)
			}
			rows = append(rows, []string{
				inLine(u.Name), inLine(u.State), strconv.Itoa(u.InFlight), strconv.Itoa(u.Processes),
				strconv.FormatInt(u.Calls, 10), strconv.FormatInt(u.Errors, 10),
				inMilliseconds(u.P50), inMilliseconds(u.P99), strconv.Itoa(u.Tools), shorten(inLine(note), 80),
			})
		}
		return o.table([]string{
			"UPSTREAM", "STATE", "IN FLIGHT", "PROCESSES", "CALLS", "ERRORS", "P50",
			"P99", "TOOLS", "NOTE",
		}, rows)
	})
}

func showUpstream(ctx context.Context, o *adminOptions, name string) error {
	var one struct {
		Upstream upstreamState `json:"upstream"`
		Stderr   []string      `json:"stderr"`
		Warnings []string      `json:"warnings"`
	}
	return o.get(ctx, upstreamPath(name, ""), &one, func() error {
		u := &one.Upstream
		rows := [][]string{}
		add := func(name, text string) {
			if text != "" {
				rows = append(rows, []string{name, inLine(text)})
			}
		}
		add("upstream", u.Name)
		add("state", u.State)
		add("why", u.Reason)
		add("target", u.Target)
		add("server", u.Server)
		add("revision", u.Revision)
		add("processes", strconv.Itoa(u.Processes))
		add("calls", fmt.Sprintf("%d, %d of them failed, %d under way", u.Calls, u.Errors, u.InFlight))
		add("latency", inMilliseconds(u.P50)+" (p50), "+inMilliseconds(u.P99)+" (p99)")
		add("tools", strconv.Itoa(u.Tools))
		add("last error", u.LastError)
		for _, text := range one.Warnings {
			add("warning", text)
		}
		for i, line := range one.Stderr {
			head := ""
			if i == 0 {
				head = "stderr"
			}
			rows = append(rows, []string{head, inLine(line)})
		}
		return columns(o.stdout, rows, nil)
	})
}
