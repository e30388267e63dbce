package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/stream"
)

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
		return fmt.Sprintf("%s ended: %s; it wrote nothing to its standard error", printable(e.Name), state)
	}
	return fmt.Sprintf("%s ended: %s; its standard error ends with:\n%s", printable(e.Name), state, strings.Join(said, "\n"))
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
	return strings.NewReplacer("\t", " ", "\n", " ").Replace(visible.Log(strings.TrimRight(s, " \t\r\n")))
}
