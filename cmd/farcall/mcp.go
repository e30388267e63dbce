package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func newMCPCmd(e *env) *cobra.Command {
	cmd := command("mcp", "Use a Model Context Protocol server: its tools, resources and prompts",
		func(cmd *cobra.Command, args []string) error {
			return unknownCommand(cmd, args, "unknown command %q for farcall mcp")
		})
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(
		newMCPDiscoverCmd(e),
		newMCPToolsCmd(e),
		newMCPCallCmd(e),
		newMCPResourcesCmd(e),
		newMCPTemplatesCmd(e),
		newMCPReadCmd(e),
		newMCPPromptsCmd(e),
		newMCPPromptCmd(e),
		newMCPCompleteCmd(e),
		newMCPListenCmd(e),
		newMCPLintCmd(e),
		newMCPConformCmd(e),
		newMCPTasksCmd(e),
	)
	return cmd
}

// mcpRemote is what the commands of farcall mcp have in common.
type mcpRemote struct {
	*remote
	era     string
	log     string // the level from which on the server shall log
	asJSON  bool
	verbose bool
	output  string // the directory for what is not text
	answers []string
	sample  string
	roots   []string

	sampleGiven bool // --sample may be empty
	screen      *console
	lines       lineReader // of a shell; nil: standard input, if a user sits there
}

func newMCPRemote(e *env) *mcpRemote {
	if e.kept != nil {
		return &mcpRemote{remote: &remote{env: e}, screen: e.kept.screen}
	}
	return &mcpRemote{remote: &remote{env: e}, screen: newConsole(e.stderr)}
}

// flags adds the options that every command has.
func (m *mcpRemote) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&m.asJSON, "json", false, "print the result as JSON")
	if m.kept != nil {
		return // the others are about connecting
	}
	f.DurationVar(&m.timeout, "timeout", defaultTimeout,
		"how long to wait for an answer, from the last sign of progress; 0 for ever")
	f.StringArrayVarP(&m.header, "header", "H", nil,
		"send an HTTP header, `'Name: value'`; can be repeated")
	f.StringVar(&m.bearer, "bearer", "",
		"send the key or token in this `file` as Authorization: Bearer")
	m.tlsFlags(cmd)
	f.StringVar(&m.era, "era", "auto", "speak only `auto|modern|legacy|REVISION`")
	f.StringVar(&m.log, "log", "",
		"show the server's log from this `level` on: "+strings.Join(spec.LogLevels(), ", "))
	f.BoolVarP(&m.verbose, "verbose", "v", false,
		"show the messages on standard error, > sent and < received, which may hold secrets, and "+
			"progress also where it is no terminal")
}

// askFlags adds the options for what the server may ask.
func (m *mcpRemote) askFlags(cmd *cobra.Command) {
	if m.kept != nil {
		return // they are those of the shell
	}
	f := cmd.Flags()
	f.StringArrayVar(&m.answers, "answer", nil,
		"answer a form of the server's with this `JSON` object, or with accept, decline or cancel; can "+
			"be repeated")
	f.StringVar(&m.sample, "sample", "", "answer the server's requests to a model with this `text`")
	f.StringArrayVar(&m.roots, "root", nil,
		"show the server this `directory` as a root; can be repeated")
}

func (m *mcpRemote) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&m.output, "output", "o", "",
		"save images and other binary content in this `directory`")
}

// onTarget makes a command that takes TARGET, and at most so many words more.
func (m *mcpRemote) onTarget(
	use, short string, most int, run func(ctx context.Context, t *target.Target, rest []string) error,
) *cobra.Command {
	cmd := command(use, short, func(cmd *cobra.Command, args []string) error {
		t, rest, err := m.target(cmd, args)
		if err == nil {
			err = none(cmd, rest[min(most, len(rest)):])
		}
		if err != nil {
			return err
		}
		return run(cmd.Context(), t, rest)
	})
	m.flags(cmd)
	return cmd
}

// onName makes a command that takes TARGET, one name or URI, and more words if its use has some in
// brackets. The shell is offered names.
func (m *mcpRemote) onName(
	use, short, what string, names func(context.Context, *mcpSession) []string,
	run func(ctx context.Context, t *target.Target, name string, words []string) error,
) *cobra.Command {
	cmd := command(use, short, func(cmd *cobra.Command, args []string) error {
		t, name, words, err := m.named(cmd, args, what)
		if err == nil && !strings.Contains(use, "[") {
			err = none(cmd, words)
		}
		if err != nil {
			return err
		}
		return run(cmd.Context(), t, name, words)
	})
	cmd.ValidArgsFunction = m.completer(names)
	m.flags(cmd)
	m.askFlags(cmd)
	m.outputFlag(cmd)
	return cmd
}

// named returns the target of a command line, the name or URI behind it, and what follows that.
func (m *mcpRemote) named(
	cmd *cobra.Command, args []string, what string,
) (t *target.Target, name string, rest []string, err error) {
	t, rest, err = m.target(cmd, args)
	if err != nil {
		return t, "", nil, err
	}
	if len(rest) == 0 || rest[0] == "" {
		hint := "For example: "
		if t.Kind == target.Command {
			hint = "It stands before --: "
		}
		return t, "", nil, usagef(hint+commandLine(cmd.CommandPath(), t, strings.ToUpper(what)),
			"no %s", what)
	}
	return t, rest[0], rest[1:], nil
}

// commandLine is a command with a target and other words, as it may be typed.
func commandLine(command string, t *target.Target, words string) string {
	parts := []string{command, t.String(), words}
	if t.Kind == target.Command {
		parts = []string{command, words, t.String()}
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// none refuses arguments that are one too many.
func none(cmd *cobra.Command, rest []string) error {
	if len(rest) == 0 {
		return nil
	}
	return usagef(fmt.Sprintf("Run '%s --help' for its arguments.", cmd.CommandPath()),
		"there is no place for %q", rest[0])
}

// completer offers names to the shell.
func (m *mcpRemote) completer(
	names func(ctx context.Context, s *mcpSession) []string,
) cobra.CompletionFunc {
	return m.completeSecond(func(ctx context.Context, text string) []string {
		t, err := forMCP(m.locate(text))
		if err != nil || m.check(t) != nil {
			return nil
		}
		s, err := m.open(ctx, t)
		if err != nil {
			return nil
		}
		defer s.end()
		return names(ctx, s)
	})
}

// firstLine is what a description says first, fit to be printed.
func firstLine(texts ...string) string {
	for _, t := range texts {
		if line, _, _ := strings.Cut(strings.TrimSpace(t), "\n"); line != "" {
			return tame(strings.TrimSpace(line))
		}
	}
	return ""
}
