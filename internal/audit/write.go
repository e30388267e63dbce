package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

const (
	flushAfter = 250 * time.Millisecond // that entries are collected for one write
	earlyBytes = 256 << 10              // that are written at once
	retryAfter = 200 * time.Millisecond // when it has failed
	spareBytes = defaultBuffer          // of a buffer that is kept
)

// run is the writer.
func (l *Log) run() {
	defer close(l.done)
	var rest, spare []byte
	for open := true; open; {
		l.mu.Lock()
		waiting := len(l.queue) > 0
		l.mu.Unlock()
		switch {
		case len(rest) > 0:
			open = l.pause(retryAfter)
		case waiting:
			open = l.collect(flushAfter)
		default:
			if _, open = <-l.wake; open {
				open = l.collect(flushAfter)
			}
		}
		if len(rest) > 0 {
			if rest = l.flush(rest); len(rest) > 0 {
				continue
			}
		}
		if cap(spare) > spareBytes {
			spare = nil
		}
		l.mu.Lock()
		rest, l.queue = l.queue, spare[:0]
		l.mu.Unlock()
		spare = rest
		rest = l.flush(rest)
	}
	if err := l.file.close(); err != nil {
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
	}
}

// collect lets entries come for a while, or until there are many.
func (l *Log) collect(d time.Duration) (open bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case _, open = <-l.wake:
		return open
	case <-timer.C:
		return true
	}
}

// pause waits, but for Close.
func (l *Log) pause(d time.Duration) (open bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case _, open = <-l.wake:
			if !open {
				return false
			}
		case <-timer.C:
			return true
		}
	}
}

// flush writes and returns what could not be written.
func (l *Log) flush(p []byte) (rest []byte) {
	if len(p) == 0 {
		return nil
	}
	n, err := l.file.write(p)
	l.mu.Lock()
	l.held -= n
	l.err = err
	l.mu.Unlock()
	if err != nil {
		l.fault(err)
	}
	return p[n:]
}

// A file is that of a log. It is for one goroutine.
type file struct {
	out  io.Writer // where path is ""
	path string
	max  int64
	keep int

	f       *os.File // nil: it has to be opened again
	size    int64
	regular bool
	torn    bool // it ends within a line that somebody else began
	within  bool // it ends within a line of ours, the rest of which comes next
}

func (f *file) open() error {
	handle, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := handle.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		err = handle.Chmod(0o600)
	}
	if err != nil {
		_ = handle.Close()
		return err
	}
	f.f, f.size, f.regular = handle, info.Size(), info.Mode().IsRegular()
	f.torn = f.regular && f.size > 0 && !endsLine(f.path, f.size)
	return nil
}

// endsLine reports whether the last line of a file is whole: a process may have died over it.
func endsLine(path string, size int64) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], size-1)
	return errors.Join(err, f.Close()) == nil && last[0] == '\n'
}

// write writes lines, into as many files as it takes, and returns how many bytes it has written. When
// files cannot be renamed, it says so, and goes on with the one there is.
func (f *file) write(p []byte) (n int, err error) {
	if f.out != nil {
		return f.out.Write(p)
	}
	var renaming error
	for n < len(p) {
		if f.f == nil {
			if err = f.open(); err != nil {
				return n, fmt.Errorf("audit: %w", err)
			}
		}
		part := f.fits(p[n:])
		if len(part) == 0 && renaming == nil {
			renaming = f.rotate()
			continue
		}
		if len(part) == 0 {
			part = p[n:]
		}
		m, err := f.append(part)
		n += m
		if err != nil {
			return n, fmt.Errorf("audit: %w", err)
		}
	}
	return n, renaming
}

func (f *file) append(p []byte) (n int, err error) {
	if f.torn {
		if _, err = f.f.WriteString("\n"); err != nil {
			return 0, err
		}
		f.size++
		f.torn = false
	}
	n, err = f.f.Write(p)
	f.size += int64(n)
	if n > 0 {
		f.within = p[n-1] != '\n'
	}
	return n, err
}

// fits returns the lines of p for which the file has room. A file has one line at least.
func (f *file) fits(p []byte) []byte {
	room := f.max - f.size
	if !f.regular || int64(len(p)) <= room {
		return p
	}
	if room > 0 {
		if i := bytes.LastIndexByte(p[:room], '\n'); i >= 0 {
			return p[:i+1]
		}
	}
	if f.size > 0 && !f.within {
		return nil
	}
	return p[:bytes.IndexByte(p, '\n')+1]
}

// rotate begins a new file.
func (f *file) rotate() error {
	err := f.close()
	for i := f.keep - 1; i >= 1 && err == nil; i-- {
		err = os.Rename(f.old(i), f.old(i+1))
		if os.IsNotExist(err) {
			err = nil
		}
	}
	switch {
	case err != nil:
	case f.keep > 0:
		err = os.Rename(f.path, f.old(1))
	default:
		err = os.Remove(f.path)
	}
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("audit: rotate: %w", err)
	}
	return nil
}

func (f *file) old(i int) string { return f.path + "." + strconv.Itoa(i) }

func (f *file) close() error {
	if f.f == nil {
		return nil
	}
	handle := f.f
	f.f = nil
	var err error
	if f.regular {
		err = handle.Sync()
	}
	if e := handle.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
