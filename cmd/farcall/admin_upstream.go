package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// upstreamCommands are those about upstreams.
func upstreamCommands() []*adminCommand {
	var graceful bool
	return []*adminCommand{
		{
			use: "upstreams TARGET [NAME]", short: "List the upstreams and their states",
			args: cobra.RangeArgs(1, 2), run: listUpstreams,
		},
		{
			use: "restart TARGET NAME", short: "Restart an upstream",
			args: cobra.ExactArgs(2),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolVar(&graceful, "graceful", false, "let the calls under way end first, for as long as drain_timeout")
			},
			run: func(ctx context.Context, o *adminOptions, args []string) error {
				return orderUpstream(ctx, o, args[0], "restart", map[string]bool{"graceful": graceful})
			},
		},
		{
			use: "drain TARGET NAME", short: "Let the calls of an upstream end, and disable it",
			args: cobra.ExactArgs(2), run: orderOf("drain"),
		},
		{
			use: "disable TARGET NAME", short: "Disable an upstream at once",
			args: cobra.ExactArgs(2), run: orderOf("disable"),
		},
		{
			use: "enable TARGET NAME", short: "Enable an upstream that was drained or disabled",
			args: cobra.ExactArgs(2), run: orderOf("enable"),
		},
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
	show, err := o.change(ctx, upstreamPath(name, "/"+change), body, &u)
	if err != nil || !show {
		return err
	}
	text := inLine(u.Name) + " is " + inLine(u.State)
	if u.State == "draining" {
		text += ", " + countOf(u.InFlight, "call") + " under way"
	}
	if u.State == "down" || u.State == "open" {
		text += ": " + inLine(u.LastError)
	}
	return o.say("%s", text)
}

func listUpstreams(ctx context.Context, o *adminOptions, args []string) error {
	if len(args) == 1 {
		return showUpstream(ctx, o, args[0])
	}
	var all struct {
		Upstreams []upstreamState `json:"upstreams"`
	}
	show, err := o.get(ctx, "/upstreams", &all)
	if err != nil || !show {
		return err
	}
	var rows [][]string
	for i := range all.Upstreams {
		u := &all.Upstreams[i]
		note := u.LastError
		if u.Reason != "" {
			note = u.Reason
		}
		if u.Blocked > 0 {
			note = fmt.Sprintf("%s withheld, as not pinned so; %s", countOf(u.Blocked, "definition"), note)
		}
		rows = append(rows, []string{
			inLine(u.Name), inLine(u.State), strconv.Itoa(u.InFlight), strconv.Itoa(u.Processes), strconv.FormatInt(u.Calls, 10), strconv.FormatInt(u.Errors, 10),
			inMilliseconds(u.P50), inMilliseconds(u.P99), strconv.Itoa(u.Tools), shortened(inLine(note), 80),
		})
	}
	return o.table([]string{"UPSTREAM", "STATE", "IN FLIGHT", "PROCESSES", "CALLS", "ERRORS", "P50", "P99", "TOOLS", "NOTE"}, rows)
}

func showUpstream(ctx context.Context, o *adminOptions, name string) error {
	var one struct {
		Upstream upstreamState `json:"upstream"`
		Stderr   []string      `json:"stderr"`
	}
	show, err := o.get(ctx, upstreamPath(name, ""), &one)
	if err != nil || !show {
		return err
	}
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
	for i, line := range one.Stderr {
		head := ""
		if i == 0 {
			head = "stderr"
		}
		rows = append(rows, []string{head, inLine(line)})
	}
	return columns(o.stdout, rows, nil)
}
