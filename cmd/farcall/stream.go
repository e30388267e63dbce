package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func newStreamCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	var o streamOptions
	cmd := &cobra.Command{
		Use:   "stream TARGET METHOD [PARAMS]",
		Short: "Call a streaming method and print each item as it arrives",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.stream(cmd, args, o)
		},
		ValidArgsFunction: r.completeMethod,
	}
	r.flags(cmd, defaultTimeout)
	r.verboseFlag(cmd)
	r.versionFlag(cmd)
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "stay connected after the answer and print notifications")
	f.IntVarP(&o.count, "count", "n", 0, "end after so many items; 0 for no limit")
	f.StringArrayVar(&o.answers, "answer", nil, "answer the server's own calls, `METHOD=RESULT`; can be repeated")
	return cmd
}

type streamOptions struct {
	follow  bool
	count   int
	answers []string
}

func (r *remote) stream(cmd *cobra.Command, args []string, o streamOptions) error {
	q, err := r.request(cmd, args)
	switch {
	case err != nil:
		return err
	case o.follow && q.target.Kind == target.HTTP:
		return usagef("Use ws://, tcp://, unix: or a command.", "--follow: over http nothing comes after the answer")
	case o.follow && !cmd.Flags().Changed("timeout"):
		r.timeout = 0
	}
	v := &callbacks{}
	if v.answers, err = parseAnswers(o.answers); err != nil {
		return err
	}
	interrupted, stop := interruptible(cmd.Context())
	defer stop()
	ctx, cancel := context.WithCancelCause(interrupted)
	defer cancel(nil)
	w := &watcher{remote: r, left: o.count, end: cancel, answered: make(chan struct{})}
	if r.timeout > 0 {
		w.idle = time.AfterFunc(r.timeout, func() { cancel(context.DeadlineExceeded) })
		defer w.idle.Stop()
	}
	v.notify = printNotification(r.stderr)
	if o.follow {
		v.notify = func(method string, params jsonrpc.Raw) error { return w.notification(ctx, method, params) }
	}
	s, err := r.connect(ctx, q.target, v)
	if err != nil {
		return err
	}
	defer s.end(ctx)
	err = w.watch(ctx, s, &q, o.follow)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errEnough):
		return nil
	case errors.Is(cause, context.DeadlineExceeded):
		err = cause
	case interrupted.Err() != nil && o.follow:
		return nil // that is how following ends
	}
	return q.methodFailure(interrupted, s, err)
}

// errEnough ends a stream that has given as many items as were wanted.
var errEnough = errors.New("enough")

// watcher prints the items of a stream.
type watcher struct {
	*remote
	end      context.CancelCauseFunc
	idle     *time.Timer   // nil: wait for ever
	answered chan struct{} // closed when the call is answered

	mu   sync.Mutex
	left int // 0: no limit
}

// watch prints until the stream ends.
func (w *watcher) watch(ctx context.Context, s *session, q *invocation, follow bool) error {
	streamed := false
	for item, err := range farcall.Stream[jsonrpc.Raw](ctx, s.Peer, q.method, q.paramsOf()) {
		streamed = true
		if err == nil {
			err = w.item(item)
		}
		if err != nil {
			return err
		}
	}
	if !streamed {
		if err := w.whole(s); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	close(w.answered)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Done():
		return s.Err()
	}
}

// whole prints the result of a method that does not stream.
func (w *watcher) whole(s *session) error {
	var d jsonrpc.Decoder
	var b jsonrpc.Batch
	if raw := s.answer(); raw != nil && d.Decode(raw, &b) == nil && len(b.Messages) == 1 {
		switch result := b.Messages[0].Result; string(result) {
		case "", "null", "[]":
		default:
			return w.item(result)
		}
	}
	return nil
}

// notification prints a notification, after the answer to the call.
func (w *watcher) notification(ctx context.Context, method string, params jsonrpc.Raw) error {
	select {
	case <-w.answered:
	case <-ctx.Done():
		return ctx.Err()
	}
	if params == nil {
		params = jsonrpc.Raw("null")
	}
	line := append(jsonrpc.AppendString(jsonrpc.Raw(`{"method":`), method), `,"params":`...)
	return w.item(append(append(line, params...), '}'))
}

// item prints one item.
func (w *watcher) item(raw jsonrpc.Raw) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left < 0 {
		return errEnough
	}
	if w.idle != nil {
		w.idle.Reset(w.timeout)
	}
	if err := w.printLine(raw); err != nil {
		return err
	}
	if w.left == 1 {
		w.left = -1
		w.end(errEnough)
		return errEnough
	}
	if w.left > 0 {
		w.left--
	}
	return nil
}
