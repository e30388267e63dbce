package capture

import (
	"encoding/hex"
	"hash/maphash"
	"os"
	"os/user"
	"strconv"
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
		d.ring = newRing(r.o.Ring, r.o.Age)
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
	for b := d.buf; len(b) > 0; {
		b = q.next(b)
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
	switch {
	case len(data) == 0 && q.size > 0 || rec.Type == typeCall:
		data = nil
		d.withoutData(rec, q)
	case d.redact != nil:
		data = d.redact.frame(data, cut, rec)
		fallthrough
	default:
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
	d.line = rec.Append(d.line[:0])
	if d.file != nil && selected {
		if rec.Type == typeFrame {
			d.frames++
		}
		d.file.add(d.line)
	}
	if d.ring != nil {
		d.ring.add(d.line, rec.Mono)
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
