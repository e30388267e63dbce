// Package lock answers one question: is this caller locked out?
//
// A lock refuses a principal, a key, a token or a session with credentials that are still
// valid, until it expires or is removed. Locks are a list, or a file with one JSON object
// on each line, which a running server follows.
package lock

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/replace"
)

// A Lock locks one target: exactly one of Principal, Key, JTI and Session is given.
type Lock struct {
	// Principal is the name of a principal: its id, or ISSUER|ID where an issuer vouches for it.
	Principal string `json:"principal,omitempty"`
	// Key is the hash of an API key (sha256:…), the keyid of signatures, the kid or the DPoP
	// thumbprint (jkt) of tokens, or the SHA-256 of a client certificate (sha256:…).
	Key string `json:"key,omitempty"`
	// JTI is the claim jti of a token.
	JTI string `json:"jti,omitempty"`
	// Session is the id of an MCP session over HTTP.
	Session string `json:"session,omitempty"`
	// Reason is for the audit, the log, and callers who may know it.
	Reason string `json:"reason,omitempty"`
	// Expires is the end of the lock; zero: it has none.
	Expires time.Time `json:"expires,omitzero"`
	// Created is when it was made, for people.
	Created time.Time `json:"created,omitzero"`
}

// A target is what a lock is about: the name of the member, and its value.
type target struct{ kind, value string }

func (l *Lock) targets() (all []target) {
	for _, t := range []target{
		{"principal", l.Principal},
		{"key", l.Key},
		{"jti", l.JTI},
		{"session", l.Session},
	} {
		if t.value != "" {
			all = append(all, t)
		}
	}
	return all
}

// Target returns what the lock is about, for people: principal ci.
func (l *Lock) Target() string {
	if all := l.targets(); len(all) == 1 {
		return all[0].kind + " " + all[0].value
	}
	return "no target"
}

// Same reports whether two locks are about the same target.
func (l *Lock) Same(other *Lock) bool {
	a, b := l.targets(), other.targets()
	return len(a) == 1 && len(b) == 1 && a[0] == b[0]
}

// Check returns what is wrong with a lock.
func (l *Lock) Check() error {
	if n := len(l.targets()); n != 1 {
		return fmt.Errorf("a lock names one of principal, key, jti and session, and this names %d", n)
	}
	return nil
}

// A Set finds locks. It is not changed. A nil Set has none.
type Set struct{ by map[target]Lock }

// NewSet returns a set of valid locks. Of two about one target the one that lasts longer counts.
func NewSet(locks []Lock) (*Set, error) {
	if len(locks) == 0 {
		return nil, nil
	}
	s := &Set{by: make(map[target]Lock, len(locks))}
	for i := range locks {
		l := &locks[i]
		if err := l.Check(); err != nil {
			return nil, fmt.Errorf("lock %d: %w", i+1, err)
		}
		t := l.targets()[0]
		if old, there := s.by[t]; !there ||
			!old.Expires.IsZero() && (l.Expires.IsZero() || l.Expires.After(old.Expires)) {
			s.by[t] = *l
		}
	}
	return s, nil
}

// A Subject is what a caller can be locked by.
type Subject struct {
	Principal string
	Keys      []string
	JTI       string
	Session   string
}

// Find returns a lock that counts at a time.
func (s *Set) Find(who *Subject, now time.Time) (Lock, bool) {
	if s == nil {
		return Lock{}, false
	}
	for _, t := range [...]target{
		{"principal", who.Principal},
		{"jti", who.JTI},
		{"session", who.Session},
	} {
		if l, ok := s.at(t, now); ok {
			return l, true
		}
	}
	for _, key := range who.Keys {
		if l, ok := s.at(target{"key", key}, now); ok {
			return l, true
		}
	}
	return Lock{}, false
}

func (s *Set) at(t target, now time.Time) (Lock, bool) {
	if t.value == "" {
		return Lock{}, false
	}
	l, ok := s.by[t]
	return l, ok && (l.Expires.IsZero() || now.Before(l.Expires))
}

// maxLocks bounds a file of locks.
const maxLocks = 100_000

// Parse reads locks, one JSON object on each line. Empty lines, and those that begin with #, are
// skipped.
func Parse(text []byte) (all []Lock, err error) {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var l Lock
		if err := jsonv2.UnmarshalStrict(line, &l); err != nil {
			return nil, fmt.Errorf("line %d: %s", n, strings.TrimPrefix(err.Error(), "json: "))
		}
		if err := l.Check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if all = append(all, l); len(all) > maxLocks {
			return nil, errors.New("it has more than 100,000 locks: remove those that have expired")
		}
	}
	return all, nil
}

// appendLine appends the line of a lock.
func (l *Lock) appendLine(dst []byte) ([]byte, error) {
	dst, err := jsonv2.Append(dst, l)
	return append(dst, '\n'), err
}

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
		return nil,
			fmt.Errorf(
				"cannot read the locks %s: %w; 'farcall lock add' makes the file, or make an empty one", path,
				fs.ErrNotExist)
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
	return removed, replace.Whole(path, kept.Bytes(), info.Mode().Perm())
}
