package capture

import "encoding/binary"

// An entry is what waits for the goroutine of a recorder. In the queue it is a header, the texts,
// and the bytes of the frame.
type entry struct {
	conn, exchange uint64
	time, mono     int64 // time is 0 when only mono was read
	size           int   // of all of the frame
	record         int   // it is that record, counted from 1
	up             bool
	sum            []byte // of all of a frame that was cut; nil: none
	*seen                 // nil: no observer has seen it
}

// seen is what an observer adds to an entry.
type seen struct {
	bad       bool
	transport string // of a connection without a number
	label     string
	upstream  string
	problem   string

	// Of a call:
	kind         called // 0: there is none
	call, parent uint64
	duration     int64
	code         int
	toolError    bool

	id                                            []byte
	method, name, server, era, principal, outcome string
}

const (
	entryHeader  = 56
	calledHeader = 40 // of what an observer adds, before its texts
	maxText      = 255
)

const (
	flagUp = 1 << iota
	flagBad
	flagHashed
	flagCalled
)

// addLocked puts the entry into the queue, or drops it. The first one wakes the goroutine.
func (r *Recorder) addLocked(e *entry, data []byte) bool {
	n, fits := entryHeader+len(e.sum)+len(data), true
	if e.seen != nil {
		n += e.seen.size()
		fits = max(len(e.transport), len(e.label), len(e.upstream), len(e.problem)) <= maxText
	}
	if r.closed || len(r.buf)+n > r.o.Buffer || !fits {
		r.loseLocked()
		return false
	}
	at := len(r.buf)
	r.room(n)
	b := r.buf[at : at+n]
	var flags byte
	if e.up {
		flags |= flagUp
	}
	if e.sum != nil {
		flags |= flagHashed
	}
	binary.LittleEndian.PutUint32(b, uint32(n))
	clear(b[4:8])
	binary.LittleEndian.PutUint64(b[8:], uint64(e.time))
	binary.LittleEndian.PutUint64(b[16:], uint64(e.mono))
	binary.LittleEndian.PutUint64(b[24:], e.conn)
	binary.LittleEndian.PutUint64(b[32:], e.exchange)
	binary.LittleEndian.PutUint64(b[40:], uint64(e.size))
	binary.LittleEndian.PutUint64(b[48:], uint64(e.record)) // the length of problem is behind it
	rest := b[entryHeader:]
	if s := e.seen; s != nil {
		if s.bad {
			flags |= flagBad
		}
		if s.kind != 0 {
			flags |= flagCalled
		}
		b[5], b[6], b[7] = byte(len(s.transport)), byte(len(s.label)), byte(len(s.upstream))
		b[52] = byte(len(s.problem))
		for _, text := range []string{s.transport, s.label, s.upstream, s.problem} {
			rest = rest[copy(rest, text):]
		}
	}
	rest = rest[copy(rest, e.sum):]
	if flags&flagCalled != 0 {
		rest = rest[e.putCalled(rest):]
	}
	b[4] = flags
	copy(rest, data)
	if r.asleep {
		r.asleep = false
		r.notify()
	}
	return true
}

// room makes the queue n bytes longer.
func (r *Recorder) room(n int) {
	need := len(r.buf) + n
	if need > cap(r.buf) {
		grown := make([]byte, len(r.buf), min(max(2*cap(r.buf), need, 64<<10), r.o.Buffer))
		copy(grown, r.buf)
		r.buf = grown
	}
	r.buf = r.buf[:need]
}

// queued is an entry as it comes out of the queue. Its slices are valid until the queue is
// handled.
type queued struct {
	conn, exchange                    uint64
	time, mono                        int64
	size, record                      int
	up, bad                           bool
	sum                               []byte
	transport, label, upstream, wrong []byte
	called                            calledEntry
	data                              []byte
}

// next takes an entry from the front of the queue.
func (q *queued) next(b []byte) (rest []byte) {
	n := binary.LittleEndian.Uint32(b)
	flags := b[4]
	*q = queued{
		time: int64(binary.LittleEndian.Uint64(b[8:])), mono: int64(binary.LittleEndian.Uint64(b[16:])),
		conn: binary.LittleEndian.Uint64(b[24:]), exchange: binary.LittleEndian.Uint64(b[32:]),
		size: int(binary.LittleEndian.Uint64(b[40:])), record: int(binary.LittleEndian.Uint32(b[48:])),
		up: flags&flagUp != 0, bad: flags&flagBad != 0,
	}
	q.data = b[entryHeader:n]
	q.transport, q.label = cut(&q.data, b[5]), cut(&q.data, b[6])
	q.upstream, q.wrong = cut(&q.data, b[7]), cut(&q.data, b[52])
	if flags&flagHashed != 0 {
		q.sum = cut(&q.data, 32)
	}
	if flags&flagCalled != 0 {
		q.data = q.called.next(q.data)
	}
	return b[n:]
}

// cut takes n bytes from the front of b.
func cut(b *[]byte, n byte) (part []byte) {
	part, *b = (*b)[:n:n], (*b)[n:]
	return part
}

// texts are those that an observer adds.
func (e *seen) texts() [6]string {
	return [6]string{e.method, e.name, e.server, e.era, e.principal, e.outcome}
}

// clipTexts bounds the texts that an observer adds. A long id is left out: a part of it is another
// id.
func (e *seen) clipTexts() {
	for _, text := range []*string{&e.method, &e.name, &e.server, &e.era, &e.principal, &e.outcome} {
		*text = (*text)[:min(len(*text), maxText)]
	}
	if len(e.id) > maxText {
		e.id = nil
	}
}

// size is how many bytes it needs in the queue.
func (e *seen) size() int {
	n := len(e.transport) + len(e.label) + len(e.upstream) + len(e.problem)
	if e.kind == 0 {
		return n
	}
	n += calledHeader + len(e.id)
	for _, text := range e.texts() {
		n += len(text)
	}
	return n
}

// putCalled appends what an observer adds.
func (e *seen) putCalled(b []byte) int {
	binary.LittleEndian.PutUint64(b, e.call)
	binary.LittleEndian.PutUint64(b[8:], e.parent)
	binary.LittleEndian.PutUint64(b[16:], uint64(e.duration))
	binary.LittleEndian.PutUint32(b[24:], uint32(int32(e.code)))
	b[28], b[29], b[30] = byte(e.kind), 0, byte(len(e.id))
	if e.toolError {
		b[29] = 1
	}
	at := calledHeader + copy(b[calledHeader:], e.id)
	for i, text := range e.texts() {
		b[31+i] = byte(len(text))
		at += copy(b[at:], text)
	}
	return at
}

// next takes what putCalled has put from the front of b.
func (c *calledEntry) next(b []byte) (rest []byte) {
	c.call, c.parent = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	c.duration = int64(binary.LittleEndian.Uint64(b[16:]))
	c.code = int(int32(binary.LittleEndian.Uint32(b[24:])))
	c.kind, c.toolError = called(b[28]), b[29] == 1
	rest = b[calledHeader:]
	c.id = cut(&rest, b[30])
	for i, text := range []*[]byte{&c.method, &c.name, &c.server, &c.era, &c.principal, &c.outcome} {
		*text = cut(&rest, b[31+i])
	}
	return rest
}
