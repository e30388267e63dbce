package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/conform"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/stream"
)

// connect opens a session. The handler answers what the other end asks; nil
// refuses everything.
func (r *remote) connect(ctx context.Context, t *target.Target, h *callbacks) (*session, error) {
	if r.kept != nil {
		return r.kept.rpc, nil
	}
	if h == nil {
		h = &callbacks{}
	}
	tap := r.tapOn(t)
	o := &farcall.Options{V1: r.v1, Logger: slog.New(slog.DiscardHandler)} // the command reports errors itself
	if t.Kind == target.HTTP {
		x, err := r.dialHTTP(t)
		if err != nil {
			return nil, err
		}
		return &session{Peer: farcall.NewClient(tappedExchanger{x, tap}, h, o), tap: tap}, nil
	}
	tr, err := r.dialTapped(ctx, t, tap)
	if err != nil {
		return nil, err
	}
	return &session{Peer: farcall.NewPeer(tr, h, o), tap: tap}, nil //nolint:contextcheck // a peer lives until it is closed
}

// tapOn returns a tap for connections to a target.
func (r *remote) tapOn(t *target.Target) *tap {
	tap := &tap{strict: t.Kind != target.Command, report: func(noise string) {
		fmt.Fprintf(r.stderr, "farcall: not a message, on the command's standard output: %s\n", noise)
	}}
	tap.dec.AcceptV1 = r.v1
	if r.verbose {
		tap.frames = r.stderr
	}
	return tap
}

// dialFailure is the exit for a connection that could not be made.
func dialFailure(ctx context.Context, t *target.Target, err error) error {
	var usage *exitError
	switch {
	case errors.As(err, &usage):
		return err
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // whatever the transport made of it
	case errors.Is(ctx.Err(), context.Canceled):
		return &exitError{code: exitInterrupted, err: errors.New("interrupted")}
	}
	return connectFailure(t, err)
}

// reach are the options for a connection to a target.
func (r *remote) reach(t *target.Target) (o *target.Options, err error) {
	o = &target.Options{Gzip: r.gzip, Prepare: func(cmd *exec.Cmd) {
		cmd.Stderr = visible.NewWriter(r.stderr)
		r.dress(cmd)
	}}
	switch t.Kind {
	case target.HTTP, target.WebSocket:
		if o.Header, err = r.headers(); err == nil {
			o.Client, err = r.httpClient()
		}
	case target.Stream:
		o.TLS, err = r.tls()
	}
	return o, err
}

func (r *remote) dialHTTP(t *target.Target) (farcall.Exchanger, error) {
	o, err := r.reach(t)
	if err != nil {
		return nil, err
	}
	return t.Exchange(o)
}

func (r *remote) dial(ctx context.Context, t *target.Target) (farcall.Transport, error) {
	o, err := r.reach(t)
	if err != nil {
		return nil, err
	}
	return t.Dial(ctx, o)
}

// dialer is how conform reaches a target: below the transports, because it
// sends what they would not.
func (r *remote) dialer(t *target.Target) (conform.Dialer, error) {
	header, err := r.headers()
	if err != nil {
		return conform.Dialer{}, err
	}
	switch {
	case t.Kind == target.HTTP || t.Kind == target.WebSocket:
		client, err := r.httpClient()
		if err != nil {
			return conform.Dialer{}, err
		}
		if t.Kind == target.HTTP {
			return conform.NewHTTP(client, t.URL.String(), header), nil
		}
		return conform.NewWebSocket(client, t.URL.String(), header), nil
	case t.Framing == stream.Raw:
		return conform.Dialer{}, usagef("Leave it out: a server that reads raw JSON reads lines as well.", "conform has no cases for the framing raw")
	case t.Framing == stream.Header:
		return conform.NewHeaders(func(ctx context.Context) (io.ReadWriteCloser, error) { return r.dialBytes(ctx, t) }), nil
	}
	return conform.NewLines(func(ctx context.Context) (io.ReadWriteCloser, error) { return r.dialBytes(ctx, t) }), nil
}

// dialBytes opens a byte stream.
func (r *remote) dialBytes(ctx context.Context, t *target.Target) (io.ReadWriteCloser, error) {
	if t.Kind == target.Command {
		return r.startChild(t.Command)
	}
	o, err := r.reach(t)
	if err != nil {
		return nil, err
	}
	return t.Open(ctx, o)
}

// rawChild is a child process; its standard input and output are a byte
// stream.
type rawChild struct {
	io.WriteCloser
	io.Reader
	cmd *exec.Cmd
}

func (r *remote) startChild(command []string) (io.ReadWriteCloser, error) {
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // the command is the user's; Close ends it
	cmd.Stderr = visible.NewWriter(r.stderr)
	r.dress(cmd)
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &rawChild{in, out, cmd}, nil
}

// Close closes the child's standard input, which tells it to end, and kills it
// when it does not.
func (c *rawChild) Close() error {
	_ = c.WriteCloser.Close()
	kill := time.AfterFunc(2*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	return c.cmd.Wait()
}
