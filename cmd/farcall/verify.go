package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/capture/mock"
)

type verifyFlags struct {
	replayFlags
	changeFlags
}

func newVerifyCmd(e *env) *cobra.Command {
	f := &verifyFlags{replayFlags: replayFlags{remote: &remote{env: e}}}
	cmd := &cobra.Command{
		Use:   "verify FILE TARGET",
		Short: "Verify that a server keeps the contract of a capture",
		RunE:  func(cmd *cobra.Command, args []string) error { return f.verify(cmd, args) },
	}
	f.replayFlags.register(cmd)
	f.changeFlags.register(cmd, "text, json, junit or sarif")
	return cmd
}

func (f *verifyFlags) verify(cmd *cobra.Command, args []string) error {
	client, t, err := f.open(cmd, args)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	compare := diff.New(&diff.Options{Exact: f.exact, Ignore: f.ignore})
	report, err := client.Replay(ctx, func(ctx context.Context) (mock.Link, error) { return f.link(ctx, t) }, compare)
	printed := f.print(f.env, report, args[0])
	if err == nil {
		return printed
	}
	if failed := (&exitError{}); errors.As(printed, &failed) && failed.err == nil {
		return err // it says more than the exit code of the changes
	}
	return errors.Join(err, printed)
}
