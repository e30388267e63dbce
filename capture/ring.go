package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const ringChunk = 256 << 10

// A ring has the last lines of a capture: so many bytes, and of so long a time.
type ring struct {
	max    int
	age    int64
	size   int // of all chunks
	chunks []ringPart
	spare  []byte
}

type ringPart struct {
	lines []byte
	last  int64 // mono of the last line
}

func newRing(size int, age time.Duration) *ring { return &ring{max: size, age: int64(age)} }

// add adds a line, and drops the oldest chunks when there is no room.
func (g *ring) add(line []byte, mono int64) {
	if len(line) > g.max {
		return
	}
	n := len(g.chunks)
	if n == 0 || cap(g.chunks[n-1].lines)-len(g.chunks[n-1].lines) < len(line) {
		size := max(min(ringChunk, g.max/4), len(line))
		for len(g.chunks) > 0 && g.size+size > g.max {
			g.drop()
		}
		lines := g.spare
		if g.spare = nil; cap(lines) < size {
			lines = make([]byte, 0, size)
		}
		g.size += cap(lines)
		g.chunks = append(g.chunks, ringPart{lines: lines[:0]})
		n = len(g.chunks)
	}
	c := &g.chunks[n-1]
	c.lines, c.last = append(c.lines, line...), mono
}

// drop drops the oldest chunk, and keeps its memory for the next one.
func (g *ring) drop() {
	g.size -= cap(g.chunks[0].lines)
	if cap(g.chunks[0].lines) <= ringChunk {
		g.spare = g.chunks[0].lines
		clear(g.spare)
	}
	g.chunks = slices.Delete(g.chunks, 0, 1)
}

// expire drops what is too old.
func (g *ring) expire(now int64) {
	for len(g.chunks) > 0 && now-g.chunks[0].last > g.age {
		g.drop()
	}
}

// What causes a dump: see Options.DumpOn.
const (
	dumpError     = "error"
	dumpToolError = "tool_error"
	dumpSlow      = "slow"
	dumpRestart   = "restart"
	dumpRefusal   = "refusal"
)

// Check reports what is wrong with the options, before New does.
func (o *Options) Check() error {
	causes := []string{dumpError, dumpToolError, dumpSlow, dumpRestart, dumpRefusal}
	for _, why := range o.DumpOn {
		if !slices.Contains(causes, why) {
			return fmt.Errorf("%q causes no dump: use %s", why, strings.Join(causes, ", "))
		}
	}
	return nil
}

// judge finds out whether the record causes a dump.
func (d *drain) judge(rec *Record) {
	if d.ring == nil || d.due != "" || len(d.r.o.DumpOn) == 0 {
		return
	}
	if why := d.cause(rec); why != "" && slices.Contains(d.r.o.DumpOn, why) {
		d.due = why
	}
}

// cause returns what the record may cause a dump for, or "".
func (d *drain) cause(rec *Record) string {
	switch ended := rec.Type == typeCall || rec.Kind == kindResponse; {
	case rec.Outcome == outcomeDenied || rec.Outcome == outcomeLimited ||
		rec.Outcome == outcomeRefused:
		return dumpRefusal
	case rec.Type == typeEvent && rec.Why == dumpRestart:
		return dumpRestart
	case ended && rec.ToolError:
		return dumpToolError
	case ended && rec.Code != 0:
		return dumpError
	case ended && d.r.o.Slow > 0 && rec.Duration > int64(d.r.o.Slow):
		return dumpSlow
	}
	return ""
}

// dumpDue writes the dump that a rule has caused, unless there was one a moment ago.
func (d *drain) dumpDue() {
	if d.due == "" {
		return
	}
	why := d.due
	d.due = ""
	now := time.Now()
	if !d.last.IsZero() && now.Sub(d.last) < defaultEvery {
		return
	}
	d.last = now
	path, err := d.dump(why)
	switch {
	case err != nil:
		d.failed(fmt.Errorf("flight recorder: %w", err))
	case d.r.o.OnDump != nil:
		d.r.o.OnDump(why, path)
	}
}

func (d *drain) failed(err error) {
	if d.r.o.OnError != nil {
		d.r.o.OnError(err)
	}
}

const dumpPrefix = "recorder-"

// dump writes the ring into a new file.
func (d *drain) dump(why string) (path string, err error) {
	if d.ring == nil {
		return "", errors.New("there is no flight recorder")
	}
	d.ring.expire(int64(time.Since(d.r.start)))
	stamp := time.Now().UTC().Format("20060102-150405.000000")
	name := dumpPrefix + stamp + "-" + fileWord(why) + ".jsonl"
	path = filepath.Join(d.r.o.Dir, name)
	if err = os.MkdirAll(d.r.o.Dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	lines := d.head(why).Append(nil)
	lines = d.appendConns(lines)
	if _, err = f.Write(lines); err == nil {
		for _, c := range d.ring.chunks {
			if _, err = f.Write(c.lines); err != nil {
				break
			}
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return path, err
	}
	return path, d.tidy()
}

// appendConns appends what is known of the open connections.
func (d *drain) appendConns(lines []byte) []byte {
	for _, n := range sortedKeys(d.conns) {
		conn := d.conns[n]
		d.seq++
		conn.Seq = d.seq
		lines = conn.Append(lines)
	}
	return lines
}

// tidy removes the oldest dumps.
func (d *drain) tidy() error {
	all, err := filepath.Glob(filepath.Join(d.r.o.Dir, dumpPrefix+"*.jsonl"))
	if err != nil {
		return err
	}
	slices.Sort(all)
	for _, path := range all[:max(0, len(all)-d.r.o.Keep)] {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// fileWord makes a part of the name of a file.
func fileWord(text string) string {
	text = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return '-'
	}, strings.ToLower(text))
	return text[:min(len(text), 40)]
}
