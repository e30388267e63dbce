package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farcall-dev/farcall/cmd/farcall/internal/conform"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp/era"
)

func newConformCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	var o conformOptions
	cmd := command("conform TARGET",
		"Probe a JSON-RPC server, byte by byte, and report what it does wrong",
		func(cmd *cobra.Command, args []string) error {
			if o.list {
				return e.facts(mapped(conform.Cases(), func(c conform.Case) []string {
					return []string{c.Name, string(c.Level), c.Ref, c.Title}
				}))
			}
			return r.conform(cmd, args, o)
		})
	r.flags(cmd, 5*time.Second)
	f := o.flags(cmd, "probe")
	f.BoolVar(&o.s1, "s1", false,
		"the server must have the specification's example methods, and its error messages")
	f.StringVar(&o.echo, "echo", "", "a `method` that returns its params; without, one is looked for")
	return cmd
}

type conformOptions struct {
	json, list, quiet, must, s1 bool
	echo, run                   string
}

// flags adds those that both protocols have. verb is what --list does not do.
func (o *conformOptions) flags(cmd *cobra.Command, verb string) *pflag.FlagSet {
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	f.BoolVar(&o.list, "list", false, "list the cases and "+verb+" nothing")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print failed cases only")
	f.BoolVar(&o.must, "must", false,
		"leave out what is recommended but not required by the specification")
	f.StringVar(&o.run, "run", "", "run the cases with names that match this `regexp`")
	return f
}

func (r *remote) conform(cmd *cobra.Command, args []string, o conformOptions) error {
	t, rest, err := r.split(cmd, args)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return usagef("For example: "+cmd.CommandPath()+" localhost:7331",
			"one TARGET, not also %q", rest)
	}
	options := &conform.Options{Echo: o.echo, S1: o.s1}
	return r.conformed(cmd, t, o, "'^batch/'", "JSON-RPC 2.0", options, conform.Run)
}

// conformed runs the cases of a protocol, and prints what comes out. example is a value of --run.
func (r *remote) conformed(
	cmd *cobra.Command, t *target.Target, o conformOptions, example, protocol string,
	options *conform.Options,
	run func(context.Context, conform.Dialer, *conform.Options) (*conform.Report, error),
) (err error) {
	options.Timeout, options.MustOnly = r.timeout, o.must
	if o.run != "" {
		if options.Only, err = regexp.Compile(o.run); err != nil {
			return usagef("--run takes a regular expression, such as "+example+".", "%w", err)
		}
	}
	if !o.json {
		options.OnResult = func(res conform.Result) {
			if !o.quiet || res.Verdict == conform.Fail {
				r.printResult(res)
			}
		}
	}
	dialer, err := r.dialer(t)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	report, err := run(ctx, dialer, options)
	switch {
	case errors.Is(err, conform.ErrConnect):
		return connectFailure(t, err)
	case err != nil && ctx.Err() != nil:
		return &exitError{code: exitInterrupted, err: errors.New("interrupted")}
	case err != nil:
		return err
	case len(report.Cases) == 0:
		return usagef("'"+cmd.CommandPath()+" --list' lists them.", "no case matches %q", o.run)
	}
	return r.summarise(t, report, o, protocol)
}

// summarise prints how a server keeps to a protocol.
func (r *remote) summarise(
	t *target.Target, report *conform.Report, o conformOptions, protocol string,
) error {
	if o.json {
		err := printIndented(r.env, struct {
			Target string `json:"target"`
			*conform.Report
		}{t.String(), report})
		if err != nil {
			return err
		}
	} else {
		verdict := "conforms to " + protocol
		switch {
		case report.Failed > 0:
			verdict = "does not conform to " + protocol
		case o.run != "":
			verdict = "passes the cases that were run"
		}
		fmt.Fprintf(r.stdout, "%d passed, %d failed, %d skipped: %s %s\n", report.Passed, report.Failed,
			report.Skipped, t, verdict)
	}
	if report.Failed > 0 {
		return &exitError{code: exitFailure} // the findings have been printed
	}
	return nil
}

// printResult shows a case with its evidence.
func (r *remote) printResult(res conform.Result) {
	colour := map[conform.Verdict]string{
		conform.Pass: colourGreen, conform.Fail: colourRed,
		conform.Skip: colourFaint,
	}[res.Verdict]
	w := r.stdout
	fmt.Fprintf(w, "%s %s: %s\n", r.paint(colour, string(res.Verdict)), r.paint(colourName, res.Name),
		res.Title)
	if res.Verdict == conform.Skip {
		fmt.Fprintf(w, "  skipped   %s\n", tame(res.Finding))
		return
	}
	for _, s := range res.Sent {
		fmt.Fprintf(w, "  sent      %s\n", s)
	}
	fmt.Fprintf(w, "  expected  %s\n", res.Expected)
	for _, s := range res.Received {
		fmt.Fprintf(w, "  received  %s\n", s)
	}
	if len(res.Received) == 0 {
		fmt.Fprintf(w, "  received  nothing\n")
	}
	if res.Verdict == conform.Fail {
		fmt.Fprintf(w, "  finding   %s\n", r.paint(colour, tame(res.Finding)))
	}
	fmt.Fprintf(w, "  see       %s (%s)\n", res.Ref, res.Level)
}

func newMCPConformCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	var o conformOptions
	revision := "auto"
	cmd := command("conform TARGET", "Check a server against each revision of the specification",
		func(cmd *cobra.Command, args []string) error {
			modern, legacy, err := era.Select(revision)
			if err != nil {
				return usagef(eraHint(), "there is no era %q", revision)
			}
			revisions := slices.Concat(modern, legacy)
			slices.Reverse(revisions)
			if o.list {
				cases := slices.Concat(mapped(revisions, conform.MCPCases)...)
				return e.facts(mapped(cases, func(c conform.Result) []string {
					return []string{c.Name, string(c.Level), c.Ref, c.Title}
				}))
			}
			return r.mcpConform(cmd, args, o, revisions)
		})
	r.flags(cmd, 10*time.Second)
	_ = cmd.Flags().MarkHidden("framing") // MCP has one message a line
	o.flags(cmd, "check").
		StringVar(&revision, "era", "auto", "check only `auto|modern|legacy|REVISION`")
	return cmd
}

func (r *remote) mcpConform(cmd *cobra.Command, args []string, o conformOptions,
	revisions []*era.Revision,
) error {
	t, rest, err := r.split(cmd, args)
	if err == nil && t.Kind != target.Command {
		t, err = forMCP(r.locate(args[0]))
	}
	if err == nil {
		err = none(cmd, rest)
	}
	if err != nil {
		return err
	}
	options := &conform.Options{Revisions: revisions}
	return r.conformed(cmd, t, o, "'/tools/'", "MCP", options, conform.RunMCP)
}
