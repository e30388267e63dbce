// Package supervise answers one question: are the children alive, and is none
// left behind?
//
// A [Supervisor] starts child processes of one command and speaks to each over
// its standard input and output. It knows what they last said to their standard
// error, how they ended and when the next one may be started.
//
// # No process is left
//
// A child leads its own process group. When its transport is closed, its
// standard input is closed; after the grace the group gets SIGTERM, and after as
// long again SIGKILL. When the child ends on its own, its group is killed.
//
// A process that has left the group, because it began its own session, is
// found by the variable FARCALL_CHILD in its environment, which children
// inherit, and is killed when the child has ended (linux). What is meant to
// outlive the child has to be started without that variable.
//
// When this process dies, by SIGKILL too, the kernel kills the children (linux),
// and a [Guard] kills their groups and what has left them.
package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/stream"
)

const (
	shortLife  = 10 * time.Second       // who ends earlier has failed to start
	orphanWait = 250 * time.Millisecond // for standard error that another holds open
	tailLines  = 100
	tailBytes  = 16 << 10
	sampleSize = 256 // of garbage
)

// ErrClosed is what Start fails with once Close was called.
var ErrClosed = errors.New("supervise: the supervisor is closed")

// Command is what is started.
type Command struct {
	Path string          // of the program; looked up in PATH when it has no slash
	Name string          // of the program in errors, and its first argument; "": the path
	Args []string        // without the program's name
	Late func() []string // the Args of a start, asked for at each; nil: Args
	Env  []string        // complete; nil: none but FARCALL_CHILD, which is always added
	Dir  string          // "": the current one

	Framing    stream.Framing
	Grace      time.Duration // see stream.Options.Grace
	MaxMessage int           // see stream.Options.MaxMessage
	// FrameTimeout: see stream.Options.FrameTimeout.
	FrameTimeout time.Duration
	Budget       *farcall.Budget
}

// Options adjust a Supervisor. Nil and the zero value mean the defaults.
type Options struct {
	// Name of the command in errors and logs. Default the program's.
	Name string
	// OnGarbage receives what a child has written that is no JSON-RPC message: a
	// line, or its first 256 bytes. It runs in the goroutine that reads and must
	// neither block nor keep the line.
	OnGarbage func(line []byte)
	// OnExit is called once for each child that it has ended: nil when its
	// transport was closed, otherwise a *stream.ExitError. It must not block.
	OnExit func(err error)
	// OnRestart is called when a child was started in place of one that had ended on its own. It must
	// not block.
	OnRestart func()
	// MinDelay and MaxDelay bound the delay before the next start. Default
	// 100 ms and 30 s.
	MinDelay, MaxDelay time.Duration
	// Never refuses each start after a child has ended on its own.
	Never bool
	// Guard is shared with other supervisors. Default a separate one.
	Guard *Guard
	// Logger gets exits and garbage; it knows the name. Default none.
	Logger *slog.Logger
}

// A Supervisor starts children of one command and knows about all of them. Its
// methods may be called by any number of goroutines at once.
type Supervisor struct {
	cmd   Command
	opts  Options
	guard *Guard
	own   bool // the guard is closed with the supervisor
	tail  tail

	garbage atomic.Uint64
	calls   sync.WaitGroup // of Start

	mu          sync.Mutex
	closed      bool
	running     map[*child]struct{}
	starts      uint64
	restarts    uint64
	owed        uint64 // children that have ended on their own and were not replaced
	causes      [Causes]uint64
	owedFor     Cause // of the last of owed
	failures    int   // in a row
	failed      time.Time
	next        time.Time // no start before
	lastExit    string
	lastLines   []string // replaced, never changed
	lastGarbage string
	since       time.Time
}

// New returns a supervisor that has started nothing yet.
func New(c Command, o *Options) *Supervisor {
	s := &Supervisor{
		cmd: c, running: make(map[*child]struct{}),
		tail: tail{maxLines: tailLines, maxBytes: tailBytes},
	}
	if o != nil {
		s.opts = *o
	}
	s.opts.Name = cmp.Or(s.opts.Name, filepath.Base(c.Path))
	s.opts.Logger = cmp.Or(s.opts.Logger, slog.New(slog.DiscardHandler))
	if s.opts.MinDelay <= 0 {
		s.opts.MinDelay = 100 * time.Millisecond
	}
	if s.opts.MaxDelay <= 0 {
		s.opts.MaxDelay = 30 * time.Second
	}
	s.opts.MaxDelay = max(s.opts.MinDelay, s.opts.MaxDelay)
	if s.guard = s.opts.Guard; s.guard == nil {
		s.guard, s.own = NewGuard(s.opts.Logger), true
	}
	return s
}

// Start starts a child. It does not wait for it to say anything. The transport
// passes over all that is no JSON-RPC message; its Close ends the child and waits
// for that. The context bounds the start only.
//
// After a child that lived less than 10 s the next one may be started at once,
// but after each further one in a row only after a delay, which doubles; Start
// fails with a *[DelayError] before.
//
// When the child ends, the transport's Read returns what the child said before,
// and then a *stream.ExitError; see [Reason].
func (s *Supervisor) Start(ctx context.Context) (farcall.Transport, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	s.guard.ready()
	c := &child{s: s, exited: make(chan struct{})}
	args := s.cmd.Args
	if s.cmd.Late != nil {
		args = s.cmd.Late()
	}
	cmd := exec.Command(s.cmd.Path, args...) //nolint:noctx,gosec // it outlives ctx, and to run it is what was asked for
	c.cookie = s.guard.cookie()              // names the child in its environment
	cmd.Env = append(append(make([]string, 0, len(s.cmd.Env)+1), s.cmd.Env...), c.cookie)
	cmd.Dir = s.cmd.Dir
	if s.cmd.Name != "" {
		cmd.Args[0] = s.cmd.Name
	}
	cmd.Stderr = &c.stderr
	cmd.WaitDelay = orphanWait
	c.stderr.tail = &s.tail
	c.started = time.Now()
	t, err := stream.Command(cmd, s.cmd.Framing, &stream.Options{
		MaxMessage: s.cmd.MaxMessage, FrameTimeout: s.cmd.FrameTimeout, Budget: s.cmd.Budget,
		Grace: s.cmd.Grace, Skip: c.skip, OnExit: c.onExit,
	})
	if err != nil {
		return nil,
			fmt.Errorf(
				"supervise: %s: %w; see that the program is installed, and that its path and "+
					"directory are right", s.opts.Name, err)
	}
	c.t, c.process = t, cmd.Process
	if !s.began(c, cmd.Process.Pid) {
		return nil, errors.Join(ErrClosed, c.Close())
	}
	return c.transport(), nil
}

// enter says whether a child may be started now. Then calls.Done is owed.
func (s *Supervisor) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("supervise: %s was not started: %w", s.opts.Name, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.opts.Never && s.owed > 0:
		return fmt.Errorf("supervise: %s has ended and is not to be started again: %s", s.opts.Name,
			s.lastExit)
	case time.Now().Before(s.next):
		return &DelayError{
			Name: s.opts.Name, Next: s.next, Failures: s.failures, LastExit: s.lastExit,
			Stderr: s.lastLines,
		}
	}
	s.calls.Add(1)
	return nil
}

// began registers a child, unless the supervisor was closed.
func (s *Supervisor) began(c *child, pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
	if s.owed > 0 {
		s.owed--
		s.restarts++
		s.causes[s.owedFor]++
		if s.opts.OnRestart != nil {
			s.opts.OnRestart()
		}
	}
	s.since = c.started
	if !c.ended {
		c.pid = pid
		s.running[c] = struct{}{}
		s.guard.add(pid)
	}
	return !s.closed
}

// ended takes a child out of the table.
func (s *Supervisor) ended(c *child, e *stream.ExitError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ended = true
	if c.pid != 0 {
		delete(s.running, c)
		s.guard.remove(c.pid)
	}
	if c.closing.Load() {
		return
	}
	s.lastExit, s.lastLines = Reason(e), LastLines(e)
	s.owed, s.owedFor = s.owed+1, causeOf(e)
	now := time.Now()
	switch {
	case now.Sub(c.started) >= shortLife:
		s.failures, s.next = 0, time.Time{}
	case !c.started.Before(s.failed): // of those that fail together one counts
		s.failures++
		s.failed = now
		s.next = now
		if s.failures > 1 { // the first one costs nothing
			s.next = now.Add(backoff.Delay(s.failures-1, s.opts.MinDelay, s.opts.MaxDelay))
		}
	}
}

// DelayError is what Start fails with while the next start has to wait.
type DelayError struct {
	Name     string
	Next     time.Time // a start may succeed then
	Failures int       // in a row
	LastExit string    // of the last
	Stderr   []string  // its last lines, as LastLines tells them
}

func (e *DelayError) Error() string {
	return fmt.Sprintf(
		"supervise: %s has ended soon after its start %d times in a row; the next start may be in %v; %s",
		e.Name, e.Failures, max(0, time.Until(e.Next)).Round(time.Millisecond), e.LastExit)
}

// Stats tell how the children fare.
type Stats struct {
	Running     int
	PIDs        []int
	Starts      uint64
	Restarts    uint64         // starts that replaced a child which had ended on its own
	Causes      [Causes]uint64 // of Restarts, by how the child had ended
	Delayed     int            // 1: the next start has to wait
	Garbage     uint64         // what was no message, in lines
	LastGarbage string         // fit to be shown
	LastExit    string         // of the last child that has ended on its own, as Reason tells it
	// what the children said last, at most 100 lines and 16 KB, fit to be shown
	LastStderr []string
	Since      time.Time // the newest child was started
	Next       time.Time // no start before; may be past
}

// Stats returns how the children fare now.
func (s *Supervisor) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Running: len(s.running), Starts: s.starts, Restarts: s.restarts, Causes: s.causes,
		Garbage: s.garbage.Load(), LastGarbage: s.lastGarbage,
		LastExit: s.lastExit, LastStderr: s.tail.last(), Since: s.since, Next: s.next,
	}
	if time.Now().Before(s.next) {
		st.Delayed = 1
	}
	for c := range s.running {
		st.PIDs = append(st.PIDs, c.pid)
	}
	return st
}

// Close ends all children and waits for it: SIGKILL comes after twice the grace.
// No child can be started any more.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait() // they see that it is closed
	s.mu.Lock()
	errs := make(chan error, len(s.running))
	n := len(s.running)
	for c := range s.running {
		go func() { errs <- c.Close() }()
	}
	s.mu.Unlock()
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	if s.own {
		s.guard.Close()
	}
	return errors.Join(all...)
}

// Kill kills all children at once, while Close waits for example. No child can be
// started any more.
func (s *Supervisor) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.running {
		_ = c.process.Kill() // its group follows; an error says that it has ended
	}
}

var _ io.Closer = (*Supervisor)(nil)
