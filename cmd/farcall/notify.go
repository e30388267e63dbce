package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
)

func newNotifyCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	var curl bool
	cmd := &cobra.Command{
		Use:   "notify TARGET METHOD [PARAMS]",
		Short: "Send a notification, which has no answer",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.notify(cmd, args, curl)
		},
		ValidArgsFunction: r.completeMethod,
	}
	r.flags(cmd, defaultTimeout)
	r.verboseFlag(cmd)
	r.versionFlag(cmd)
	cmd.Flags().BoolVar(&curl, "curl", false, "print the shell line that sends it, instead of sending it")
	return cmd
}

func (r *remote) notify(cmd *cobra.Command, args []string, curl bool) error {
	q, err := r.request(cmd, args)
	if err != nil {
		return err
	}
	if curl {
		return r.printShellLine(&q, true)
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	limited, cancel := r.limit(ctx)
	defer cancel()
	s, err := r.connect(limited, q.target, nil)
	if err != nil {
		return err
	}
	defer s.end(ctx)
	err = s.Notify(limited, q.method, q.paramsOf())
	if err == nil {
		err = delivered(limited, s)
	}
	return callFailure(ctx, q.method, q.target, s, err)
}

// delivered waits until a notification has been written.
func delivered(ctx context.Context, s *session) error {
	if err := s.Shutdown(ctx); err != nil && s.Err() != farcall.ErrClosed { //nolint:errorlint // Err returns it bare when this end closed
		return err
	}
	return nil
}
