package lock

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// followEvery is how often a file is looked at.
const followEvery = time.Second

// maxFile bounds a file in bytes.
const maxFile = 32 << 20

// A File follows a file of locks. Its methods may be called concurrently.
type File struct {
	path    string
	changed func()      // after other locks count
	fault   func(error) // when the file cannot be used
	set     atomic.Pointer[Set]

	stop chan struct{}
	done sync.WaitGroup
	once sync.Once
}

// A stamp tells versions of a file apart.
type stamp struct {
	size, nanos int64
	mode        fs.FileMode
	missing     bool
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{missing: true}
	}
	return stamp{info.Size(), info.ModTime().UnixNano(), info.Mode(), false}
}

// Follow reads a file of locks, and reads it again when it has changed, within a second. A
// file that is missing or not valid is an error here; later the locks of before go on, and
// fault is called. Close ends it.
func Follow(path string, changed func(), fault func(error)) (*File, error) {
	f := &File{path: path, changed: changed, fault: fault, stop: make(chan struct{})}
	seen := stampOf(path)
	if err := f.read(); err != nil {
		return nil, err
	}
	f.done.Go(func() { f.follow(seen) })
	return f, nil
}

// Set returns the locks that count now.
func (f *File) Set() *Set {
	if f == nil {
		return nil
	}
	return f.set.Load()
}

// Close ends the following, and waits for it.
func (f *File) Close() {
	f.once.Do(func() { close(f.stop) })
	f.done.Wait()
}

func (f *File) follow(seen stamp) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		now := stampOf(f.path)
		if now == seen {
			continue
		}
		seen = now
		if err := f.read(); err != nil {
			f.fault(fmt.Errorf("%w; the locks of before go on", err))
			continue
		}
		f.changed()
	}
}

func (f *File) read() error {
	all, err := Read(f.path)
	if err != nil {
		return err
	}
	set, err := NewSet(all)
	if err == nil {
		f.set.Store(set)
	}
	return err
}

// Read reads a file of locks.
func Read(path string) ([]Lock, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cannot read the locks %s: %w; 'farcall lock add' makes the file, or make an empty one", path, fs.ErrNotExist)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, fmt.Errorf("%s: it is not a file of at most %d MB", path, maxFile>>20)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// Add appends a lock to a file, which it makes when there is none, with mode 0600.
func Add(path string, l *Lock) error {
	if err := l.Check(); err != nil {
		return err
	}
	if _, err := Read(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // it would not be read with this line either
	}
	line, err := l.appendLine(nil)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	_, err = f.Write(line) // at once: another process may append as well
	return errors.Join(err, f.Sync(), f.Close())
}

// Remove removes the locks for which drop is true from a file, and returns how many there
// were. Other lines stay as they are; the file is replaced in one step.
func Remove(path string, drop func(*Lock) bool) (removed int, err error) {
	if _, err := Read(path); err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var kept bytes.Buffer
	for line := range bytes.Lines(text) {
		if all, err := Parse(line); err == nil && len(all) == 1 && drop(&all[0]) {
			removed++
			continue
		}
		kept.Write(line)
	}
	if removed == 0 {
		return 0, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return 0, err
	}
	_, err = f.Write(kept.Bytes())
	err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return removed, err
}
