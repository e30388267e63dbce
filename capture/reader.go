package capture

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
)

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
		z, err := zstd.NewReader(r.in,
			zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		r.in = bufio.NewReaderSize(z, readSize)
		r.close = append(r.close, func() error { z.Close(); return nil })
		start, err = r.in.Peek(len(zstdMagic))
		if err != nil && len(start) == 0 {
			return nil, errors.Join(r.Close(), notCapture(err))
		}
	}
	if len(start) == 0 {
		return nil, notCapture(err)
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
		if errors.Is(err, io.ErrUnexpectedEOF) || len(line) > 0 {
			r.torn = true
		}
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
