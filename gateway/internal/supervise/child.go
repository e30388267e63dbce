package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/beginning"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/stream"
)

const (
	maxDepth = 512             // as deep as messages may be
	dying    = 3 * time.Second // may pass between a child's last read and its exit
)

// child is a child process and its transport.
type child struct {
	s       *Supervisor
	t       farcall.Transport
	cookie  string
	started time.Time
	stderr  lines
	closing atomic.Bool
	exited  chan struct{} // closed when it has ended
	process *os.Process

	// Under the supervisor's lock.
	pid   int
	ended bool
}

// onExit runs when the child was reaped and its group was killed.
func (c *child) onExit(e *stream.ExitError) {
	c.stderr.flush()
	left := sweep(c.cookie)
	c.s.ended(c, e)
	close(c.exited)
	log := c.s.opts.Logger.With("pid", e.State.Pid(), "lived",
		time.Since(c.started).Round(time.Millisecond))
	if left > 0 {
		log.Warn("processes that the child had started outside its group were killed", "count", left)
	}
	var err error
	if c.closing.Load() {
		log.Debug("a child has ended", "state", e.State)
	} else {
		err = e
		log.Warn("a child has ended on its own", "reason", Reason(e))
	}
	if c.s.opts.OnExit != nil {
		c.s.opts.OnExit(err)
	}
}

// skip passes over what is no message.
func (c *child) skip(p []byte, whole bool) bool {
	sample := p[:min(len(p), sampleSize)]
	if whole && isMessage(p) || !whole && isAnswer(sample) {
		return false
	}
	text := printable(string(sample))
	if !whole {
		text = "(too long) " + text
	}
	s := c.s
	first := s.garbage.Add(1) == 1
	s.mu.Lock()
	s.lastGarbage = text
	s.mu.Unlock()
	if first { // a flood of it must not become a flood of logs
		s.opts.Logger.Warn(
			"a child has written something to its standard output that is no JSON-RPC message; it should "+
				"go to standard error", "text", text)
	}
	if s.opts.OnGarbage != nil {
		s.opts.OnGarbage(slices.Clip(sample))
	}
	return true
}

// isAnswer reports whether what begins so is an answer: the call that waits for it learns that it
// is too large.
func isAnswer(begins []byte) bool {
	return bytes.Contains(begins, []byte(`"jsonrpc"`)) && beginning.Of(begins).Answer
}

// largeMessage is from when on isMessage does not validate: a result of 50 MB is read once, by the
// peer.
const largeMessage = 64 << 10

// isMessage reports whether p is JSON and has the members that messages have. A
// batch has an object first. More is for the peer to say, which answers what it
// refuses, and whether one that is large is valid: here it only has to be whole.
func isMessage(p []byte) bool {
	i := scan.Space(p, 0)
	if i < len(p) && p[i] == '[' {
		i = scan.Space(p, i+1)
	}
	if i >= len(p) || p[i] != '{' {
		return false
	}
	if len(p) >= largeMessage {
		if last := bytes.TrimRight(p, " \t\r\n"); last[len(last)-1] != '}' && last[len(last)-1] != ']' {
			return false
		}
	} else if _, f := scan.Text(p, maxDepth); f != scan.OK {
		return false
	}
	for key := range scan.Beginning(p[i:]) {
		switch string(key) {
		case "jsonrpc", "id", "method": // without the first in JSON-RPC 1.0
			return true
		}
	}
	return false
}

// Read returns the next message.
func (c *child) Read() ([]byte, error) { return c.t.Read() }

// Write writes messages. A child that has ended gets nothing, and Read tells
// how it ended, after what it said before.
func (c *child) Write(frames ...[]byte) error { return c.unread(c.t.Write(frames...)) }

// unread makes the error of a write. A child that reads no more, or with an output that
// has ended, has most often ended, which is known a moment later.
func (c *child) unread(err error) error {
	ended := (*stream.ExitError)(nil)
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, farcall.ErrClosed) &&
		!errors.As(err, &ended) || c.closing.Load() {
		return err
	}
	timer := time.NewTimer(dying)
	defer timer.Stop()
	select {
	case <-c.exited:
		return nil
	case <-timer.C:
		return fmt.Errorf("supervise: %s has closed its standard input: %w", c.s.opts.Name, err)
	}
}

// Close ends the child.
func (c *child) Close() error {
	c.closing.Store(true)
	if err := c.t.Close(); err != nil {
		return fmt.Errorf("supervise: %w", err)
	}
	return nil
}

// keepingChild is a child with a transport that reuses its memory.
type keepingChild struct {
	*child
	keeper   farcall.Keeper
	buffered farcall.Buffered
}

// tryChild is one that can be written to without blocking, too.
type tryChild struct {
	keepingChild
	try farcall.TryWriter
}

var (
	_ farcall.Transport = (*tryChild)(nil)
	_ farcall.Keeper    = (*tryChild)(nil)
	_ farcall.Buffered  = (*tryChild)(nil)
	_ farcall.TryWriter = (*tryChild)(nil)
)

// Keep leaves the memory of the last message alone.
func (c *keepingChild) Keep() { c.keeper.Keep() }

// Buffered reports whether there is a message already.
func (c *keepingChild) Buffered() bool { return c.buffered.Buffered() }

// TryWrite writes what the child's pipe has room for.
func (c *tryChild) TryWrite(frames ...[]byte) (done bool, err error) {
	done, err = c.try.TryWrite(frames...)
	if err != nil {
		err = c.unread(err)
		done = err == nil
	}
	return done, err
}

// transport returns the child with what its transport can also do.
func (c *child) transport() farcall.Transport {
	keeper, keeps := c.t.(farcall.Keeper)
	buffered, buffers := c.t.(farcall.Buffered)
	try, tries := c.t.(farcall.TryWriter)
	k := keepingChild{c, keeper, buffered}
	switch {
	case keeps && buffers && tries:
		return &tryChild{k, try}
	case keeps && buffers:
		return &k
	default:
		return c
	}
}

const (
	maxLine     = 1 << 10
	reasonLines = 20
)

// Reason tells how a child has ended, with the last lines of its standard error,
// fit to be shown. It is "" for an error without a *stream.ExitError in it.
func Reason(err error) string {
	e, ok := errors.AsType[*stream.ExitError](err)
	if !ok {
		return ""
	}
	state := "exit status 0"
	if e.State != nil {
		state = e.State.String()
	}
	said := LastLines(err)
	if len(said) == 0 {
		return fmt.Sprintf("%s ended: %s; it wrote nothing to its standard error",
			printable(e.Name), state)
	}
	return fmt.Sprintf("%s ended: %s; its standard error ends with:\n%s", printable(e.Name), state,
		strings.Join(said, "\n"))
}

// LastLines returns the last lines, 20 at most, that the child of a *stream.ExitError or of
// a *[DelayError] has written to its standard error, fit to be shown.
func LastLines(err error) []string {
	if wait, ok := errors.AsType[*DelayError](err); ok {
		return wait.Stderr
	}
	e, ok := errors.AsType[*stream.ExitError](err)
	if !ok {
		return nil
	}
	t := tail{maxLines: reasonLines, maxBytes: tailBytes}
	l := lines{tail: &t}
	_, _ = l.Write([]byte(e.Stderr))
	l.flush()
	return t.last()
}

// tail keeps the last lines of several writers.
type tail struct {
	maxLines, maxBytes int

	mu    sync.Mutex
	kept  []string // raw, the oldest first, from drop on
	drop  int
	bytes int
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, line)
	t.bytes += len(line)
	for len(t.kept)-t.drop > t.maxLines || t.bytes > t.maxBytes {
		t.bytes -= len(t.kept[t.drop])
		t.kept[t.drop] = ""
		t.drop++
	}
	if t.drop > t.maxLines {
		t.kept = append(t.kept[:0], t.kept[t.drop:]...)
		t.drop = 0
	}
}

// last returns the lines, fit to be shown.
func (t *tail) last() []string {
	t.mu.Lock()
	kept := slices.Clone(t.kept[t.drop:])
	t.mu.Unlock()
	for i, line := range kept {
		kept[i] = printable(line)
	}
	return kept
}

// lines cuts what one child writes into lines.
type lines struct {
	tail *tail

	mu   sync.Mutex
	rest []byte // the first bytes of a line with an end that has not come
	over bool   // that line is longer
}

// Write never fails.
func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		i := bytes.IndexAny(p, "\r\n") // a progress bar ends its lines with the first
		if i < 0 {
			l.keep(p)
			return n, nil
		}
		l.keep(p[:i])
		l.cut()
		p = p[i+1:]
	}
}

func (l *lines) keep(p []byte) {
	room := maxLine - len(l.rest)
	l.over = l.over || len(p) > room
	l.rest = append(l.rest, p[:min(len(p), room)]...)
}

// cut ends a line. Blank ones say nothing.
func (l *lines) cut() {
	if len(bytes.TrimSpace(l.rest)) > 0 {
		line := string(l.rest)
		if l.over {
			line += "…"
		}
		l.tail.add(line)
	}
	l.rest, l.over = l.rest[:0], false
}

func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut()
}

// printable makes a line of a child fit to be shown: see visible.Log.
func printable(s string) string {
	return strings.NewReplacer("\t", " ", "\n",
		" ").Replace(visible.Log(strings.TrimRight(s, " \t\r\n")))
}

// Cause is how a child has ended on its own.
type Cause uint8

// The causes.
const (
	Exited Cause = iota // with the status 0
	Failed              // with another status
	Killed              // by a signal
	Causes              // how many there are
)

func (c Cause) String() string { return [...]string{"exited", "failed", "killed"}[c] }

func causeOf(e *stream.ExitError) Cause {
	switch {
	case e.State == nil || e.State.Success():
		return Exited
	case e.State.Exited():
		return Failed
	}
	return Killed
}
