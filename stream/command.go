package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
)

const (
	stderrTail = 16 << 10 // what an ExitError keeps
	stderrRead = 4 << 10
	stderrText = 1 << 10 // what its text shows

	// For a machine that is busy. A child that was killed has no say in it.
	killWait    = 10 * time.Second
	blockedWait = time.Second // the writer for standard error may block, too
)

// Command starts a child process and returns a transport over its standard
// input and output. The command must not be started and must leave its Stdin
// and Stdout alone; its Stderr, if it is set, gets what the child writes there.
//
// When the child ends, Read returns what it said before, and then an
// *[ExitError].
//
// Close closes the child's standard input and waits for its exit, at most
// [Options.Grace]. Then it sends SIGTERM, waits as long again, and sends
// SIGKILL. On unix the child leads its own process group and the signals
// go to the group, so that what the child has started ends too; the group is
// killed as well when the child exits unasked. Only a process that has left
// the group can survive. On linux the child is also killed when this process
// dies. On other systems Close kills the child alone.
//
// When the context of an [exec.CommandContext] ends, the group gets SIGTERM, and
// SIGKILL after the grace.
func Command(cmd *exec.Cmd, framing Framing, o *Options) (farcall.Transport, error) {
	if cmd.Stdin != nil || cmd.Stdout != nil {
		return nil, errors.New(
			"stream: Command needs the command's Stdin and Stdout for itself; leave them nil")
	}
	p := &child{cmd: cmd, name: nameOf(cmd), grace: defaultGrace, exited: make(chan struct{})}
	if o != nil {
		p.onExit = o.OnExit
		if o.Grace > 0 {
			p.grace = o.Grace
		}
	}
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("stream: cannot start %q: %w", cmd.Path, err)
	}
	return New(p, framing, o), nil
}

// nameOf is what a command calls itself: its first argument, which is its path unless it was
// changed.
func nameOf(cmd *exec.Cmd) string {
	if len(cmd.Args) > 0 && cmd.Args[0] != "" {
		return filepath.Base(cmd.Args[0])
	}
	return filepath.Base(cmd.Path)
}

// ExitError is what Read fails with when a child process has ended. It is
// io.EOF, as errors.Is finds it, when the child succeeded.
type ExitError struct {
	Name   string           // of the program
	State  *os.ProcessState // how it ended
	Stderr string           // the last 16 KB of what it wrote to its standard error
	cause  error
}

func (e *ExitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stream: %s ended: %v", e.Name, e.cause)
	if text := strings.TrimSpace(e.Stderr); text != "" {
		fmt.Fprintf(&b, "; its standard error ends with %q", text[max(0, len(text)-stderrText):])
	}
	return b.String()
}

// Unwrap returns what the error wraps: io.EOF, or an *exec.ExitError.
func (e *ExitError) Unwrap() error { return e.cause }

// errExit0 is the end of a child that succeeded.
var errExit0 = fmt.Errorf("exit status 0 (%w)", io.EOF)

// child is a process and the pipes to it.
type child struct {
	cmd           *exec.Cmd
	name          string
	grace         time.Duration
	stdin, stdout *os.File
	stderrPipe    *os.File // the end that is read
	stderr        lastBytes
	onExit        func(*ExitError)
	exited        chan struct{} // closed when the child was reaped
	waitErr       error         // set before

	stopping sync.Once
	stopErr  error

	mu     sync.Mutex
	reaped bool // another process may have its id
}

// start starts the child and the goroutine that reaps it.
func (p *child) start() error {
	in, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		closeAll(in, stdin)
		return err
	}
	stderr, errs, err := os.Pipe()
	if err != nil {
		closeAll(in, stdin, stdout, out)
		return err
	}
	p.stdin, p.stdout, p.stderrPipe = stdin, stdout, stderr
	p.stderr.next = p.cmd.Stderr
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, errs
	p.cmd.WaitDelay = cmp.Or(p.cmd.WaitDelay, p.grace)
	if p.cmd.Cancel != nil {
		p.cmd.Cancel = func() error { p.signal(terminate); return nil }
	}
	ownGroup(p.cmd)
	started := make(chan error)
	go p.run(started)
	err = <-started
	closeAll(in, out, errs)
	if err != nil {
		closeAll(stdin, stdout, stderr)
	}
	return err
}

// run starts the child and reaps it. Linux kills the child when the thread that
// started it ends, so that thread is held until then; it would be blocked in
// waiting for the child anyway.
func (p *child) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	copied := make(chan struct{})
	go func() { defer close(copied); p.copyStderr() }()
	awaitExit(p.cmd.Process.Pid)
	p.mu.Lock()
	if zombies {
		signalGroup(p.cmd, kill) // the id is still the child's: it was not reaped
	}
	p.reaped = true
	p.mu.Unlock()
	p.waitErr = p.cmd.Wait()
	if !zombies {
		signalGroup(p.cmd, kill)
	}
	p.awaitStderr(copied)
	if p.onExit != nil {
		p.onExit(p.exitError())
	}
	// Whatever left the group may hold the output open. Read has what is there.
	_ = p.stdout.SetReadDeadline(time.Unix(1, 0))
	close(p.exited)
}

// copyStderr reads the standard error of the child, until its end or a deadline. What the child
// wrote before it exited is there then without waiting.
func (p *child) copyStderr() {
	buf := make([]byte, stderrRead)
	for {
		n, err := p.stderrPipe.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, err = readNow(p.stderrPipe, buf)
		}
		if n > 0 {
			_, _ = p.stderr.Write(buf[:n])
		}
		if n == 0 || err != nil {
			return
		}
	}
}

// awaitStderr waits, after the exit, until copyStderr has read all. Another process may hold
// standard error open, and the writer of the caller may block.
func (p *child) awaitStderr(copied <-chan struct{}) {
	defer closeAll(p.stderrPipe)
	held := time.NewTimer(p.cmd.WaitDelay)
	defer held.Stop()
	select {
	case <-copied:
		return
	case <-held.C:
	}
	if p.stderrPipe.SetReadDeadline(time.Unix(1, 0)) != nil {
		return
	}
	blocked := time.NewTimer(blockedWait)
	defer blocked.Stop()
	select {
	case <-copied:
	case <-blocked.C:
	}
}

func (p *child) signal(s signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		signalGroup(p.cmd, s)
	}
}

func (p *child) Read(b []byte) (int, error)  { return p.stdout.Read(b) }
func (p *child) Write(b []byte) (int, error) { return p.stdin.Write(b) }

// SetReadDeadline ends a Read that waits.
func (p *child) SetReadDeadline(t time.Time) error { return p.stdout.SetReadDeadline(t) }

func (p *child) files() (in, out *os.File) { return p.stdout, p.stdin }

// Close ends the child.
func (p *child) Close() error {
	// The output stays open until the exit: a child that still writes should not
	// fail of it.
	if p.stdout.SetReadDeadline(time.Unix(1, 0)) != nil {
		closeAll(p.stdout)
	}
	err := p.stop()
	closeAll(p.stdout)
	return err
}

func closeAll(files ...io.Closer) {
	for _, f := range files {
		f.Close()
	}
}

func (p *child) stop() error {
	p.stopping.Do(func() {
		closeAll(p.stdin)
		for _, s := range []signal{terminate, kill} {
			if p.wait(p.grace) {
				return
			}
			p.signal(s)
		}
		if !p.wait(max(p.grace, killWait)) {
			p.stopErr = fmt.Errorf("%s (process %d) does not end, though it was killed", p.name,
				p.cmd.Process.Pid)
		}
	})
	return p.stopErr
}

// wait waits for the exit, at most as long as d.
func (p *child) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// ended makes the error of Read. A child that has closed its output is of no
// use any more: it is stopped.
func (p *child) ended(cause error) error {
	if !errors.Is(cause, io.EOF) {
		return fmt.Errorf("stream: read from %s: %w", p.name, cause)
	}
	if err := p.stop(); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	return p.exitError()
}

// exitError tells how the child has ended, once waitErr is set.
func (p *child) exitError() *ExitError {
	e := &ExitError{
		Name: p.name, State: p.cmd.ProcessState, Stderr: p.stderr.String(),
		cause: p.waitErr,
	}
	if e.State.Success() {
		e.cause = errExit0
	}
	return e
}

// lastBytes keeps the last bytes that were written to it and passes all on.
type lastBytes struct {
	next io.Writer

	mu  sync.Mutex
	buf []byte
}

// Write never fails: the child would find its standard error broken.
func (l *lastBytes) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.buf = append(l.buf, p[max(0, len(p)-stderrTail):]...)
	if over := len(l.buf) - stderrTail; over > stderrTail {
		l.buf = append(l.buf[:0], l.buf[over:]...)
	}
	l.mu.Unlock()
	if l.next != nil {
		_, _ = l.next.Write(p)
	}
	return len(p), nil
}

func (l *lastBytes) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf[max(0, len(l.buf)-stderrTail):])
}

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
		return nil, errors.New(
			"stream: Run needs the command's Stdin and Stdout for itself; leave them nil")
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
	output, err = p.output(most, leftover)
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

// output reads what the child writes until its exit, and what others write so long afterwards.
func (p *child) output(most int, leftover time.Duration) ([]byte, error) {
	var b []byte
	last := false // what was left is read
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := p.stdout.Read(b[len(b):cap(b)])
		if last && errors.Is(err, os.ErrDeadlineExceeded) {
			n, err = readNow(p.stdout, b[len(b):cap(b)])
			if n == 0 {
				err = io.EOF
			}
		}
		b = b[:len(b)+n]
		switch {
		case len(b) > most:
			return nil, ErrTooMuchOutput
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			last = true
			<-p.exited // it has set the deadline; what the child wrote may not have been read
			_ = p.stdout.SetReadDeadline(time.Now().Add(leftover))
		case errors.Is(err, io.EOF):
			return b, nil
		default:
			return nil, fmt.Errorf("stream: read from %s: %w", p.name, err)
		}
	}
}

// Stdio returns a transport over the standard input and output of this process.
// It takes both over: nothing else may read or write them, and Close closes
// them.
//
// Close unblocks a Read where standard input is a pipe or a socket on unix, and
// on linux also where it is a terminal. A Read of anything else that can keep
// its reader waiting, such as a console on windows, returns with the next input.
func Stdio(framing Framing, o *Options) farcall.Transport {
	in, out := standardFiles()
	return New(&stdio{in, out}, framing, o)
}

type stdio struct{ in, out *os.File }

func (s *stdio) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *stdio) Write(p []byte) (int, error) { return s.out.Write(p) }

// ended tells the end of the input from the end of the connection: a program that closes standard
// input may wait for the answers (printf … | program).
func (s *stdio) ended(cause error) error {
	if errors.Is(cause, io.EOF) {
		return inputEndError{}
	}
	return fmt.Errorf("stream: read: %w", cause)
}

// An inputEndError is io.EOF of an input while the output is open.
type inputEndError struct{}

func (inputEndError) Error() string { return io.EOF.Error() }

// Unwrap returns io.EOF.
func (inputEndError) Unwrap() error { return io.EOF }

// HalfClosed says that the other end may still read: see farcall.Transport.
func (inputEndError) HalfClosed() bool { return true }

func (s *stdio) Close() error {
	var errs []error
	for _, f := range []*os.File{s.in, s.out, os.Stdin, os.Stdout} {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// SetReadDeadline fails where standard input cannot be interrupted.
func (s *stdio) SetReadDeadline(t time.Time) error { return s.in.SetReadDeadline(t) }

func (s *stdio) files() (in, out *os.File) { return s.in, s.out }

var _ io.ReadWriteCloser = (*stdio)(nil)
