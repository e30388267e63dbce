package capture

import "encoding/binary"

// An entry is what waits for the goroutine of a recorder. In the queue it is a header, the texts,
// and the bytes of the frame.
type entry struct {
	conn, exchange uint64
	time, mono     int64 // time is 0 when only mono was read
	size           int   // of all of the frame
	record         int   // it is that record, counted from 1
	up, bad        bool
	hashed         bool
	sum            [32]byte
	transport      string // of a connection without a number
	label          string
	upstream       string
	problem        string

	// Of a call, by an observer:
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
	sum := 0
	if e.hashed {
		sum = len(e.sum)
	}
	longest := max(len(e.transport), len(e.label), len(e.upstream), len(e.problem))
	n := entryHeader + len(e.transport) + len(e.label) + len(e.upstream) + len(e.problem)
	n += sum + len(data)
	if e.kind != 0 {
		n += e.calledSize()
	}
	if r.closed || len(r.buf)+n > r.o.Buffer || longest > maxText {
		r.loseLocked()
		return false
	}
	at := len(r.buf)
	r.room(n)
	b := r.buf[at : at+entryHeader]
	var flags byte
	if e.up {
		flags |= flagUp
	}
	if e.bad {
		flags |= flagBad
	}
	if e.hashed {
		flags |= flagHashed
	}
	if e.kind != 0 {
		flags |= flagCalled
	}
	binary.LittleEndian.PutUint32(b, uint32(n))
	b[4], b[5], b[6], b[7] = flags, byte(len(e.transport)), byte(len(e.label)), byte(len(e.upstream))
	binary.LittleEndian.PutUint64(b[8:], uint64(e.time))
	binary.LittleEndian.PutUint64(b[16:], uint64(e.mono))
	binary.LittleEndian.PutUint64(b[24:], e.conn)
	binary.LittleEndian.PutUint64(b[32:], e.exchange)
	binary.LittleEndian.PutUint64(b[40:], uint64(e.size))
	binary.LittleEndian.PutUint32(b[48:], uint32(e.record))
	b[52] = byte(len(e.problem))
	at += entryHeader
	at += copy(r.buf[at:], e.transport)
	at += copy(r.buf[at:], e.label)
	at += copy(r.buf[at:], e.upstream)
	at += copy(r.buf[at:], e.problem)
	if e.hashed {
		at += copy(r.buf[at:], e.sum[:])
	}
	if e.kind != 0 {
		at += e.putCalled(r.buf[at:])
	}
	copy(r.buf[at:], data)
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
	body := b[entryHeader:n]
	cut := func(n byte) []byte {
		part := body[:n]
		body = body[n:]
		return part
	}
	q.transport, q.label, q.upstream, q.wrong = cut(b[5]), cut(b[6]), cut(b[7]), cut(b[52])
	if flags&flagHashed != 0 {
		q.sum = cut(32)
	}
	if flags&flagCalled != 0 {
		body = q.called.next(body)
	}
	q.data = body
	return b[n:]
}

// texts are those that an observer adds.
func (e *entry) texts() [6]string {
	return [6]string{e.method, e.name, e.server, e.era, e.principal, e.outcome}
}

// clipTexts bounds the texts that an observer adds. A long id is left out: a part of it is another
// id.
func (e *entry) clipTexts() {
	for _, text := range []*string{&e.method, &e.name, &e.server, &e.era, &e.principal, &e.outcome} {
		*text = (*text)[:min(len(*text), maxText)]
	}
	if len(e.id) > maxText {
		e.id = nil
	}
}

// calledSize is how many bytes putCalled needs.
func (e *entry) calledSize() int {
	n := calledHeader + len(e.id)
	for _, text := range e.texts() {
		n += len(text)
	}
	return n
}

// putCalled appends what an observer adds.
func (e *entry) putCalled(b []byte) int {
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
	cut := func(n byte) []byte {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	c.id = cut(b[30])
	for i, text := range []*[]byte{&c.method, &c.name, &c.server, &c.era, &c.principal, &c.outcome} {
		*text = cut(b[31+i])
	}
	return rest
}
