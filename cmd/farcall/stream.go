package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/rpc"
	"github.com/farcall-dev/farcall/stream"
)

func newStreamCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	var o streamOptions
	cmd := r.onMethod("stream", "Call a streaming method and print each item as it arrives",
		func(cmd *cobra.Command, args []string) error { return r.stream(cmd, args, o) })
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false,
		"stay connected after the answer and print notifications")
	f.IntVarP(&o.count, "count", "n", 0, "end after so many items; 0 for no limit")
	f.StringArrayVar(&o.answers, "answer", nil,
		"answer the server's own calls, `METHOD=RESULT`; can be repeated")
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
		return usagef("Use ws://, tcp://, unix: or a command.",
			"--follow: over http nothing comes after the answer")
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
	w := &watcher{remote: r, quota: quota{left: o.count, end: cancel}, answered: make(chan struct{})}
	if r.timeout > 0 {
		w.idle = time.AfterFunc(r.timeout, func() { cancel(context.DeadlineExceeded) })
		defer w.idle.Stop()
	}
	v.notify = printNotification(r.stderr)
	if o.follow {
		v.notify = func(method string, params jsonrpc.Raw) error {
			return w.notification(ctx, method, params)
		}
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

// A quota prints lines until there were enough.
type quota struct {
	end context.CancelCauseFunc

	mu   sync.Mutex
	left int // 0: no limit; below: none
}

// emit prints a line. The last one, and a failure, end what gives the lines.
func (q *quota) emit(line func() error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left < 0 {
		return errEnough
	}
	err := line()
	switch {
	case err == nil && q.left == 1:
		err = errEnough
	case err == nil && q.left > 1:
		q.left--
	}
	if err != nil {
		q.left = -1
		q.end(err)
	}
	return err
}

// watcher prints the items of a stream.
type watcher struct {
	*remote
	quota
	idle     *time.Timer   // nil: wait for ever
	answered chan struct{} // closed when the call is answered
}

// watch prints until the stream ends.
func (w *watcher) watch(ctx context.Context, s *session, q *invocation, follow bool) error {
	streamed := false
	for item, err := range farcall.Stream[jsonrpc.Raw](ctx, s.Peer, q.method, orNil(q.params)) {
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
	return w.item(message(method, params))
}

// message is what the other end has sent, as a line.
func message(method string, params jsonrpc.Raw) jsonrpc.Raw {
	if params == nil {
		params = jsonrpc.Raw("null")
	}
	line := append(jsonrpc.AppendString(jsonrpc.Raw(`{"method":`), method), `,"params":`...)
	return append(append(line, params...), '}')
}

// item prints one item.
func (w *watcher) item(raw jsonrpc.Raw) error {
	return w.emit(func() error {
		if w.idle != nil {
			w.idle.Reset(w.timeout)
		}
		return w.printLine(raw)
	})
}

func newListenCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	var o listenOptions
	cmd := command("listen TARGET [METHOD ...]", "Stay connected and print what the server sends",
		func(cmd *cobra.Command, args []string) error {
			t, methods, err := r.split(cmd, args)
			if err != nil {
				return err
			}
			return r.listen(cmd.Context(), t, methods, o)
		})
	r.callFlags(cmd, 0)
	cmd.Flags().Lookup("timeout").Usage = "how long to listen; 0 for ever"
	f := cmd.Flags()
	f.StringArrayVarP(&o.calls, "call", "c", nil,
		"call `'METHOD PARAMS'` on each connection before listening; can be repeated")
	f.StringArrayVar(&o.answers, "answer", nil,
		"answer the server's own calls, `METHOD=RESULT`; can be repeated")
	f.IntVarP(&o.count, "count", "n", 0, "end after so many lines; 0 for no limit")
	return cmd
}

type listenOptions struct {
	calls, answers []string
	count          int
}

// A pushListener prints what a server sends.
type pushListener struct {
	*remote
	target    *target.Target
	methods   []string // to print; none: all
	calls     []invocation
	callbacks callbacks // answers the calls of the server
	quota

	connected int // how often
	up        bool
}

func (r *remote) listen(
	ctx context.Context, t *target.Target, methods []string, o listenOptions,
) (err error) {
	if t.Kind == target.HTTP {
		return usagef("Use ws://, tcp://, unix: or a command.",
			"listen: over http a server sends nothing but answers")
	}
	interrupted, stop := interruptible(ctx)
	defer stop()
	ctx, cancel := context.WithCancelCause(interrupted)
	defer cancel(nil)
	l := &pushListener{
		remote: r, target: t, methods: methods,
		quota: quota{left: o.count, end: cancel},
	}
	if l.calls, err = parseCalls(t, o.calls); err != nil {
		return err
	}
	if l.callbacks.answers, err = parseAnswers(o.answers); err != nil {
		return err
	}
	if r.timeout > 0 {
		defer time.AfterFunc(r.timeout, func() { cancel(context.DeadlineExceeded) }).Stop()
	}
	client, err := l.connect(ctx)
	if err == nil {
		<-ctx.Done()
		_ = client.Close() // nothing is in flight but calls of the server
	}
	return l.outcome(interrupted, context.Cause(ctx), err)
}

// outcome turns the end of listening into the exit.
func (l *pushListener) outcome(interrupted context.Context, cause, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(cause, errEnough):
		return nil
	case errors.Is(cause, context.DeadlineExceeded) && l.left > 0 && l.connected > 0:
		return &exitError{
			code: exitTimeout, err: fmt.Errorf("listen: %d more lines did not come in time", l.left),
		}
	case errors.Is(cause, context.DeadlineExceeded) && l.connected > 0,
		interrupted.Err() != nil && l.connected > 0:
		return nil // that is how listening ends
	case err != nil:
		return err
	}
	return cause
}

// connect returns a client that stays connected until the listening ends.
func (l *pushListener) connect(ctx context.Context) (*rpc.Client, error) {
	limited, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	o := &rpc.Options{
		Handler:        l,
		RPC:            &farcall.Options{V1: l.v1, Logger: slog.New(slog.DiscardHandler)},
		ConnectTimeout: defaultTimeout,
		OnConnect:      l.subscribe,
		OnState:        l.state,
	}
	return rpc.NewClient(limited, func(ctx context.Context) (farcall.Transport, error) {
		return l.dialTapped(ctx, l.target, l.tapOn(l.target))
	}, o)
}

// subscribe makes the calls of --call.
func (l *pushListener) subscribe(ctx context.Context, p *farcall.Peer) error {
	for i := range l.calls {
		q := &l.calls[i]
		var result jsonrpc.Raw
		if err := p.Call(ctx, q.method, orNil(q.params), &result); err != nil {
			return q.methodFailure(ctx, &session{Peer: p, tap: l.tapOn(l.target)}, err)
		}
		fmt.Fprintf(l.stderr, "%s: %s\n", tame(q.method), appendTame(nil, compact(result)))
	}
	return nil
}

// state says when the connection breaks and is made again.
func (l *pushListener) state(s rpc.State) {
	l.mu.Lock()
	again, broke := l.connected > 0, l.up && !s.Connected
	if l.up = s.Connected; l.up {
		l.connected++
	}
	l.mu.Unlock()
	switch {
	case s.Closed:
	case s.Connected && again:
		fmt.Fprintf(l.stderr, "farcall: connected to %s again; what it sent in between is lost\n",
			l.target)
	case s.Connected:
	case l.target.Kind == target.Command:
		l.end(ended(l.target, s.Err))
	case broke:
		fmt.Fprintf(l.stderr, "farcall: the connection to %s broke, connecting again: %v\n",
			l.target, s.Err)
	}
}

// ended is the exit for a command that has ended.
func ended(t *target.Target, err error) error {
	exit, ok := errors.AsType[*stream.ExitError](err)
	if !ok {
		return &exitError{code: exitProtocol, err: fmt.Errorf("listen: %s ended", t)}
	}
	return &exitError{
		code: exitProtocol, err: fmt.Errorf("listen: %s ended: %v", t, exit.State),
		hint: stderrHint(exit),
	}
}

// ServeRPC prints what the server sends, and answers it.
func (l *pushListener) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	if len(l.methods) == 0 || slices.Contains(l.methods, req.Method) {
		// A failure ends the listening.
		_ = l.emit(func() error { return l.printLine(message(req.Method, req.Params)) })
	}
	return l.callbacks.ServeRPC(ctx, req)
}

// parseCalls reads 'METHOD PARAMS', as --call has it.
func parseCalls(t *target.Target, flags []string) ([]invocation, error) {
	var calls []invocation
	for _, f := range flags {
		method, rest, _ := strings.Cut(strings.TrimSpace(f), " ")
		if method == "" {
			return nil, usagef("Write it as --call 'METHOD PARAMS'.", "%q is not a call", f)
		}
		rest = strings.TrimSpace(rest)
		words := strings.Fields(rest)
		if rest != "" && strings.ContainsAny(rest[:1], "{[") {
			words = []string{rest} // JSON, which may have white space
		}
		params, err := parseParams(words, strings.NewReader(""))
		if err != nil {
			return nil, err
		}
		calls = append(calls, invocation{target: t, method: method, params: params})
	}
	return calls, nil
}
