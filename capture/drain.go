package capture

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxConns bounds the connections that are known by their label, and those that are announced
	// in each new file.
	maxConns = 1 << 14
	// maxOpen bounds the requests that wait for their answer.
	maxOpen = 1 << 16
	// maxWords bounds the names that are kept to save memory.
	maxWords = 1 << 12
)

// drain is what the goroutine of a recorder has for itself: it makes lines of entries, for the
// file and the ring.
type drain struct {
	r       *Recorder
	buf     []byte
	records []*Record

	seq    uint64
	frames int
	seed   maphash.Seed
	names  map[string]uint64  // of connections: transport and label
	conns  map[uint64]*Record // of those that are open
	asked  map[uint64]request // requests without an answer, by connection, direction and id
	words  map[string]string
	masked map[string]string // texts without their secrets
	redact *redactor         // nil: it is off
	rec    Record
	line   []byte
	hex    []byte

	file *file // nil: there is none
	ring *ring // nil: there is none
	due  string
	last time.Time // of the last dump that a rule has caused
}

// request is what an answer has to know of it.
type request struct {
	seq          uint64
	mono         int64
	method, name string
}

// open prepares the sinks.
func (d *drain) open(r *Recorder) (err error) {
	d.r, d.seed = r, maphash.MakeSeed()
	d.names, d.conns, d.asked = map[string]uint64{}, map[uint64]*Record{}, map[uint64]request{}
	d.words, d.masked = map[string]string{}, map[string]string{}
	if !r.o.Raw {
		d.redact = newRedactor(r.o.Secrets)
	}
	if r.o.Dir != "" {
		d.ring = &ring{max: r.o.Ring, age: int64(r.o.Age)}
	}
	if r.o.File != "" || r.o.Out != nil {
		d.file, err = openFile(d)
	}
	return err
}

// head is the first record of a file.
func (d *drain) head(why string) *Record {
	d.seq++
	now := time.Now()
	head := &Record{
		Type: typeHead, Seq: d.seq, Version: version,
		Time: now.UnixNano(), Mono: int64(now.Sub(d.r.start)),
		Program: d.r.o.Program, Redact: !d.r.o.Raw, Envelopes: d.r.o.Envelopes, Why: why,
	}
	head.Host, _ = os.Hostname() // "" where it is not known
	if u, err := user.Current(); err == nil {
		head.Owner = u.Username
	} else {
		head.Owner = strconv.Itoa(os.Getuid())
	}
	return head
}

// take handles the entries of the queue.
func (d *drain) take(lost uint64) {
	var q queued
	now := time.Now()
	offset := now.UnixNano() - int64(now.Sub(d.r.start)) // between the clocks
	for b := d.buf; len(b) > 0; {
		if b = q.next(b); q.time == 0 {
			q.time = q.mono + offset
		}
		if q.record > 0 {
			d.other(d.records[q.record-1])
		} else {
			d.frame(&q)
		}
	}
	if lost > 0 {
		d.put(&Record{Type: typeDrop, Size: int(lost), Why: "the recorder was busy"}, true)
	}
	if d.file != nil {
		d.file.flush()
	}
	if d.ring != nil {
		d.ring.expire(int64(time.Since(d.r.start)))
		d.dumpDue()
	}
}

// pause is how long to gather entries. What is compressed is flushed more rarely.
func (d *drain) pause() time.Duration {
	if d.file != nil && d.file.packed != nil {
		return 50 * gather
	}
	return gather
}

// frame makes a record of a frame.
func (d *drain) frame(q *queued) {
	rec := &d.rec
	*rec = Record{
		Type: typeFrame, Time: q.time, Mono: q.mono, Exchange: q.exchange, Size: q.size, Dir: dirDown,
		Redacted: rec.Redacted[:0],
	}
	if q.up {
		rec.Dir = dirUp
	}
	if rec.Conn = q.conn; rec.Conn == 0 {
		rec.Conn = d.connection(q)
	}
	if q.called.kind != 0 {
		d.ofCall(rec, q)
	}
	data := q.data
	cut := len(data) < q.size && len(data) > 0
	if cut {
		rec.Cut = len(data)
	}
	if q.sum != nil {
		d.hex = hex.AppendEncode(d.hex[:0], q.sum)
		rec.SHA256 = string(d.hex)
	}
	if len(data) == 0 && q.size > 0 || rec.Type == typeCall {
		data = nil
	} else if d.redact != nil {
		data = d.redact.frame(data, cut, rec)
	}
	if data == nil || q.called.complete() {
		d.observed(rec, q)
	} else {
		d.derive(rec, data, cut)
	}
	if q.bad {
		rec.Kind, rec.Problem = kindBad, d.word(q.wrong)
	}
	rec.data = data
	d.number(rec)
	d.await(rec)
	selected := d.r.o.Filter.Match(rec)
	if d.r.o.Envelopes {
		rec.data = nil
	}
	d.write(rec, selected)
	d.judge(rec)
}

// other makes a record of something else.
func (d *drain) other(rec *Record) {
	if d.redact != nil {
		d.redact.record(rec)
	}
	if rec.Type == typeConn {
		d.remember(rec)
	}
	d.put(rec, false)
	d.judge(rec)
}

// put numbers a record that is no frame, and writes it.
func (d *drain) put(rec *Record, now bool) {
	if now {
		at := time.Now()
		rec.Time, rec.Mono = at.UnixNano(), int64(at.Sub(d.r.start))
	}
	d.number(rec)
	d.write(rec, true)
}

// number numbers the record.
func (d *drain) number(rec *Record) {
	d.seq++
	rec.Seq = d.seq
}

// write gives the line of a record to the sinks. The file has what the filter has selected, and
// the ring everything.
func (d *drain) write(rec *Record, selected bool) {
	if !selected && d.ring == nil {
		return
	}
	var line []byte
	if d.file != nil && selected {
		if rec.Type == typeFrame {
			d.frames++
		}
		line = d.file.add(rec)
	} else {
		d.line = rec.Append(d.line[:0])
		line = d.line
	}
	if d.ring != nil {
		d.ring.add(line, rec.Mono)
	}
}

// connection returns the number of a connection that is known by its label, and announces it when
// it is new.
func (d *drain) connection(q *queued) uint64 {
	d.hex = append(append(d.hex[:0], q.transport...), 0)
	d.hex = append(append(append(d.hex, q.label...), 0), q.upstream...)
	if n, ok := d.names[string(d.hex)]; ok {
		return n
	}
	if len(d.names) >= maxConns {
		clear(d.names) // the connections that live on get new numbers
	}
	n := d.r.conns.Add(1)
	d.names[string(d.hex)] = n
	conn := &Record{
		Type: typeConn, Conn: n, Time: q.time, Mono: q.mono,
		Transport: string(q.transport), Label: string(q.label), Upstream: string(q.upstream),
	}
	d.remember(conn)
	d.put(conn, false)
	return n
}

// remember keeps what new files say of a connection.
func (d *drain) remember(conn *Record) {
	switch {
	case conn.Closed:
		delete(d.conns, conn.Conn)
		delete(d.names, conn.Transport+"\x00"+conn.Label+"\x00"+conn.Upstream)
	case len(d.conns) < maxConns:
		d.conns[conn.Conn] = conn.Clone()
	}
}

// end writes the end.
func (d *drain) end() error {
	if d.file == nil {
		return nil
	}
	d.put(&Record{Type: typeEnd, Size: d.frames}, true)
	return d.file.close()
}

// failure is the first error of the file.
func (d *drain) failure() error {
	if d.file == nil {
		return nil
	}
	return d.file.err
}

// word returns text without an allocation when it was seen before.
func (d *drain) word(text []byte) string {
	if w, ok := d.words[string(text)]; ok {
		return w
	}
	if len(d.words) >= maxWords {
		clear(d.words)
	}
	w := string(text)
	d.words[w] = w
	return w
}

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
	for _, n := range slices.Sorted(maps.Keys(d.conns)) {
		conn := d.conns[n]
		d.number(conn)
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
