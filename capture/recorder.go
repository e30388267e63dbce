package capture

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultFrame  = 1 << 20
	defaultBuffer = 8 << 20
	defaultRing   = 16 << 20
	defaultAge    = time.Minute
	defaultEvery  = 10 * time.Second
	defaultKeep   = 8
	// maxFrame bounds MaxFrame, so that each line can be read again.
	maxFrame = 64 << 20
	// maxRecords is how many records other than frames may wait.
	maxRecords = 1 << 14
	// gather is how long frames are collected before they are handled together.
	gather = 2 * time.Millisecond
)

// Options are those of a [Recorder]. The zero value is a flight recorder that writes only when
// Dump is called.
type Options struct {
	// File is the path of the capture. It is created with mode 0600; what it holds already stays.
	// A name that ends with .zst is compressed. Out is written in place of a file. With neither
	// there is a flight recorder only.
	File string
	Out  io.Writer
	// MaxSize and MaxAge rotate the file: FILE becomes FILE.1, and so on. Keep is how many old
	// ones, and how many dumps, remain. Default: no rotation, 8.
	MaxSize int64
	MaxAge  time.Duration
	Keep    int

	// Raw turns redaction off. Secrets are more names of members, and paths, with
	// secret values, as in the audit of a guard.
	Raw     bool
	Secrets []string
	// Envelopes leaves the bytes of frames out.
	Envelopes bool
	// MaxFrame is how many bytes of a frame are kept. Default 1 MiB, at most 64 MiB.
	MaxFrame int
	// Filter says which frames are recorded. Nil: all.
	Filter *Filter

	// Dir turns the flight recorder on: it is the directory of its dumps. Ring bounds its memory
	// (default 16 MiB), and Age how far back it goes (default a minute). DumpOn are what causes a
	// dump: "error", "tool_error", "slow", "restart", "refusal"; and Slow is how long a
	// call may take. There is a dump in 10 s at most.
	Dir    string
	Ring   int
	Age    time.Duration
	DumpOn []string
	Slow   time.Duration

	// Buffer is how many bytes may wait for the recorder. What comes beyond is dropped and
	// counted. Default 8 MiB.
	Buffer int
	// Began is when the capture has begun, if FrameAt records older frames. Default now.
	Began time.Time
	// Program is who records, for the head of the file.
	Program string
	// OnError is called with what hinders the recorder, which goes on.
	OnError func(error)
	// OnDump is called when one of DumpOn has caused a dump, with its path.
	OnDump func(why, path string)
}

// A Recorder writes a capture, or keeps the last frames in memory, or both. Its methods are safe
// for concurrent use, never wait for a file, and drop what cannot be kept: see Dropped.
type Recorder struct {
	o       Options
	start   time.Time
	conns   atomic.Uint64
	calls   atomic.Uint64
	dropped atomic.Uint64 // since the start

	mu      sync.Mutex
	buf     []byte // entries: see queue.go
	records []*Record
	lost    uint64 // dropped since the last time
	asleep  bool
	closed  bool

	wake  chan struct{}
	asked chan dump
	done  chan struct{}
	err   error // of the end; valid after done

	drain drain
}

type dump struct {
	why   string
	into  chan dumped
	flush bool // only write what waits
}

type dumped struct {
	path string
	err  error
}

// New returns a Recorder, which has to be closed. It fails when the file cannot be opened.
func New(o *Options) (*Recorder, error) {
	r := &Recorder{
		start: time.Now(), asleep: true,
		wake: make(chan struct{}, 1), asked: make(chan dump), done: make(chan struct{}),
	}
	r.o = *cmp.Or(o, &Options{})
	r.o.setDefaults()
	if err := r.o.Check(); err != nil {
		return nil, err
	}
	if !r.o.Began.IsZero() {
		r.start = r.o.Began
	}
	if err := r.drain.open(r); err != nil {
		return nil, err
	}
	go r.run()
	return r, nil
}

func (o *Options) setDefaults() {
	or := func(n *int, value int) {
		if *n <= 0 {
			*n = value
		}
	}
	or(&o.MaxFrame, defaultFrame)
	or(&o.Buffer, defaultBuffer)
	or(&o.Ring, defaultRing)
	or(&o.Keep, defaultKeep)
	o.MaxFrame = min(o.MaxFrame, maxFrame)
	o.Buffer = max(o.Buffer, o.MaxFrame+1024)
	o.Age = cmp.Or(max(o.Age, 0), defaultAge)
}

// Connect announces a connection and returns its number. The record has what is known of it.
func (r *Recorder) Connect(conn *Record) uint64 {
	c := conn.Clone()
	c.Type, c.Conn = typeConn, r.conns.Add(1)
	r.Put(c)
	return c.Conn
}

// Exchange returns the number for a new exchange of HTTP, or for any other group of frames.
func (r *Recorder) Exchange() uint64 { return r.calls.Add(1) }

// Frame records a frame of a connection. It copies the bytes.
func (r *Recorder) Frame(conn uint64, up bool, data []byte) {
	r.frame(&entry{conn: conn, up: up}, data, len(data))
}

// FrameOf is Frame for a part of an exchange, and for the beginning of a frame: size is that of
// all of it.
func (r *Recorder) FrameOf(conn, exchange uint64, up bool, data []byte, size int) {
	r.frame(&entry{conn: conn, exchange: exchange, up: up}, data, size)
}

// FrameAt is FrameOf for a frame that passed at that time, not before Options.Began.
func (r *Recorder) FrameAt(conn, exchange uint64, up bool, data []byte, at time.Time) {
	r.frameAt(&entry{conn: conn, exchange: exchange, up: up}, data, len(data), at)
}

// Put records something else. It takes the record, which has a Type and lacks Seq and the times.
func (r *Recorder) Put(rec *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.records) >= maxRecords {
		r.loseLocked()
		return
	}
	now := time.Now()
	rec.Time, rec.Mono = now.UnixNano(), int64(now.Sub(r.start))
	if r.addLocked(&entry{record: len(r.records) + 1}, nil) {
		r.records = append(r.records, rec)
	}
}

// frame puts a frame into the queue. It reads one clock, as that takes most of its time: the
// goroutine of the recorder finds the time of the other one.
func (r *Recorder) frame(e *entry, data []byte, size int) {
	e.mono = int64(time.Since(r.start))
	r.keep(e, data, size)
}

// frameAt is frame, of one that passed then.
func (r *Recorder) frameAt(e *entry, data []byte, size int, now time.Time) {
	e.time, e.mono = now.UnixNano(), int64(now.Sub(r.start))
	r.keep(e, data, size)
}

// keep puts a frame with its time into the queue.
func (r *Recorder) keep(e *entry, data []byte, size int) {
	e.size = size
	if len(data) > r.o.MaxFrame {
		if r.o.Raw && size == len(data) {
			sum := sha256.Sum256(data)
			e.sum = sum[:]
		}
		data = data[:r.o.MaxFrame]
	}
	if e.seen != nil {
		e.clipTexts()
	}
	r.mu.Lock()
	r.addLocked(e, data)
	r.mu.Unlock()
}

// loseLocked counts what is not recorded.
func (r *Recorder) loseLocked() {
	r.lost++
	r.dropped.Add(1)
}

// Dropped returns how many frames and other records were lost so far.
func (r *Recorder) Dropped() uint64 { return r.dropped.Load() }

// Dump writes what the flight recorder has into a file of its directory, and returns its path.
func (r *Recorder) Dump(why string) (path string, err error) {
	if r.o.Dir == "" {
		return "", errors.New("there is no flight recorder: it has no directory for dumps")
	}
	got := r.ask(dump{why: why, into: make(chan dumped, 1)})
	return got.path, got.err
}

// Flush waits until what was recorded before it is written. A caller that flushes before
// Options.Buffer is full loses nothing.
func (r *Recorder) Flush() error { return r.ask(dump{flush: true, into: make(chan dumped, 1)}).err }

// ask has the goroutine do something.
func (r *Recorder) ask(d dump) dumped {
	select {
	case r.asked <- d:
		return <-d.into
	case <-r.done:
		return dumped{err: errors.New("the recorder is closed")}
	}
}

// Close writes what waits, and the end, and closes the file. It returns the first error that
// hindered the recorder.
func (r *Recorder) Close() error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	r.mu.Unlock()
	if first {
		r.notify()
	}
	<-r.done
	return r.err
}

func (r *Recorder) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run is the one goroutine that handles what was queued.
func (r *Recorder) run() {
	defer close(r.done)
	pause := time.NewTimer(gather)
	defer pause.Stop()
	for {
		var d dump
		select {
		case <-r.wake:
		case d = <-r.asked:
		}
		for {
			last := r.handle()
			switch {
			case d.into == nil:
			case d.flush:
				d.into <- dumped{err: r.drain.failure()}
			default:
				path, err := r.drain.dump(d.why)
				d.into <- dumped{path, err}
			}
			d.into = nil
			if last {
				r.err = r.drain.end()
				return
			}
			if r.sleep() {
				break
			}
			pause.Reset(r.drain.pause())
			select {
			case <-pause.C:
			case d = <-r.asked:
			case <-r.wake: // it is closed
			}
		}
	}
}

// sleep reports whether the queue is empty, and has the next entry wake the goroutine.
func (r *Recorder) sleep() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asleep = len(r.buf) == 0 && r.lost == 0 && !r.closed
	return r.asleep
}

// handle takes the queue and handles it. It reports whether the recorder was closed.
func (r *Recorder) handle() (closed bool) {
	d := &r.drain
	r.mu.Lock()
	r.buf, d.buf = d.buf[:0], r.buf
	r.records, d.records = d.records[:0], r.records
	lost := r.lost
	r.lost, closed = 0, r.closed
	r.mu.Unlock()
	d.take(lost)
	clear(d.buf)
	clear(d.records)
	return closed
}
