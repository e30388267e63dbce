package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// leftover bounds how long the pipes of a child are read after its exit: a process that has left
// its group may hold them open.
const leftover = 100 * time.Millisecond

// ErrTooMuchOutput is the error of [Run] for a child that writes more than it may.
var ErrTooMuchOutput = errors.New("stream: the child has written more than it may")

// Run starts a child process, writes input to its standard input, closes that, and returns what the
// child has written to its standard output when it has exited with status 0. The rules of [Command]
// for the command and for what becomes of the child hold here, too, except that a child is killed
// at once, with all of its process group: when the context ends, and when it writes more than most
// bytes.
//
// The error is an *[ExitError] for another status, the context's when that has ended, or
// [ErrTooMuchOutput].
func Run(ctx context.Context, cmd *exec.Cmd, input []byte, most int) (output []byte, err error) {
	if cmd.Stdin != nil || cmd.Stdout != nil {
		return nil, errors.New("stream: Run needs the command's Stdin and Stdout for itself; leave them nil")
	}
	cmd.WaitDelay = leftover
	p := &child{cmd: cmd, name: nameOf(cmd), exited: make(chan struct{})}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("stream: cannot start %q: %w", cmd.Path, err)
	}
	defer context.AfterFunc(ctx, func() { p.signal(kill) })()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = p.stdin.Write(input) // a child that does not read it may succeed
		closeAll(p.stdin)
	}()
	output, err = p.output(most)
	if err != nil {
		p.signal(kill)
	}
	<-p.exited
	closeAll(p.stdin, p.stdout)
	<-wrote
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case p.waitErr != nil && !errors.Is(p.waitErr, exec.ErrWaitDelay):
		return nil, p.exitError()
	}
	return output, nil
}

// output reads what the child writes until its exit.
func (p *child) output(most int) ([]byte, error) {
	var b []byte
	last := false // what was left is read
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := p.stdout.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > most:
			return nil, ErrTooMuchOutput
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && !last:
			last = true
			<-p.exited // it has set the deadline; what the child wrote may not have been read
			_ = p.stdout.SetReadDeadline(time.Now().Add(leftover))
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
			return b, nil
		default:
			return nil, fmt.Errorf("stream: read from %s: %w", p.name, err)
		}
	}
}
