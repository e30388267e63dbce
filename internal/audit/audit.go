// Package audit answers one question: what was decided?
//
// A [Log] writes a line of JSON for each decision. No caller can forge a line, and secrets are
// masked. Nothing is dropped in silence: entries wait in a buffer of [Options.Buffer] for a disk that is slow
// or full, and when that is full [Log.Write] returns an error, so that the call can be
// refused. What waits there when the process dies is lost.
package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	defaultSize   = 100_000_000
	defaultKeep   = 5
	defaultBuffer = 4 << 20
)

var (
	errFull   = errors.New("audit: the buffer is full: the file cannot be written, or not fast enough; make room on its disk")
	errClosed = errors.New("audit: the log is closed")
)

// Options adjust a Log.
type Options struct {
	// File takes the lines, with mode 0600; "-" is Stderr, "" nothing. Stderr is os.Stderr by default.
	File   string
	Stderr io.Writer
	// MaxSize of a file in bytes, 100 MB by default. A file that would become larger is renamed to FILE.1, that to
	// FILE.2, and so on to FILE.Keep, 5 by default; with a negative Keep none stays.
	MaxSize int64
	Keep    int
	// Params writes the params down, redacted: see Redact.
	Params bool
	Redact []string
	// Buffer bounds the bytes that wait to be written, 4 MiB by default.
	Buffer int
	// OnFault is told why entries are refused or cannot be written, at most once a second. It may
	// be called by any goroutine and must not block. Default: nobody is told but those who get errors.
	OnFault func(error)
	// Now is the clock, for OnFault and for entries without a time. Default time.Now.
	Now func() time.Time
}

// An Entry is a decision. What is empty is left out.
type Entry struct {
	Time time.Time // now by default
	// Principal is who called, of which Kind; Method is how that was found out, and
	// Issuer who vouches for it. Address and Transport are where the call came from.
	Principal, Kind, Method, Issuer string
	Address, Transport              string
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

// Log is where decisions are written. Its methods may be called by any number of
// goroutines at once.
type Log struct {
	opts  Options
	rules *rules
	lines sync.Pool // *line
	file  *file

	wake chan struct{} // something is in queue
	done chan struct{} // the writer has ended

	mu     sync.Mutex
	queue  []byte // lines that wait
	held   int    // bytes of queue, and of what the writer has taken out of it
	closed bool
	err    error // of the last attempt to write
	told   time.Time
}

// Open opens a log. Entries are written within a second by a goroutine that Close ends.
func Open(o *Options) (*Log, error) {
	l := new(Log)
	if o != nil {
		l.opts = *o
	}
	if l.opts.Now == nil {
		l.opts.Now = time.Now
	}
	if l.opts.File == "" {
		return l, nil
	}
	if l.opts.Stderr == nil {
		l.opts.Stderr = os.Stderr
	}
	if l.opts.MaxSize <= 0 {
		l.opts.MaxSize = defaultSize
	}
	if l.opts.Keep == 0 {
		l.opts.Keep = defaultKeep
	}
	if l.opts.Buffer <= 0 {
		l.opts.Buffer = defaultBuffer
	}
	l.rules = compile(l.opts.Redact)
	l.lines.New = func() any { return new(line) }
	if l.opts.File == "-" {
		l.file = &file{out: l.opts.Stderr}
	} else {
		l.file = &file{path: l.opts.File, max: l.opts.MaxSize, keep: l.opts.Keep}
		if err := l.file.open(); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
	}
	l.wake, l.done = make(chan struct{}, 1), make(chan struct{})
	go l.run()
	return l, nil
}

// Write takes an entry, which it keeps nothing of. It does not wait for the disk. An error means that the
// entry will not be written: the decision must not be carried out.
func (l *Log) Write(e *Entry) error {
	if l.file == nil {
		return nil
	}
	b, _ := l.lines.Get().(*line)
	b.text = l.append(b.text[:0], e, &b.walker)
	err := l.put(b.text)
	if cap(b.text) <= 2*maxEntry && cap(b.walker.text) <= 2*maxEntry {
		l.lines.Put(b)
	}
	return err
}

// A line is memory to make one.
type line struct {
	text   []byte
	walker walker
}

func (l *Log) put(line []byte) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return errClosed
	}
	if l.held+len(line) > l.opts.Buffer {
		err := errFull
		if l.err != nil {
			err = fmt.Errorf("%w: %w", errFull, l.err)
		}
		l.mu.Unlock()
		l.fault(err)
		return err
	}
	before := len(l.queue)
	l.queue = append(l.queue, line...)
	l.held += len(line)
	early := before < earlyBytes && len(l.queue) >= earlyBytes
	if before == 0 || early {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	l.mu.Unlock()
	return nil
}

// fault tells the operator, once a second.
func (l *Log) fault(err error) {
	if l.opts.OnFault == nil {
		return
	}
	now := l.opts.Now()
	l.mu.Lock()
	since := now.Sub(l.told)
	tell := l.told.IsZero() || since >= time.Second || since < 0
	if tell {
		l.told = now
	}
	l.mu.Unlock()
	if tell {
		l.opts.OnFault(err)
	}
}

// Close writes out what waits, and closes the file. Its error says how much could not be written.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	if !closed {
		close(l.wake)
	}
	l.mu.Unlock()
	<-l.done
	if closed {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held > 0 {
		return fmt.Errorf("audit: %d bytes of entries could not be written: %w", l.held, l.err)
	}
	return l.err
}
