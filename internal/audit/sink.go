package audit

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	flushAfter = 250 * time.Millisecond // that lines are collected for one write
	earlyBytes = 256 << 10              // that are written at once
	retryAfter = 200 * time.Millisecond // when it has failed
	tidyEvery  = 10 * time.Minute       // while nothing is written
	spareBytes = 4 << 20                // of a buffer that is kept

	refusalPart = 64 // of a buffer one part is for refusals
)

// A Sink takes the lines of a [Log]: a file, a log server. One goroutine calls its methods, which
// may block: the other sinks of the Log do not wait for it.
type Sink interface {
	// Write takes whole lines, in their order, and returns how many bytes it has taken. What it has
	// not taken comes again, with the error reported to the operator. An error that is [ErrFull] takes
	// the sink out of the count of those that work until a Write returns another one, or none, and one
	// that is [ErrLow] for refusals only. Without lines it has time to tidy up, and says whether it is
	// full.
	Write(lines []byte) (n int, err error)
	// Close ends the sink, after all that could be written.
	Close() error
}

// stderr is the sink of FILE "-", which is not closed.
type stderr struct{ io.Writer }

func (s stderr) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return s.Writer.Write(p)
}

// Close does nothing.
func (stderr) Close() error { return nil }

// An outlet is a sink with the lines that wait for it.
type outlet struct {
	l    *Log
	sink Sink
	file *file         // the sink, if the store of the log is of it
	wake chan struct{} // something is in queue
	done chan struct{} // the writer has ended

	// Under the lock of the log:
	queue  []byte
	held   int    // bytes of queue, and of what the writer has taken out of it
	missed uint64 // lines that it had no room for, while another sink had
	full   bool
	low    bool
	err    error // of the last attempt to write
}

func newOutlet(l *Log, s Sink) *outlet {
	o := &outlet{l: l, sink: s, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if f, ok := s.(*file); ok && f.regular {
		o.file = f
	}
	return o
}

// start writes what is there already, so that a sink that is full is known to be, and has a
// goroutine go on.
func (o *outlet) start() {
	o.l.mu.Lock()
	rest := o.queue
	o.queue = nil
	o.l.mu.Unlock()
	rest = o.flush(rest)
	go o.run(rest)
}

// room returns why there is none for n bytes about a call of an owner. The log is locked.
func (o *outlet) room(who owner.Key, n int, refusal bool) error {
	if o.file != nil {
		if err := o.l.store.fits(who, n, o.held+o.l.open*outcomeRoom); err != nil {
			o.ring() // there may be room when it looks again
			return err
		}
	}
	switch {
	case o.full:
		return o.err
	case o.low && refusal:
		return ErrLow
	case refusal && o.held+n > o.l.opts.Buffer/refusalPart:
		// so many may come before it is known that a store is low
		return errBuffer
	case o.held+n <= o.l.opts.Buffer:
		return nil
	case o.err != nil:
		return fmt.Errorf("%w: %w", errBuffer, o.err)
	}
	return errBuffer
}

// put takes a line, where there is room or it must. The log is locked.
func (o *outlet) put(line []byte, must bool) bool {
	if o.held+len(line) > o.l.opts.Buffer && !must {
		o.missed++
		return false
	}
	before := len(o.queue)
	o.queue = append(o.queue, line...)
	o.held += len(line)
	if before == 0 || before < earlyBytes && len(o.queue) >= earlyBytes {
		o.ring()
	}
	return !o.full
}

// ring wakes the writer. The log is locked, and not closed.
func (o *outlet) ring() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// shut has the writer end. The log is locked.
func (o *outlet) shut() { close(o.wake) }

// run is the writer.
func (o *outlet) run(rest []byte) {
	defer close(o.done)
	var spare []byte
	for open := true; open; {
		o.l.mu.Lock()
		waiting, again := len(o.queue) > 0, len(rest) > 0 || o.full
		o.l.mu.Unlock()
		switch {
		case again:
			open = o.pause(retryAfter)
		case waiting:
			open, _ = o.wait(flushAfter) // lets lines come, or until there are many
		default:
			var idle bool
			if open, idle = o.wait(tidyEvery); open && !idle {
				open, _ = o.wait(flushAfter)
			}
		}
		if len(rest) > 0 {
			if rest = o.flush(rest); len(rest) > 0 {
				continue
			}
		}
		if cap(spare) > spareBytes {
			spare = nil
		}
		o.l.mu.Lock()
		rest, o.queue = o.queue, spare[:0]
		o.l.mu.Unlock()
		spare = rest
		rest = o.flush(rest)
	}
	if err := o.sink.Close(); err != nil {
		o.l.mu.Lock()
		o.err = err
		o.l.mu.Unlock()
	}
}

// wait waits until it is woken, or for so long.
func (o *outlet) wait(d time.Duration) (open, idle bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case _, open = <-o.wake:
		return open, false
	case <-timer.C:
		return true, true
	}
}

// pause waits, but for Close.
func (o *outlet) pause(d time.Duration) (open bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case _, open = <-o.wake:
			if !open {
				return false
			}
		case <-timer.C:
			return true
		}
	}
}

// flush writes and returns what could not be written.
func (o *outlet) flush(p []byte) (rest []byte) {
	n, err := o.sink.Write(p)
	o.l.mu.Lock()
	o.held -= n
	if o.file != nil {
		o.l.store.report(o.file.used, n)
	}
	if low := errors.Is(err, ErrLow); low {
		if o.low {
			err = nil // that was reported
		}
		o.low, o.full, o.err = true, false, nil
	} else if len(p) > 0 || err != nil || o.full || o.low { // tidying up mends nothing else
		o.err, o.full, o.low = err, errors.Is(err, ErrFull), false
	}
	missed := o.missed
	if err == nil {
		o.missed = 0
	}
	o.l.mu.Unlock()
	switch {
	case err != nil:
		o.l.fault(err)
	case missed > 0:
		o.l.fault(fmt.Errorf("audit: a sink works again; %d lines are in the others only", missed))
	}
	return p[n:]
}

// left returns what could not be written, after the writer has ended.
func (o *outlet) left() error {
	o.l.mu.Lock()
	defer o.l.mu.Unlock()
	if o.held > 0 {
		return fmt.Errorf("audit: %d bytes of lines could not be written: %w", o.held, o.err)
	}
	if errors.Is(o.err, ErrFull) {
		return nil // what was taken is written
	}
	return o.err
}

// Backlog returns how many bytes wait for the sink that is furthest behind.
func (l *Log) Backlog() (bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.outlets {
		bytes = max(bytes, o.held)
	}
	return bytes
}

const (
	// ownerRatio leaves a tenth of a store to others than the owner that has most of it.
	ownerRatio = 9
	// maxAccounts bounds the owners with bytes that are counted.
	maxAccounts = 10_000

	sealRoom    = 160 // bytes of a seal
	outcomeRoom = 400 // of the line of an outcome
	eventRoom   = 1000
)

// errShare is ErrFull for one owner.
var errShare = fmt.Errorf("%w for a caller that has written most of it: others can still call; "+
	"give callers rates, move old files away, or raise keep or max_size", ErrFull)

// A store counts the bytes of a file and of those before it, and how many of them each owner has
// written. It is under the lock of the log.
//
// The invariant: what is on disk, what waits to be written, and the outcomes that calls will have
// are no more than the total, but for a line of each file that did not fit at its end. An owner
// that holds something has at most ownerRatio times what is free then, so that there always is room
// for another one.
//
// It is not known who has written what a process before this one has.
type store struct {
	bounds   share.Bounds // Total 0: there is no bound
	used     int          // on disk, after the last write
	accounts map[owner.Key]int
}

// limit sets the bounds.
func (s *store) limit(b bounds) {
	s.bounds = share.Bounds{Ratio: ownerRatio}
	if !b.rotate {
		s.bounds.Total = int(min(float64(b.max)*(float64(b.keep)+1), math.MaxInt/2))
	}
}

// fits returns why there is no room for n bytes of an owner, while so many bytes of all owners wait
// to be written; nil when there is.
func (s *store) fits(o owner.Key, n, waiting int) error {
	b, used := s.bounds, s.used+waiting+eventRoom
	switch {
	case b.Total == 0:
		return nil
	case n > b.Total-used:
		return fmt.Errorf("%w: %d bytes of %d are written or wait", ErrFull, s.used+waiting, b.Total)
	case !o.IsZero() && !b.Allows(s.accounts[o.Group()], used, n):
		return errShare
	}
	return nil
}

// charge counts what an owner will have in the store.
func (s *store) charge(o owner.Key, n int) {
	if o = o.Group(); o.IsZero() {
		return
	}
	if _, known := s.accounts[o]; !known && len(s.accounts) >= maxAccounts {
		s.forget()
	}
	if s.accounts == nil {
		s.accounts = map[owner.Key]int{}
	}
	s.accounts[o] += n
}

// forget drops the accounts of those who have little: at least half of them.
func (s *store) forget() {
	all := 0
	for _, n := range s.accounts {
		all += n
	}
	for o, n := range s.accounts {
		if n <= 2*all/maxAccounts {
			delete(s.accounts, o)
		}
	}
}

// report takes what is on disk after n bytes were written. When files have gone, each owner has as
// much less as the store.
func (s *store) report(used, n int) {
	before := s.used + n
	s.used = used
	if used >= before {
		return
	}
	for o, had := range s.accounts {
		if left := int(float64(had) * float64(used) / float64(before)); left > 0 {
			s.accounts[o] = left
		} else {
			delete(s.accounts, o)
		}
	}
}
