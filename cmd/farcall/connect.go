package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/conform"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// connect opens a session. The handler answers what the other end asks; nil
// refuses everything.
func (r *remote) connect(ctx context.Context, t target, h *visitor) (*session, error) {
	if h == nil {
		h = &visitor{}
	}
	tap := &tap{strict: t.kind != kindChild, report: func(noise string) {
		fmt.Fprintf(r.stderr, "farcall: not a message, on the command's standard output: %s\n", noise)
	}}
	tap.dec.AcceptV1 = r.v1
	o := &farcall.Options{V1: r.v1, Logger: slog.New(slog.DiscardHandler)} // the command reports errors itself
	if t.kind == kindHTTP {
		x, err := r.dialHTTP(t)
		if err != nil {
			return nil, err
		}
		return &session{farcall.NewClient(tappedExchanger{x, tap}, h, o), tap}, nil
	}
	tr, err := r.dial(ctx, t)
	if err != nil {
		return nil, dialFailure(ctx, t, err)
	}
	return &session{farcall.NewPeer(tapped{tr, tap}, h, o), tap}, nil //nolint:contextcheck // a peer lives until it is closed
}

// dialFailure is the exit for a connection that could not be made.
func dialFailure(ctx context.Context, t target, err error) error {
	var usage *exitError
	switch {
	case errors.As(err, &usage):
		return err
	case errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return &exitError{code: exitInterrupted, err: errors.New("interrupted")}
	}
	return connectFailure(t, err)
}

func (r *remote) dialHTTP(t target) (farcall.Exchanger, error) {
	header, err := r.headers()
	if err != nil {
		return nil, err
	}
	client, err := r.httpClient()
	if err != nil {
		return nil, err
	}
	return httprpc.Dial(t.url.String(), &httprpc.Options{Client: client, Header: header})
}

func (r *remote) dial(ctx context.Context, t target) (farcall.Transport, error) {
	switch t.kind {
	case kindWS:
		header, err := r.headers()
		if err != nil {
			return nil, err
		}
		client, err := r.httpClient()
		if err != nil {
			return nil, err
		}
		return wsrpc.Dial(ctx, t.url.String(), &wsrpc.Options{Client: client, Header: header})
	case kindTLS:
		config, err := r.tls()
		if err != nil {
			return nil, err
		}
		return stream.Dial(ctx, "tcp", t.address, t.framing, &stream.Options{TLS: config})
	case kindChild:
		cmd := exec.Command(t.command[0], t.command[1:]...) //nolint:noctx // the command is the user's; closing the transport ends it
		cmd.Stderr = visible.NewWriter(r.stderr)
		return stream.Command(cmd, t.framing, nil)
	}
	return stream.Dial(ctx, t.kind, t.address, t.framing, nil)
}

// dialer is how conform reaches a target: below the transports, because it
// sends what they would not.
func (r *remote) dialer(t target) (conform.Dialer, error) {
	header, err := r.headers()
	if err != nil {
		return conform.Dialer{}, err
	}
	switch {
	case t.kind == kindHTTP || t.kind == kindWS:
		client, err := r.httpClient()
		if err != nil {
			return conform.Dialer{}, err
		}
		if t.kind == kindHTTP {
			return conform.NewHTTP(client, t.url.String(), header), nil
		}
		return conform.NewWebSocket(client, t.url.String(), header), nil
	case t.framing == stream.Raw:
		return conform.Dialer{}, usagef("Leave it out: a server that reads raw JSON reads lines as well.", "conform has no cases for the framing raw")
	case t.framing == stream.Header:
		return conform.NewHeaders(func(ctx context.Context) (io.ReadWriteCloser, error) { return r.dialBytes(ctx, t) }), nil
	}
	return conform.NewLines(func(ctx context.Context) (io.ReadWriteCloser, error) { return r.dialBytes(ctx, t) }), nil
}

// dialBytes opens a byte stream.
func (r *remote) dialBytes(ctx context.Context, t target) (io.ReadWriteCloser, error) {
	switch t.kind {
	case kindChild:
		return startChild(t.command, r.stderr)
	case kindTLS:
		config, err := r.tls()
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", t.address)
	}
	return new(net.Dialer).DialContext(ctx, t.kind, t.address)
}

// rawChild is a child process whose standard input and output are a byte
// stream.
type rawChild struct {
	io.WriteCloser
	io.Reader
	cmd *exec.Cmd
}

func startChild(command []string, stderr io.Writer) (io.ReadWriteCloser, error) {
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // the command is the user's; Close ends it
	cmd.Stderr = visible.NewWriter(stderr)
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
