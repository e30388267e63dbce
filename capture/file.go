package capture

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/farcall-dev/farcall/internal/filelock"
)

const (
	fileBuffer = 1 << 20
	retryAfter = time.Second
)

// A file is what a recorder writes its lines to.
type file struct {
	d       *drain
	path    string // "": it is another writer
	f       *os.File
	out     io.Writer
	packed  *zstd.Encoder
	pending []byte
	lines   int // in pending
	size    int64
	began   time.Time
	torn    bool // the last write ended within a line
	lost    int  // lines that could not be written
	retry   time.Time
	err     error // the first one
}

func openFile(d *drain) (*file, error) {
	f := &file{d: d, path: d.r.o.File, out: d.r.o.Out}
	if f.out != nil {
		f.path = ""
	}
	return f, f.open()
}

// open begins a file, or goes on with the one that is there.
func (f *file) open() (err error) {
	f.began = time.Now()
	if f.path != "" {
		if err = f.openPath(); err != nil {
			return fmt.Errorf("capture: %w", err)
		}
		f.out = f.f
		if strings.HasSuffix(f.path, ".zst") {
			f.packed, err = zstd.NewWriter(f.f,
				zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
			if err != nil {
				return err
			}
			f.out = f.packed
		}
	}
	if f.torn {
		f.pending = append(f.pending, '\n')
		f.torn = false
	}
	f.add(f.d.head(""))
	f.pending = f.d.appendConns(f.pending)
	return nil
}

// openPath opens the file with mode 0600 and locks it. What is in a compressed one is moved aside
// then: it cannot be continued.
func (f *file) openPath() (err error) {
	defer func() {
		if err != nil && f.f != nil {
			err = errors.Join(err, filelock.Close(f.f))
			f.f = nil
		}
	}()
	info, err := f.openLocked()
	if err == nil && info.Mode().IsRegular() && info.Size() > 0 && strings.HasSuffix(f.path, ".zst") {
		if err = f.moveAside(); err != nil {
			return err
		}
		info, err = f.openLocked()
	}
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := f.f.Chmod(0o600); err != nil {
			return err
		}
	}
	if f.size = info.Size(); f.size > 0 {
		last := make([]byte, 1)
		if _, err := f.f.ReadAt(last, f.size-1); err != nil {
			return err
		}
		f.torn = last[0] != '\n'
	}
	return nil
}

// openLocked opens the file, and locks it if it is a regular one.
func (f *file) openLocked() (info fs.FileInfo, err error) {
	for {
		f.f, err = os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		if info, err = f.f.Stat(); err != nil || !info.Mode().IsRegular() {
			return info, err
		}
		free, err := filelock.Try(f.f, true)
		if err == nil && !free {
			err = fmt.Errorf("%s is written by another process: each needs a separate file: %w",
				f.path, fs.ErrExist)
		}
		if err != nil {
			return nil, err
		}
		// Another recorder may have moved it before it was locked.
		if now, err := os.Stat(f.path); err == nil && os.SameFile(info, now) {
			return f.f.Stat() // its size may have changed, too
		}
		if err := filelock.Close(f.f); err != nil {
			return nil, err
		}
	}
}

// add adds the line of a record, and returns it, which is valid until the next one.
func (f *file) add(rec *Record) (line []byte) {
	if len(f.pending) >= fileBuffer {
		f.write()
	}
	at := len(f.pending)
	f.pending = rec.Append(f.pending)
	f.lines++
	return f.pending[at:]
}

// flush writes what was added.
func (f *file) flush() {
	f.write()
	if f.packed != nil && f.err == nil {
		f.failed(f.packed.Flush())
	}
	o := &f.d.r.o
	large, old := f.size >= o.MaxSize, time.Since(f.began) >= o.MaxAge
	if f.path != "" && (o.MaxSize > 0 && large || o.MaxAge > 0 && old) {
		f.failed(f.rotate())
	}
}

// write writes the lines that wait. Lines that cannot be written are lost, and counted.
func (f *file) write() {
	if len(f.pending) == 0 {
		return
	}
	defer func() { f.pending, f.lines = f.pending[:0], 0 }()
	if now := time.Now(); f.f == nil && f.out == nil || now.Before(f.retry) {
		f.lose()
		return
	}
	if f.torn {
		f.pending = slices.Insert(f.pending, 0, '\n')
	}
	n, err := f.out.Write(f.pending)
	f.size += int64(n)
	if err == nil {
		f.torn = false
		if f.lost > 0 {
			f.d.seq++
			rec := &Record{Type: typeDrop, Seq: f.d.seq, Size: f.lost, Why: "they could not be written"}
			rec.Time = time.Now().UnixNano()
			f.lost = 0
			f.pending = rec.Append(f.pending[:0])
			n, err = f.out.Write(f.pending)
			f.size += int64(n)
		}
	} else {
		f.torn = f.torn && n == 0 || n > 0 && f.pending[n-1] != '\n'
		f.lose()
	}
	if err != nil {
		f.retry = time.Now().Add(retryAfter)
	}
	f.failed(err)
}

func (f *file) lose() {
	f.lost += f.lines
	f.d.r.dropped.Add(uint64(f.lines))
}

func (f *file) failed(err error) {
	if err == nil {
		return
	}
	err = fmt.Errorf("capture: %w", err)
	f.err = cmp.Or(f.err, err)
	f.d.failed(err)
}

// rotate begins the next file.
func (f *file) rotate() error {
	if err := f.finish(); err != nil {
		return err
	}
	if err := f.moveAside(); err != nil {
		return err
	}
	f.size = 0
	return f.open()
}

// moveAside moves the open file to FILE.1 and closes it. It is locked until then, so that no
// other recorder takes it, but on Windows, where open files cannot be moved.
func (f *file) moveAside() (err error) {
	if runtime.GOOS != "windows" {
		err = f.shift()
	}
	err = errors.Join(err, f.shut())
	if runtime.GOOS == "windows" && err == nil {
		err = f.shift()
	}
	return err
}

// shift moves the file to FILE.1, and those before it one further. It removes the oldest.
func (f *file) shift() error {
	old := func(i int) string { return f.path + "." + strconv.Itoa(i) }
	keep := f.d.r.o.Keep
	if err := os.Remove(old(keep)); err != nil && !os.IsNotExist(err) {
		return err
	}
	for i := keep - 1; i >= 1; i-- {
		if err := os.Rename(old(i), old(i+1)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return os.Rename(f.path, old(1))
}

// finish writes the end of a compressed file.
func (f *file) finish() error {
	if f.packed == nil {
		return nil
	}
	err := f.packed.Close()
	f.packed = nil
	return err
}

// shut closes the file.
func (f *file) shut() error {
	err := f.finish()
	if f.f != nil {
		err = errors.Join(err, filelock.Close(f.f))
		f.f, f.out = nil, nil
	}
	return err
}

func (f *file) close() error {
	f.write()
	f.failed(f.shut())
	return f.err
}

const (
	readSize = 256 << 10
	// maxLine is longer than a line that a recorder writes: a frame of 64 MB, each byte as \u00xx.
	maxLine = 400 << 20
	// maxWindow is the memory that a compressed file may ask for.
	maxWindow = 64 << 20
)

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// A Reader reads the records of a capture in their order. It is not safe for concurrent use.
type Reader struct {
	in    *bufio.Reader
	close []func() error
	line  []byte // one that is longer than the buffer of in
	n     int    // lines
	rec   Record
	words words
	err   error // after which there is nothing
	torn  bool

	sides               map[uint64]string // upstreams by connection
	parts               int
	seq, conn, exchange span
	call                span
}

// A span keeps numbers apart that several captures of one file have in common.
type span struct{ base, last uint64 }

func (s *span) next() { s.base = s.last }

func (s *span) shift(n uint64) uint64 {
	if n == 0 {
		return 0
	}
	n += s.base
	s.last = max(s.last, n)
	return n
}

// Open opens the capture at path, compressed or not. "-" is the standard input.
func Open(path string) (*Reader, error) {
	if path == "-" {
		return NewReader(os.Stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(f)
	if err != nil {
		_ = f.Close() // it was not read
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.close = append(r.close, f.Close)
	return r, nil
}

// NewReader returns a Reader of a capture, compressed or not. It fails when in is no capture.
// Close ends it, but does not close in.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{words: words{}, sides: map[uint64]string{}, in: bufio.NewReaderSize(in, readSize)}
	start, err := r.in.Peek(len(zstdMagic))
	if bytes.Equal(start, zstdMagic) {
		var z *zstd.Decoder
		if z, err = zstd.NewReader(r.in,
			zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow)); err != nil {
			return nil, err
		}
		r.in = bufio.NewReaderSize(z, readSize)
		r.close = append(r.close, func() error { z.Close(); return nil })
		start, err = r.in.Peek(len(zstdMagic))
	}
	if len(start) == 0 {
		return nil, errors.Join(r.Close(), notCapture(err))
	}
	if start[0] != '{' {
		return nil, errors.Join(r.Close(), notCapture(nil))
	}
	return r, nil
}

func notCapture(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errors.New("it is not a capture: the first line has to be one of type capture")
	}
	return err
}

// Close ends the reader.
func (r *Reader) Close() error {
	var failed error
	for _, end := range r.close {
		failed = errors.Join(failed, end())
	}
	r.close = nil
	return failed
}

// Line returns the number of the line of the last record.
func (r *Reader) Line() int { return r.n }

// Torn reports, after io.EOF, whether the last line was left out because its writer was stopped
// within it.
func (r *Reader) Torn() bool { return r.torn }

// Next returns the next record, and io.EOF at the end. The record is valid until the next call.
// After an error that says which line is not valid, the caller may go on with the line after it;
// any other error repeats.
//
// Numbers of records, connections and calls are unique also in a file that holds several
// captures: those of later ones are moved up. So the numbers may differ from those in the text of
// the file.
func (r *Reader) Next() (*Record, error) {
	for {
		line, err := r.readLine()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		r.rec = Record{words: r.words}
		if err := r.rec.parse(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", r.n, err)
		}
		return r.number()
	}
}

// number makes the numbers of the record unique.
func (r *Reader) number() (*Record, error) {
	rec := &r.rec
	if rec.Type == typeHead {
		if rec.Version != version {
			return nil, r.fail(fmt.Errorf(
				"line %d: version %d of the format is not supported: use a newer farcall", r.n, rec.Version))
		}
		r.seq.next()
		r.conn.next()
		r.exchange.next()
		r.call.next()
		r.parts++
	}
	if r.parts == 0 {
		return nil, r.fail(notCapture(nil))
	}
	rec.Seq, rec.Conn = r.seq.shift(rec.Seq), r.conn.shift(rec.Conn)
	rec.Exchange = r.exchange.shift(rec.Exchange)
	if rec.Ref != 0 {
		rec.Ref += r.seq.base
	}
	rec.Call, rec.Parent = r.call.shift(rec.Call), r.call.shift(rec.Parent)
	rec.side = r.sideOf(rec)
	return rec, nil
}

// sideOf returns the upstream to which the connection of a record leads. The record of the
// connection names it; where that is missing, a request does.
func (r *Reader) sideOf(rec *Record) string {
	names := rec.Type == typeConn || rec.Kind == kindRequest || rec.Kind == kindNotification
	if names && rec.Upstream != "" && rec.Conn != 0 {
		if len(r.sides) >= maxConns {
			clear(r.sides) // the next request of each names it again
		}
		r.sides[rec.Conn] = rec.Upstream
	}
	return r.sides[rec.Conn]
}

func (r *Reader) fail(err error) error {
	r.err = err
	return err
}

// readLine returns a line without its line feed.
func (r *Reader) readLine() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	r.n++
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.longLine(line)
		if err != nil && len(line) > maxLine {
			return nil, err
		}
	}
	switch {
	case err == nil:
		return line[:len(line)-1], nil
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		r.err = io.EOF
		r.torn = errors.Is(err, io.ErrUnexpectedEOF) || len(line) > 0
		return nil, io.EOF
	}
	return nil, r.fail(fmt.Errorf("line %d: %w", r.n, err))
}

// longLine reads the rest of a line. It skips one that is too long.
func (r *Reader) longLine(start []byte) ([]byte, error) {
	r.line = append(r.line[:0], start...)
	for {
		part, err := r.in.ReadSlice('\n')
		if len(r.line) <= maxLine {
			r.line = append(r.line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return r.line[:min(len(r.line), maxLine)], err
		case len(r.line) > maxLine:
			return r.line, fmt.Errorf("line %d: it has more than %d bytes", r.n, maxLine)
		}
		return r.line, nil
	}
}
