package main

import (
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/cmd/farcall/internal/conform"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp/era"
)

func newMCPConformCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	var o conformOptions
	revision := "auto"
	cmd := &cobra.Command{
		Use:   "conform TARGET",
		Short: "Check a server against each revision of the specification",
		RunE: func(cmd *cobra.Command, args []string) error {
			modern, legacy, err := era.Select(revision)
			if err != nil {
				return usagef(eraHint(), "there is no era %q", revision)
			}
			revisions := slices.Concat(modern, legacy)
			slices.Reverse(revisions)
			if o.list {
				return e.listMCPCases(revisions)
			}
			return r.mcpConform(cmd, args, o, revisions)
		},
	}
	r.flags(cmd, 10*time.Second)
	_ = cmd.Flags().MarkHidden("framing") // MCP has one message a line
	f := cmd.Flags()
	f.StringVar(&revision, "era", "auto", "check only `auto|modern|legacy|REVISION`")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	f.BoolVar(&o.list, "list", false, "list the cases and check nothing")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print failed cases only")
	f.BoolVar(&o.must, "must", false,
		"leave out what is recommended but not required by the specification")
	f.StringVar(&o.run, "run", "", "run the cases with names that match this `regexp`")
	return cmd
}

func (e *env) listMCPCases(revisions []*era.Revision) error {
	var rows [][]string
	for _, r := range revisions {
		for _, c := range conform.MCPCases(r) {
			rows = append(rows, []string{c.Name, string(c.Level), c.Ref, c.Title})
		}
	}
	return columns(e.stdout, rows, func(_, col int, text string) string {
		if col == 0 {
			return e.paint(colourName, text)
		}
		return text
	})
}

func (r *remote) mcpConform(cmd *cobra.Command, args []string, o conformOptions,
	revisions []*era.Revision) error {
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
	options := &conform.MCPOptions{Timeout: r.timeout, MustOnly: o.must, Revisions: revisions}
	return r.conformed(cmd, t, o, "'/tools/'", "MCP", func(
		ctx context.Context, d conform.Dialer, only *regexp.Regexp, each func(conform.Result),
	) (*conform.Report, error) {
		options.Only, options.OnResult = only, each
		return conform.RunMCP(ctx, d, options)
	})
}
