package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/capture/mock"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

type replayFlags struct {
	*remote
	redacted bool
	ignore   []string
	filter   string
	upstream string
}

func newReplayCmd(e *env) *cobra.Command {
	f := &replayFlags{remote: &remote{env: e}}
	cmd := command("replay FILE TARGET", "Send a capture to a server and compare the answers", f.run)
	f.register(cmd)
	return cmd
}

// register adds the flags that replay and verify have.
func (f *replayFlags) register(cmd *cobra.Command) {
	f.flags(cmd, defaultTimeout)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.ignore, "ignore", nil, ignoreUsage)
	flags.StringVar(&f.filter, "filter", "",
		"send only requests that the `filter` selects, as 'farcall view' takes it")
	flags.BoolVar(&f.redacted, "redacted", false, redactedUsage)
	flags.StringVar(&f.upstream, "upstream", "", upstreamUsage)
}

const ignoreUsage = "do not compare the values at this `path`; can be repeated"

// open reads the capture and the target.
func (f *replayFlags) open(
	cmd *cobra.Command, args []string,
) (*mock.Client, *target.Target, error) {
	if len(args) < 2 || cmd.ArgsLenAtDash() == 0 || cmd.ArgsLenAtDash() < 0 && len(args) > 2 {
		return nil, nil, usagef(fmt.Sprintf("For example: farcall %s a.jsonl -- ./server", cmd.Name()),
			"%s takes FILE and TARGET", cmd.Name())
	}
	filter, err := capture.ParseFilter(f.filter)
	if err != nil {
		return nil, nil, usagef("Run 'farcall view --help' for the language.", "%w", err)
	}
	t := target.Child(args[1:])
	if cmd.ArgsLenAtDash() < 0 {
		if t, err = f.locate(args[1]); err != nil {
			return nil, nil, err
		}
		t.DefaultPath(mcpPath)
	}
	client, err := f.load(args[0], filter)
	return client, t, err
}

// replay sends the capture to the target. The report is nil when that has not begun.
func (f *replayFlags) replay(cmd *cobra.Command, args []string, exact bool) (*mock.Report, error) {
	client, t, err := f.open(cmd, args)
	if err != nil {
		return nil, err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	compare := diff.New(&diff.Options{Exact: exact, Ignore: f.ignore})
	dial := func(ctx context.Context) (mock.Link, error) { return f.link(ctx, t) }
	return client.Replay(ctx, dial, compare)
}

func (f *replayFlags) run(cmd *cobra.Command, args []string) error {
	report, err := f.replay(cmd, args, true)
	if report == nil {
		return err
	}
	for _, r := range report.Results {
		if len(r.Findings) > 0 {
			d := r.Findings[0]
			fmt.Fprintf(f.stdout, "#%d %s %s: %s\n  was %s\n  is  %s\n",
				r.Seq, tame(r.Method), tame(r.Name), tame(d.Path), tame(shortOf(d.Was)), tame(shortOf(d.Is)))
		}
	}
	calls, changed := len(report.Results), report.Changed()
	fmt.Fprintf(f.stdout, "%s: %d the same, %d differ\n", countOf(calls, "call"),
		calls-changed, changed)
	switch {
	case err != nil:
		return err
	case changed > 0:
		return &exitError{code: exitFailure}
	}
	return nil
}

// shortOf keeps a line readable.
func shortOf(text string) string {
	const most = 200
	if text == "" {
		return "(nothing)"
	}
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

func (f *replayFlags) load(path string, filter *capture.Filter) (*mock.Client, error) {
	r, err := capture.Open(path)
	if err != nil {
		return nil, unreadable("the capture", path, err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	client, err := mock.LoadClient(r,
		&mock.Part{Upstream: f.upstream, Redacted: f.redacted, Filter: filter})
	if err != nil {
		return nil, scriptFailure(path, err)
	}
	return client, nil
}

// link connects to the server.
func (f *replayFlags) link(ctx context.Context, t *target.Target) (mock.Link, error) {
	if t.Kind != target.HTTP {
		tr, err := f.dial(ctx, t)
		if err != nil {
			return nil, dialFailure(ctx, t, err)
		}
		l := &connLink{newFrameQueue(f.timeout, tr), tr}
		l.reading.Go(l.read)
		return l, nil
	}
	if t.URL.Path != mcpPath {
		x, err := f.dialHTTP(t)
		if err != nil {
			return nil, err
		}
		return &httpLink{newFrameQueue(f.timeout, x), x}, nil
	}
	header, err := f.headers()
	if err != nil {
		return nil, err
	}
	x, err := mcphttp.Dial(t.URL.String(), &mcphttp.DialOptions{Header: header})
	if err != nil {
		return nil, err
	}
	return &httpLink{newFrameQueue(f.timeout, x), x}, nil
}

// frameQueue has the frames that came over conn, for the one goroutine that waits for them.
type frameQueue struct {
	conn    io.Closer
	frames  chan []byte
	failed  chan error
	done    chan struct{}
	reading sync.WaitGroup
	timeout time.Duration
}

func newFrameQueue(timeout time.Duration, conn io.Closer) *frameQueue {
	return &frameQueue{
		conn: conn, frames: make(chan []byte, 64), failed: make(chan error, 1),
		done: make(chan struct{}), timeout: timeout,
	}
}

// Close implements mock.Link.
func (q *frameQueue) Close() error { //nolint:unparam // mock.Link has it
	close(q.done)
	_ = q.conn.Close() // how the server ends is not compared
	q.reading.Wait()
	return nil
}

// Receive implements mock.Link.
func (q *frameQueue) Receive(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	select { // what came before the end counts
	case frame := <-q.frames:
		return frame, nil
	default:
	}
	select {
	case frame := <-q.frames:
		return frame, nil
	case err := <-q.failed:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (q *frameQueue) put(frame []byte) error {
	select {
	case q.frames <- append([]byte(nil), frame...):
		return nil
	case <-q.done:
		return io.ErrClosedPipe
	}
}

func (q *frameQueue) fail(err error) {
	select {
	case q.failed <- err:
	default:
	}
}

// connLink is a link over a connection.
type connLink struct {
	*frameQueue
	t farcall.Transport
}

func (l *connLink) read() {
	for {
		frame, err := l.t.Read()
		if err != nil {
			l.fail(err)
			return
		}
		if l.put(frame) != nil {
			return
		}
	}
}

// Send implements mock.Link.
func (l *connLink) Send(_ context.Context, frame []byte) error { return l.t.Write(frame) }

// httpLink is a link over HTTP.
type httpLink struct {
	*frameQueue
	x farcall.Exchanger
}

// Send implements mock.Link.
func (l *httpLink) Send(ctx context.Context, frame []byte) error {
	l.reading.Go(func() {
		if err := l.x.Exchange(ctx, frame, l.put); err != nil {
			l.fail(err)
		}
	})
	return nil
}

type verifyFlags struct {
	replayFlags
	changeFlags
}

func newVerifyCmd(e *env) *cobra.Command {
	f := &verifyFlags{replayFlags: replayFlags{remote: &remote{env: e}}}
	cmd := command("verify FILE TARGET", "Verify that a server keeps the contract of a capture",
		f.verify)
	f.replayFlags.register(cmd)
	f.changeFlags.register(cmd, "text, json, junit or sarif")
	return cmd
}

func (f *verifyFlags) verify(cmd *cobra.Command, args []string) error {
	report, err := f.replay(cmd, args, f.exact)
	if report == nil {
		return err
	}
	printed := f.print(f.env, report, args[0])
	if err == nil {
		return printed
	}
	if failed := (&exitError{}); errors.As(printed, &failed) && failed.err == nil {
		return err // it says more than the exit code of the changes
	}
	return errors.Join(err, printed)
}
