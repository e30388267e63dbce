// Command farcall serves, calls and checks JSON-RPC 2.0.
//
// Everything is wired here, explicitly: a file for a command, or for a few that are alike.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes, the same for every command.
const (
	exitOK       = 0 // answered, or ended in order
	exitFailure  = 1 // anything the codes below do not say
	exitUsage    = 2 // the command line is wrong
	exitConnect  = 3 // the other end could not be reached
	exitAnswered = 4 // the other end answered an error
	exitTimeout  = 5 // no answer in time
	exitProtocol = 6 // the other end broke the protocol
	exitDenied   = 7 // explain: the guard would deny the call
)

// env is what a command may touch of the world outside it.
type env struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	isTTY  bool  // stdout is a terminal: answers may be pretty and coloured
	kept   *kept // the connection of a shell, which its commands use; nil: each makes one
}

// exitError ends the program with its own code. A nil err prints nothing:
// the command has already said what happened.
type exitError struct {
	code int
	err  error
	hint string // what to do next, printed on its own line
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef says that the command line is wrong.
func usagef(hint, format string, args ...any) error {
	return failf(exitUsage, hint, format, args...)
}

// failf ends the program with a code, and says why and what to do next.
func failf(code int, hint, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...), hint: hint}
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	e := &env{
		stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.Getenv,
		isTTY: isTerminal(stdout),
	}
	root := newRootCmd(e) //nolint:contextcheck // cobra hands the context to the command that it runs
	root.SetArgs(args)
	return e.report(root.ExecuteContext(ctx))
}

func newRootCmd(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:           "farcall",
		Short:         "Serve, call and check MCP and JSON-RPC 2.0 over every transport",
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return unknownCommand(cmd, args, "unknown command %q")
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.Version = versionLine() // --version
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if name, ok := strings.CutPrefix(err.Error(), "flag needs an argument: --"); ok {
			if flag := cmd.Flags().Lookup(name); flag != nil {
				return usagef(fmt.Sprintf("--%s: %s.", name, strings.ReplaceAll(flag.Usage, "`", "")),
					"--%s needs a value", name)
			}
		}
		hint := fmt.Sprintf("Run '%s --help' for its options.", cmd.CommandPath())
		if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
			if near := nearestWord(name, flagNames(cmd)); near != "" {
				hint = fmt.Sprintf("Did you mean --%s? %s", near, hint)
			}
		}
		return usagef(hint, "%w", err)
	})
	root.AddCommand(
		newServeCmd(e),
		newBridgeCmd(e),
		newBenchCmd(e),
		newFaultCmd(e),
		newCallCmd(e),
		newNotifyCmd(e),
		newBatchCmd(e),
		newStreamCmd(e),
		newListenCmd(e),
		newDiscoverCmd(e),
		newTapCmd(e),
		newViewCmd(e),
		newReplayCmd(e),
		newVerifyCmd(e),
		newDiffCmd(e), newExportCmd(e),
		newMockCmd(e),
		newMCPCmd(e),
		newInspectCmd(e), newShellCmd(e), newDevCmd(e),
		newLoginCmd(e),
		newLogoutCmd(e),
		newNewCmd(e),
		newPinCmd(e),
		newStatsCmd(e),
		newTopCmd(e),
		newAdminCmd(e),
		newClusterCmd(e),
		newClientCmd(e),
		newErrorsCmd(e),
		newCheckCmd(e),
		newConformCmd(e),
		newExplainCmd(e),
		newAuditCmd(e),
		newKeyCmd(e),
		newLockCmd(e),
		newPolicyCmd(e),
		newSandboxCmd(e),
		newVersionCmd(e),
		newManCmd(e),
	)
	addHelp(root)
	return root
}

// command returns a command with its use, its line in the list of commands, and what it runs.
func command(use, short string, run func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: run}
}

// noArgs returns a command that takes no arguments.
func noArgs(use, short string, run func() error) *cobra.Command {
	cmd := command(use, short, func(*cobra.Command, []string) error { return run() })
	cmd.Args = cobra.NoArgs
	return cmd
}

// newGroup returns a command that only has others. hint names them.
func newGroup(use, short, hint string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(hint, "there is no '%s %s'", cmd.CommandPath(), args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(below...)
	return cmd
}

// unknownCommand is the exit for a word that is not among the commands below cmd. Without a word
// it prints the help.
func unknownCommand(cmd *cobra.Command, args []string, format string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := fmt.Sprintf("Run '%s --help' for the list.", cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("Did you mean '%s %s'?", cmd.CommandPath(),
			cmp.Or(nearestWord(args[0], near), near[0]))
	}
	return usagef(hint, format, args[0])
}

// report prints what ended the program and turns it into an exit code.
func (e *env) report(err error) int {
	if err == nil {
		return exitOK
	}
	exit := &exitError{code: exitFailure, err: err}
	if !errors.As(err, &exit) && isUsageText(err.Error()) {
		exit.code = exitUsage
	}
	if exit.err != nil {
		fmt.Fprintf(e.stderr, "farcall: %v\n", err)
	}
	if exit.hint != "" {
		fmt.Fprintln(e.stderr, exit.hint)
	}
	return exit.code
}

// flagNames lists the flags that the help of a command shows.
func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// isUsageText recognises what cobra itself says of a wrong command line: it
// has no error type for it.
func isUsageText(s string) bool {
	starts := []string{
		"unknown command", "unknown flag", "unknown shorthand", "required flag", "accepts ",
		"requires at least", "invalid argument", "if any flags", "at least one of",
	}
	return slices.ContainsFunc(starts, func(start string) bool { return strings.HasPrefix(s, start) })
}

// isTerminal reports whether w is a terminal and not a file or a pipe.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
