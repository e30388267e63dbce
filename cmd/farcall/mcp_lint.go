package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/lint"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func newMCPLintCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	strict := false
	cmd := &cobra.Command{
		Use:   "lint TARGET",
		Short: "Find what models and clients misread in the tools of a server",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, rest, err := m.target(cmd, args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return none(cmd, rest)
			}
			return m.lint(cmd.Context(), t, strict)
		},
	}
	m.flags(cmd)
	cmd.Flags().BoolVar(&strict, "strict", false, "fail when there is a warning, too")
	return cmd
}

func (m *mcpRemote) lint(ctx context.Context, t *target.Target, strict bool) error {
	return m.list(ctx, t, spec.MethodToolsList, "tools", func(l *mcpList) error {
		r := lint.Tools(l.items)
		if err := m.printLint(r); err != nil {
			return err
		}
		if r.Count(lint.Error) > 0 || strict && r.Count(lint.Warning) > 0 {
			return &exitError{code: exitFailure}
		}
		return nil
	})
}

// printLint prints a report for people, or as JSON.
func (m *mcpRemote) printLint(r *lint.Report) error {
	if m.asJSON {
		raw, err := jsonv2.Append(nil, r)
		if err != nil {
			return err
		}
		return m.printJSON(raw)
	}
	var b strings.Builder
	for _, f := range r.Findings {
		tool := f.Tool
		if tool == "" {
			tool = "all tools"
		}
		fmt.Fprintf(&b, "%-7s  %s%s: %s [%s]\n",
			f.Severity, tame(tool), tame(f.Pointer), tame(f.Message), f.Rule)
	}
	fmt.Fprintf(&b, "%d tools, about %d tokens: %d errors, %d warnings, %d notes\n",
		len(r.Costs), r.Tokens, r.Count(lint.Error), r.Count(lint.Warning), r.Count(lint.Note))
	for i := 0; i < min(3, len(r.Costs)) && len(r.Costs) > 1; i++ {
		fmt.Fprintf(&b, "  %6d  %s\n", r.Costs[i].Tokens, tame(r.Costs[i].Tool))
	}
	_, err := fmt.Fprint(m.stdout, b.String())
	return err
}
