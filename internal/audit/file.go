package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	maxLine = 64 << 10 // bytes; a line of ours is shorter
	lowPart = 0.8      // of a store that refusals may fill: less than one owner can fill with calls
)

// A file is the sink of a path: the file itself takes lines, FILE.1 is the one before it, and so
// on.
type file struct {
	path string
	now  func() time.Time
	note func(*event)

	mu     sync.Mutex
	bounds bounds // under mu

	// For the goroutine of the sink:
	f       *os.File // nil: it has to be opened again
	size    int64
	regular bool
	began   time.Time // of the first line
	torn    bool      // it ends within a line of a process that was killed
	within  bool      // it ends within a line of ours; the rest comes next
	doomed  int       // so many of the oldest files are deleted when that is on record
	used    int       // bytes of the store that are taken: a file before this one counts as full
}

// bounds say how much is kept.
type bounds struct {
	max    int64 // bytes of a file
	keep   int   // old files
	age    time.Duration
	rotate bool
}

func (f *file) limit(o *Options) bounds {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bounds = bounds{max: o.MaxSize, keep: max(o.Keep, 0), age: o.KeepFor, rotate: o.Rotate}
	return f.bounds
}

func (f *file) limits() bounds {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bounds
}

// A tail is how a file ends.
type tail struct {
	seal     seal   // of the last line that has one
	line     []byte // that line; nil: there is none
	torn     int    // bytes of an unfinished line after the last line feed
	tornHash string
}

// resume opens the file and returns how the store ends. A file that has whole lines and no sealed
// one is refused: it is something else, or was stripped, and a chain that began behind it would
// hide that.
func (f *file) resume() (t tail, err error) {
	if err = f.open(); err != nil || !f.regular {
		return t, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // nothing was written
		}
	}()
	if t, err = readTail(f.path); err != nil || t.line != nil {
		return t, err
	}
	if int64(t.torn) < f.size {
		return t,
			fmt.Errorf(
				"%s has lines, and none that farcall has sealed: it is no audit; name another file, or "+
					"move it away", f.path)
	}
	if before, err := readTail(f.old(1)); err == nil && before.line != nil {
		before.torn, before.tornHash = t.torn, t.tornHash
		return before, nil
	}
	return t, nil
}

// readTail reads how a file ends.
func readTail(path string) (t tail, err error) {
	f, err := os.Open(path)
	if err != nil {
		return t, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return t, err
	}
	n := min(info.Size(), 4*maxLine)
	b := make([]byte, n)
	if _, err = f.ReadAt(b, info.Size()-n); err != nil && !errors.Is(err, io.EOF) {
		return t, err
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	if rest := b[end:]; len(rest) > 0 {
		if s, _, ok := readSeal(rest); ok { // only its line feed is missing
			t.seal, t.line = s, rest
			return t, nil
		}
		t.torn, t.tornHash = len(rest), digest(rest)
	}
	for lines := b[:end]; len(lines) > 0 && t.line == nil; {
		at := bytes.LastIndexByte(lines[:len(lines)-1], '\n') + 1
		if s, _, ok := readSeal(lines[at : len(lines)-1]); ok {
			t.seal, t.line = s, lines[at:len(lines)-1]
		}
		lines = lines[:at]
	}
	return t, nil
}

func digest(p []byte) string {
	sum := sha256.Sum256(p)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (f *file) open() error {
	handle, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := handle.Stat()
	regular := err == nil && info.Mode().IsRegular()
	if regular && info.Mode().Perm()&0o077 != 0 {
		err = handle.Chmod(0o600)
	}
	if err == nil && regular {
		err = lock(handle)
	}
	if err != nil {
		_ = handle.Close()
		return err
	}
	f.f, f.size, f.regular = handle, info.Size(), regular
	f.torn, f.began = false, f.now()
	if regular && f.size > 0 && !f.within {
		f.torn = !endsLine(f.path, f.size)
		f.began = cmp.Or(firstTime(f.path), f.began)
	}
	return nil
}

// endsLine reports whether the last line of a file is whole.
func endsLine(path string, size int64) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], size-1)
	return errors.Join(err, f.Close()) == nil && last[0] == '\n'
}

// firstTime returns the time of the first line of a file, zero when it has none.
func firstTime(path string) time.Time {
	f, err := os.Open(path)
	if err != nil {
		return time.Time{}
	}
	defer f.Close() //nolint:errcheck // it was only read
	b := make([]byte, maxLine)
	n, _ := io.ReadFull(f, b) // it may be shorter
	line, _, _ := bytes.Cut(b[:n], []byte{'\n'})
	raw := scan.Member(line, "time")
	if len(raw) < 2 || raw[0] != '"' {
		return time.Time{}
	}
	t, _ := time.Parse(time.RFC3339Nano, string(scan.Unquote(raw)))
	return t
}

// Write writes lines into as many files as it takes. When files cannot be renamed, it says so, and
// goes on with the one there is; so it does when the store is full, for what comes was taken
// already.
func (f *file) Write(p []byte) (n int, err error) {
	b := f.limits()
	n, err = f.write(p, b)
	if err == nil || errors.Is(err, ErrFull) && n == len(p) {
		err = errors.Join(err, f.tidy(b, len(p) > 0))
	}
	return n, err
}

func (f *file) write(p []byte, b bounds) (n int, err error) {
	var renaming error
	for n < len(p) {
		if f.f == nil {
			if err = f.open(); err != nil {
				return n, fmt.Errorf("audit: %w", noRoom(err))
			}
		}
		part := f.fits(p[n:], b)
		if len(part) == 0 && renaming == nil {
			renaming = f.next(b)
			continue
		}
		if len(part) == 0 {
			part = p[n:]
		}
		m, err := f.append(part)
		n += m
		if err != nil && b.rotate && isNoRoom(err) && f.dropOldest() {
			continue
		}
		if err != nil {
			return n, fmt.Errorf("audit: %w", noRoom(err))
		}
	}
	return n, renaming
}

// noRoom makes a full disk a store that is full.
func noRoom(err error) error {
	if isNoRoom(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

func isNoRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota)
}

func (f *file) append(p []byte) (n int, err error) {
	if f.torn {
		if _, err = f.f.WriteString("\n"); err != nil {
			return 0, err
		}
		f.size++
		f.torn = false
	}
	n, err = f.f.Write(p)
	f.size += int64(n)
	if n > 0 {
		f.within = p[n-1] != '\n'
	}
	return n, err
}

// fits returns the lines of p for which the file has room. A file has one line at least.
func (f *file) fits(p []byte, b bounds) []byte {
	old := f.size > 0 && !f.within && f.now().Sub(f.began) > b.age
	room := b.max - f.size
	if !f.regular || int64(len(p)) <= room && !old {
		return p
	}
	if room > 0 && !old {
		if i := bytes.LastIndexByte(p[:room], '\n'); i >= 0 {
			return p[:i+1]
		}
	}
	if f.size > 0 && !f.within {
		return nil
	}
	return p[:bytes.IndexByte(p, '\n')+1]
}

// next begins a new file, where there is room for one.
func (f *file) next(b bounds) error {
	if !b.rotate {
		if err := f.full(b); err != nil {
			return err
		}
	}
	err := f.Close()
	gap := 1
	for ; err == nil; gap++ {
		if info, stat := os.Lstat(f.old(gap)); stat != nil || info.IsDir() {
			break
		}
	}
	for i := gap - 1; i >= 1 && err == nil; i-- {
		err = os.Rename(f.old(i), f.old(i+1))
	}
	if err == nil {
		err = os.Rename(f.path, f.old(1))
	}
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("audit: rotate: %w", err)
	}
	return nil
}

// full returns an error when there may be no further file.
func (f *file) full(b bounds) error {
	all, err := f.olds()
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if len(all)-f.doomed < b.keep {
		return nil
	}
	return fmt.Errorf("%w: %s has %d files of up to %d bytes, none older than %v", ErrFull, f.path,
		len(all)+1, b.max, b.age)
}

// tidy deletes files that are too old, or too many, once it is on record that they are. It returns
// an error when the store is full.
func (f *file) tidy(b bounds, written bool) error {
	if !f.regular {
		return nil
	}
	all, err := f.olds()
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if written && f.doomed > 0 { // the record is written
		for _, name := range all[:min(f.doomed, len(all))] {
			err = errors.Join(err, os.Remove(name))
		}
		all = all[min(f.doomed, len(all)):]
		f.doomed = 0
	}
	if f.doomed == 0 {
		f.doom(all, b)
	}
	if err == nil && !b.rotate && f.size >= b.max {
		err = f.full(b)
	}
	used := float64(b.max)*float64(len(all)) + float64(f.size)
	f.used = int(min(used, math.MaxInt/2))
	if err == nil && !b.rotate && used >= lowPart*float64(b.max)*float64(b.keep+1) {
		err = fmt.Errorf(
			"%w: %s has %d files; when there are %d of %d bytes, calls are refused, and those of the "+
				"caller with most before: "+
				"move old files away, or raise keep or max_size", ErrLow, f.path, len(all)+1, b.keep+1, b.max)
	}
	return err
}

// doom notes which of the old files, the oldest first, are to go.
func (f *file) doom(all []string, b bounds) {
	e := event{name: "deleted"}
	for i, name := range all {
		info, err := os.Stat(name)
		if old := err == nil && f.now().Sub(info.ModTime()) > b.age; old {
			e.reason = "older than keep_for"
		} else if b.rotate && len(all)-i > b.keep {
			e.reason = "more files than keep"
		} else {
			break
		}
		e.files++
	}
	f.doomed = e.files
	if f.doomed > 0 {
		if t, err := readTail(all[f.doomed-1]); err == nil {
			e.through = t.seal
		}
		f.note(&e)
	}
}

// dropOldest makes room on a disk that is full, and notes it.
func (f *file) dropOldest() bool {
	all, err := f.olds()
	if err != nil || len(all) == 0 {
		return false
	}
	e := event{name: "deleted", files: 1, reason: "the disk is full"}
	if t, err := readTail(all[0]); err == nil {
		e.through = t.seal
	}
	if os.Remove(all[0]) != nil {
		return false
	}
	f.doomed = max(0, f.doomed-1)
	f.note(&e)
	return true
}

// olds returns the files before this one, the oldest first.
func (f *file) olds() ([]string, error) { return older(f.path) }

// older returns FILE.N … FILE.1 of a path.
func older(path string) (names []string, err error) {
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	number := func(name string) int {
		digits, ok := strings.CutPrefix(filepath.Base(name), filepath.Base(path)+".")
		if n, err := strconv.Atoi(digits); ok && err == nil && n > 0 && strconv.Itoa(n) == digits {
			return n
		}
		return 0
	}
	for _, entry := range list {
		if number(entry.Name()) > 0 && entry.Type()&fs.ModeDir == 0 {
			names = append(names, filepath.Join(filepath.Dir(path), entry.Name()))
		}
	}
	slices.SortFunc(names, func(a, b string) int { return number(b) - number(a) })
	return names, nil
}

func (f *file) old(i int) string { return f.path + "." + strconv.Itoa(i) }

// Close closes the file, after what was written is on the disk.
func (f *file) Close() error {
	if f.f == nil {
		return nil
	}
	handle := f.f
	f.f = nil
	var err error
	if f.regular {
		err = handle.Sync()
	}
	if err = cmp.Or(err, handle.Close()); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
