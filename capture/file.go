package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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
	f.add(f.d.head("").Append(nil))
	f.pending = f.d.appendConns(f.pending)
	return nil
}

// openPath opens the file with mode 0600 and locks it. What is in a compressed one is moved aside
// then: it cannot be continued.
func (f *file) openPath() (err error) {
	defer func() {
		if err != nil && f.f != nil {
			err = errors.Join(err, f.f.Close())
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
		if err := f.f.Close(); err != nil {
			return nil, err
		}
	}
}

// add adds a line.
func (f *file) add(line []byte) {
	f.pending = append(f.pending, line...)
	f.lines++
	if len(f.pending) >= fileBuffer {
		f.write()
	}
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
	err = errors.Join(err, f.f.Close())
	f.f, f.out = nil, nil
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
		err = errors.Join(err, f.f.Close())
		f.f, f.out = nil, nil
	}
	return err
}

func (f *file) close() error {
	f.write()
	f.failed(f.shut())
	return f.err
}

func sortedKeys(m map[uint64]*Record) []uint64 { return slices.Sorted(maps.Keys(m)) }
