// Package audit answers one question: what was decided, and what became of it?
//
// A [Log] writes a line of JSON for each decision before the call proceeds, and another for its
// outcome. Repeated refusals of one owner are folded into one line. Each line is sealed: it bears a
// number and the hash of the line before it, so that [Verify] finds what is missing or was changed.
// No caller can forge a line, and secrets are masked.
//
// The lines go to one [Sink] or more. A call may proceed when at least one of them takes its line.
// Lines wait in a buffer of [Options.Buffer] for a sink that is slow or fails; they are lost when
// the process is killed.
package audit

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	defaultSize    = 100_000_000
	defaultKeep    = 100
	defaultKeepFor = 90 * 24 * time.Hour
	defaultBuffer  = 16 << 20
)

// ErrFull is the error of a [Sink] without room. While each sink is full, calls are refused. ErrLow
// is that of one with little room: what is left is for calls that are allowed, and refusals are
// counted only, so that they cannot fill a store.
var (
	ErrFull = errors.New("audit: the store is full")
	ErrLow  = errors.New("audit: the store is almost full")
)

var (
	errBuffer = errors.New("audit: the buffer is full: the sink fails, or is too slow")
	errClosed = errors.New("audit: the log is closed")
)

// Options adjust a Log.
type Options struct {
	// File takes the lines, with mode 0600; "-" is Stderr, "" nothing. Stderr is os.Stderr by default.
	File   string
	Stderr io.Writer
	// Sinks take the lines as well, each in its own goroutine. The Log closes them.
	Sinks []Sink
	// Key, when it is not empty, makes each hash an HMAC with it, so that only its holders can
	// make lines. At least 32 bytes.
	Key []byte
	// MaxSize of a file in bytes, 100 MB by default. A file that would become larger is renamed to
	// FILE.1, that to FILE.2, and so on. Keep is how many of these there may be, 100 by default, none
	// when negative. KeepFor is for how long they are kept, 90 days by default.
	MaxSize int64
	Keep    int
	KeepFor time.Duration
	// Rotate deletes the oldest file when there are more than Keep, or the disk is full. Default: the
	// store is full then, and calls are refused, until a file is older than KeepFor or was moved away.
	Rotate bool
	// Params writes the params down, redacted: see Redact.
	Params bool
	Redact []string
	// Buffer bounds the bytes that wait for a sink, 16 MiB by default.
	Buffer int
	// OnFault receives failures of sinks and warnings, at most once a second. It may be called by any
	// goroutine and must not block. Default: only those who get errors see them.
	OnFault func(error)
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// An Entry is a decision. What is empty is left out.
type Entry struct {
	Time time.Time // now by default
	// Principal is the id of the caller and Kind its kind; Method is how it was authenticated, and
	// Issuer who vouches for it. Address and Transport are where the call came from.
	Principal, Kind, Method, Issuer string
	Address, Transport              string
	// Roles and Scopes are those that the principal had. Nil is left out, and an empty one is written:
	// there were none.
	Roles, Scopes []string
	// Call is what was called, in Upstream.
	Call, Upstream string
	// Decision is "allowed", "denied", "limited" or "refused", by Policies and for a Reason.
	Decision string
	Policies []string
	Reason   string
	Latency  time.Duration // of the decision
	Error    int           // the code that the caller got
	Params   []byte        // as they came; written only when Options.Params is set
}

// An Outcome is what became of a call that was allowed.
type Outcome struct {
	Of       uint64 // the number of the line with the decision
	Status   string // "ok", "error", "cancelled" …
	Error    int    // the code, 0 for none
	IsError  bool   // of the result of a tool
	Duration time.Duration
	// Request and Result are sizes in bytes: of the params and of the result. Result is negative when
	// it is not known.
	Request, Result int
	// Hooks are what was asked about the call, in order.
	Hooks []Hook
}

// A Hook is a program that was asked about a call, and what it said.
type Hook struct {
	Hook, Outcome string
	Took          time.Duration
}

// Log is where decisions are written. Its methods may be called by any number of
// goroutines at once.
type Log struct {
	opts     Options
	settings atomic.Pointer[settings]
	lines    sync.Pool // *line
	file     *file     // nil: the lines go elsewhere

	mu       sync.Mutex
	store    store // of file
	chain    chain
	outlets  []*outlet
	open     int  // calls without an outcome
	retired  bool // no decisions are taken any more
	closed   bool
	reported time.Time // when OnFault was called

	folding folding
}

// settings are the options that Adjust changes.
type settings struct {
	params bool
	rules  *rules
}

// Open opens a log. Lines are written within a second, by goroutines that Close ends.
func Open(o *Options) (*Log, error) {
	l := new(Log)
	l.opts = *cmp.Or(o, &Options{})
	l.opts.setDefaults()
	l.settings.Store(&settings{params: l.opts.Params, rules: compile(l.opts.Redact)})
	l.lines.New = func() any { return new(line) }
	l.chain = newChain(l.opts.Key)
	l.folding.seed = maphash.MakeSeed()
	l.folding.table = share.NewTable[owner.Key, *fold](share.Bounds{Total: maxFolds})
	sinks := l.opts.Sinks
	begun := event{name: "opened"}
	switch l.opts.File {
	case "":
	case "-":
		sinks = append([]Sink{stderr{l.opts.Stderr}}, sinks...)
	default:
		f := &file{path: l.opts.File, now: l.opts.Now, note: l.note}
		l.store.limit(f.limit(&l.opts))
		last, err := f.resume()
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		l.chain.resume(last.seal)
		begun.torn, begun.tornHash = last.torn, last.tornHash
		if last.line != nil && l.chain.check(last.line) != nil {
			l.fault(fmt.Errorf("audit: the last line of %s was changed, or sealed with another key",
				l.opts.File))
		}
		sinks = append([]Sink{f}, sinks...)
		l.file = f
	}
	for _, s := range sinks {
		l.outlets = append(l.outlets, newOutlet(l, s))
	}
	if len(l.outlets) == 0 {
		return l, nil
	}
	l.note(&begun)
	for _, out := range l.outlets {
		out.start()
	}
	return l, nil
}

func (o *Options) setDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Stderr = cmp.Or[io.Writer](o.Stderr, os.Stderr)
	o.MaxSize = cmp.Or(max(o.MaxSize, 0), defaultSize)
	o.Keep = cmp.Or(o.Keep, defaultKeep)
	o.KeepFor = cmp.Or(max(o.KeepFor, 0), defaultKeepFor)
	o.Buffer = cmp.Or(max(o.Buffer, 0), defaultBuffer)
}

// Adjust changes Params, Redact, MaxSize, Keep, KeepFor and Rotate of a log that goes on.
func (l *Log) Adjust(o *Options) {
	c := *o
	c.setDefaults()
	l.settings.Store(&settings{params: c.Params, rules: compile(c.Redact)})
	if l.file == nil {
		return
	}
	b := l.file.limit(&c)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store.limit(b)
}

// Write takes the decision that allows a call of an owner. It keeps nothing of the entry, and
// returns the number of its line for [Log.End]. It does not wait for a sink. An error means that
// the decision will not be written: it must not be carried out. It is [ErrFull], too, for an owner
// that has written most of a file that is not rotated.
func (l *Log) Write(o owner.Key, e *Entry) (seq uint64, err error) {
	if len(l.outlets) == 0 {
		return 0, nil
	}
	b := l.line()
	defer l.release(b)
	b.text = l.append(b.text[:0], e, &b.walker, maxText)
	if seq, err = l.decide(o, b, false); err != nil {
		l.fault(err)
	}
	return seq, err
}

// decide seals the line of a refusal, or of a call that is allowed, where a sink has room for it
// and for the outcome of the call.
func (l *Log) decide(o owner.Key, b *line, refusal bool) (seq uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.retired {
		return 0, errClosed
	}
	n := len(b.text) + sealRoom
	if !refusal {
		n += outcomeRoom
	}
	if err := l.roomLocked(o, n, refusal); err != nil {
		return 0, err
	}
	if !refusal {
		l.open++
	}
	l.store.charge(o, n)
	return l.sealLocked(b), nil
}

// Ready returns why the calls of all owners are refused: no sink has room for a decision. Nil: one
// has.
func (l *Log) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.outlets) == 0 {
		return nil
	}
	return l.roomLocked(owner.Key{}, eventRoom+sealRoom+outcomeRoom, false)
}

// End takes the outcome of a call that Write took. It is written also when the store is full, and
// is to be called once for each.
func (l *Log) End(o *Outcome) {
	if len(l.outlets) == 0 {
		return
	}
	b := l.line()
	defer l.release(b)
	b.text = appendOutcome(b.text[:0], o, l.opts.Now())
	l.put(b)
	l.mu.Lock()
	l.open--
	last := l.retired && l.open == 0 && !l.closed
	l.mu.Unlock()
	if last {
		l.shut()
	}
}

// A line is memory to make one.
type line struct {
	text   []byte
	walker walker
}

func (l *Log) line() *line {
	b, _ := l.lines.Get().(*line)
	return b
}

func (l *Log) release(b *line) {
	if cap(b.text) <= 2*maxEntry && cap(b.walker.text) <= 2*maxEntry {
		l.lines.Put(b)
	}
}

// put seals a line that needs no room, unless the log is closed: then there is nowhere to write it.
func (l *Log) put(b *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.sealLocked(b)
	}
}

// roomLocked returns why no sink has room for a decision about an owner's call, nil when one has.
func (l *Log) roomLocked(o owner.Key, n int, refusal bool) error {
	var why []error
	for _, out := range l.outlets {
		err := out.room(o, n, refusal)
		if err == nil {
			return nil
		}
		why = append(why, err)
	}
	return errors.Join(why...)
}

func (l *Log) sealLocked(b *line) (seq uint64) {
	b.text = l.chain.seal(b.text)
	taken := false
	for i := range l.outlets { // the first one last: it takes what no other has taken
		out := l.outlets[len(l.outlets)-1-i]
		if out.put(b.text, !taken && i == len(l.outlets)-1) {
			taken = true
		}
	}
	return l.chain.seq
}

// note writes what happened to the log itself.
func (l *Log) note(e *event) {
	b := l.line()
	defer l.release(b)
	b.text = e.append(b.text[:0], l.opts.Now())
	l.put(b)
}

// fault reports to the operator, once a second.
func (l *Log) fault(err error) {
	if l.opts.OnFault == nil {
		return
	}
	now := l.opts.Now()
	l.mu.Lock()
	since := now.Sub(l.reported)
	due := l.reported.IsZero() || since >= time.Second || since < 0
	if due {
		l.reported = now
	}
	l.mu.Unlock()
	if due {
		l.opts.OnFault(err)
	}
}

// Retire takes no more decisions, and has the log end when the last call that it allowed has. It
// reports whether that is now. Close waits for the end.
func (l *Log) Retire() (ended bool) {
	l.unfold()
	l.mu.Lock()
	l.retired = true
	ended = l.open <= 0
	l.mu.Unlock()
	if ended {
		l.shut()
	}
	return ended
}

// Resume has a log that is retired take decisions again. It reports false when it has ended.
func (l *Log) Resume() bool {
	l.mu.Lock()
	l.retired = l.closed
	resumed := !l.closed
	l.mu.Unlock()
	l.folding.mu.Lock()
	l.folding.ended = !resumed
	l.folding.mu.Unlock()
	return resumed
}

// shut writes the last line and has the sinks end. It reports false when that was done before.
func (l *Log) shut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	b := l.line()
	defer l.release(b)
	e := event{name: "closed", open: max(l.open, 0)}
	b.text = e.append(b.text[:0], l.opts.Now())
	l.sealLocked(b)
	l.closed = true
	for _, out := range l.outlets {
		out.shut()
	}
	return true
}

// Close writes out what waits, and closes the sinks. Its error says how much could not be written.
func (l *Log) Close() error {
	if len(l.outlets) == 0 {
		return nil
	}
	l.unfold()
	first := l.shut()
	var failed []error
	for _, out := range l.outlets {
		<-out.done
		if err := out.left(); first && err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
