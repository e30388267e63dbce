package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/mock"
	"github.com/farcall-dev/farcall/stream"
)

type mockFlags struct {
	*env
	redacted, pace bool
	upstream       string
}

const (
	redactedUsage = "use a capture with replaced secrets, too"
	upstreamUsage = "of the capture of a gateway, use what passed between it and this `upstream`"
)

func newMockCmd(e *env) *cobra.Command {
	f := &mockFlags{env: e}
	cmd := &cobra.Command{
		Use:   "mock FILE [ADDRESS]",
		Short: "Answer as the server of a capture did",
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cmd.Flags().BoolVar(&f.redacted, "redacted", false, redactedUsage)
	cmd.Flags().StringVar(&f.upstream, "upstream", "", upstreamUsage)
	cmd.Flags().BoolVar(&f.pace, "pace", false, "answer as slowly as the server did")
	return cmd
}

func (f *mockFlags) run(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return usagef("For example: farcall mock a.jsonl 127.0.0.1:9000", "mock takes FILE and at most one ADDRESS")
	}
	script, err := loadScript(args[0], &mock.Part{Upstream: f.upstream, Redacted: f.redacted})
	if err != nil {
		return err
	}
	if script.Skipped > 0 {
		fmt.Fprintf(f.stderr, "farcall: the capture has no answer to %s\n", countOf(script.Skipped, "call"))
	}
	if len(args) == 2 {
		return f.bridge(cmd, script, args)
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	return script.Serve(ctx, stream.Stdio(stream.Detect, nil), &mock.Options{Pace: f.pace})
}

// loadScript reads a capture.
func loadScript(path string, part *mock.Part) (*mock.Script, error) {
	r, err := capture.Open(path)
	if err != nil {
		return nil, unreadable("the capture", path, err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	script, err := mock.Load(r, part)
	if err != nil {
		return nil, scriptFailure(path, err)
	}
	return script, nil
}

// scriptFailure is the exit for a capture that cannot be used.
func scriptFailure(path string, err error) error {
	hint := ""
	if errors.Is(err, mock.ErrRedacted) {
		hint = "Record it with 'farcall tap --raw', or add --redacted."
	}
	return &exitError{code: exitUsage, err: fmt.Errorf("%s: %w", path, err), hint: hint}
}

// bridge serves the mock at an address, through a bridge to this program.
func (f *mockFlags) bridge(cmd *cobra.Command, script *mock.Script, args []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	profile := "mcp"
	if !script.MCP {
		profile = "raw"
	}
	line := []string{args[1], "--profile", profile, "--", program, "mock", args[0]}
	if f.redacted {
		line = append(line, "--redacted")
	}
	if f.upstream != "" {
		line = append(line, "--upstream", f.upstream)
	}
	if f.pace {
		line = append(line, "--pace")
	}
	bridge := newBridgeCmd(f.env)
	bridge.SilenceErrors, bridge.SilenceUsage = true, true
	bridge.SetArgs(line)
	return bridge.ExecuteContext(cmd.Context())
}
