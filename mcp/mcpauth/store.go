package mcpauth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/filelock"
	"github.com/farcall-dev/farcall/internal/replace"
	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	storeVersion = "1"
	maxStore     = 16 << 20 // of the file, in bytes
	maxEntry     = 1 << 20  // of one value
	storeDepth   = 64
)

// locker is a Store that keeps others away from one key while a token is refreshed, also
// other processes: a refresh token counts once, and who uses it again may lose all.
type locker interface {
	Lock(ctx context.Context, key string) (unlock func(), err error)
}

// exclusive keeps others from a key of a store, if that can.
func exclusive(ctx context.Context, s Store, key string) (unlock func(), err error) {
	if l, ok := s.(locker); ok {
		return l.Lock(ctx, key)
	}
	return func() {}, nil
}

// fileStore is all entries in one file:
//
//	{"version":1,
//	"tokens":{
//	"KEY":VALUE
//	}}
//
// It is read for each Load, and written again for each Save.
type fileStore struct {
	path string
	mu   sync.Mutex
	held map[string]chan struct{} // by key: closed when it is free
}

// NewFileStore returns a Store in a file, which may be used by any number of goroutines and
// processes at once. Values are JSON, of 1 MB at most. The file is made when it is
// needed, with the mode 0600, in a directory of the mode 0700. One that others can
// read or replace is refused, and one that is damaged is left as it is. On Windows the
// file has the access rules of its directory. Beside the file are others that serve as locks;
// they are empty.
func NewFileStore(path string) Store { return &fileStore{path: path, held: map[string]chan struct{}{}} }

// Load implements Store.
func (s *fileStore) Load(ctx context.Context, key string) ([]byte, error) {
	all, err := s.snapshot(ctx)
	return all[key], err
}

// Save implements Store.
func (s *fileStore) Save(ctx context.Context, key string, value []byte) error {
	end, fault := scan.Text(value, storeDepth)
	switch {
	case fault != 0 || end != len(value):
		return errors.New("mcpauth: a value for the token store is not JSON")
	case len(value) > maxEntry:
		return fmt.Errorf("mcpauth: a value for the token store has %d bytes, more than %d", len(value), maxEntry)
	}
	value = bytes.Clone(value)
	return s.change(ctx, func(all map[string][]byte) bool {
		if bytes.Equal(all[key], value) {
			return false
		}
		all[key] = value
		return true
	})
}

// Delete implements Store.
func (s *fileStore) Delete(ctx context.Context, key string) error {
	return s.change(ctx, func(all map[string][]byte) bool {
		_, there := all[key]
		delete(all, key)
		return there
	})
}

// Lock implements locker.
func (s *fileStore) Lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		s.mu.Lock()
		taken := s.held[key]
		free := make(chan struct{})
		if taken == nil {
			s.held[key] = free
		}
		s.mu.Unlock()
		if taken == nil {
			return s.lockFile(ctx, key, free)
		}
		select {
		case <-taken:
		case <-ctx.Done():
			return nil, fmt.Errorf("mcpauth: another refresh of this token goes on: %w", ctx.Err())
		}
	}
}

// lockFile keeps other processes away, too.
func (s *fileStore) lockFile(ctx context.Context, key string, free chan struct{}) (unlock func(), err error) {
	release := func() {
		s.mu.Lock()
		delete(s.held, key)
		s.mu.Unlock()
		close(free)
	}
	path, err := s.prepare()
	if err != nil {
		release()
		return nil, err
	}
	sum := sha256.Sum256([]byte(key))
	f, err := acquire(ctx, path+"."+hex.EncodeToString(sum[:8])+".lock", true)
	if err != nil {
		release()
		return nil, err
	}
	return func() {
		_ = f.Close() // which ends the lock in any case
		release()
	}, nil
}

// snapshot reads the file.
func (s *fileStore) snapshot(ctx context.Context) (map[string][]byte, error) {
	path, err := s.resolve()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS == "windows" { // where a file that is being read cannot be replaced
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return map[string][]byte{}, nil
		}
		lock, err := acquire(ctx, path+".lock", false)
		if err != nil {
			return nil, err
		}
		defer lock.Close() //nolint:errcheck // it has nothing in it
	}
	return readStore(path)
}

// change reads the file and writes it again if do says so, while no other process does.
func (s *fileStore) change(ctx context.Context, do func(map[string][]byte) bool) error {
	path, err := s.prepare()
	if err != nil {
		return err
	}
	lock, err := acquire(ctx, path+".lock", true)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // it has nothing in it
	all, err := readStore(path)
	if err != nil || !do(all) {
		return err
	}
	if err := replace.Whole(path, appendStore(nil, all), 0o600); err != nil {
		return fmt.Errorf("mcpauth: the token store could not be written, and is as it was before: %w", err)
	}
	return nil
}

// resolve returns the path behind links, so that the file is replaced and no link to it.
func (s *fileStore) resolve() (string, error) {
	path, err := filepath.EvalSymlinks(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A file may be there now: another writer makes it at this moment.
		if info, lost := os.Lstat(s.path); lost == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", fmt.Errorf("mcpauth: the token store %s is a link to nothing; remove it", s.path)
		}
		return s.path, nil
	case err != nil:
		return "", fmt.Errorf("mcpauth: the token store cannot be reached: %w", err)
	}
	return path, nil
}

// prepare is resolve for those who write: there is a directory afterwards.
func (s *fileStore) prepare() (string, error) {
	path, err := s.resolve()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("mcpauth: the directory of the token store cannot be made: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("mcpauth: the token store cannot be reached: %w", err)
	}
	if runtime.GOOS != "windows" && info.Mode()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return "", fmt.Errorf("mcpauth: others can replace the token store: the directory %s has the mode %04o; chmod go-w it, or keep the tokens elsewhere", dir, info.Mode().Perm())
	}
	return path, nil
}

// readStore reads a file that may not be there.
func readStore(path string) (map[string][]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|dontWait, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string][]byte{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the token store cannot be read: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the token store cannot be read: %w", err)
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return nil, fmt.Errorf("mcpauth: the token store %s is no file", path)
	case runtime.GOOS != "windows" && mode.Perm()&0o077 != 0:
		return nil, fmt.Errorf("mcpauth: others can read the token store: %s has the mode %04o; chmod 600 it, and log in again if another user may have read it", path, mode.Perm())
	case !ours(info):
		return nil, fmt.Errorf("mcpauth: the token store %s belongs to another user; remove it, or keep the tokens elsewhere", path)
	case info.Size() > maxStore:
		return nil, fmt.Errorf("mcpauth: the token store %s has %d bytes, more than %d; move it away and log in again", path, info.Size(), maxStore)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxStore+1))
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the token store cannot be read: %w", err)
	}
	all, err := parseStore(data)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the token store %s %w; it is left as it is: repair it, or move it away and log in again", path, err)
	}
	return all, nil
}

var (
	errNoStore  = errors.New("is damaged: it is not what farcall has written")
	errTwice    = errors.New("is damaged: a member is there twice")
	errNewStore = errors.New("was written by a later version of farcall")
)

// parseStore reads the text of a file. The values share its memory.
func parseStore(data []byte) (map[string][]byte, error) {
	if end, fault := scan.Text(data, storeDepth); fault != 0 || end != len(data) {
		return nil, fmt.Errorf("is damaged at byte %d", end)
	}
	var version, tokens []byte
	err := members(data, func(name string, value []byte) error {
		switch name {
		case "version":
			version = value
		case "tokens":
			tokens = value
		default:
			return errNoStore
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case string(version) != storeVersion && len(version) > 0 && version[0] >= '1' && version[0] <= '9':
		return nil, errNewStore
	case string(version) != storeVersion || tokens == nil:
		return nil, errNoStore
	}
	all := map[string][]byte{}
	return all, members(tokens, func(key string, value []byte) error {
		all[key] = value
		return nil
	})
}

// members calls do with the members of a valid object; no member may be there twice.
func members(object []byte, do func(name string, value []byte) error) (err error) {
	if object = bytes.TrimSpace(object); len(object) == 0 || object[0] != '{' {
		return errNoStore
	}
	seen := map[string]bool{}
	scan.Object(object, func(key, value []byte) bool {
		name := string(key)
		if seen[name] {
			err = errTwice
			return false
		}
		seen[name] = true
		err = do(name, value)
		return err == nil
	})
	return err
}

// appendStore writes what parseStore reads.
func appendStore(b []byte, all map[string][]byte) []byte {
	b = append(b, `{"version":`+storeVersion+",\n\"tokens\":{\n"...)
	for i, key := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = scan.AppendQuoted(b, key)
		b = append(b, ':')
		b = append(b, all[key]...)
	}
	return append(b, "\n}}\n"...)
}

const (
	lockPause    = 5 * time.Millisecond
	maxLockPause = 100 * time.Millisecond
)

// acquire locks a file, which it makes if need be. The lock ends when the file is closed, or
// with the process. What is locked is never removed, for another process might wait for it.
func acquire(ctx context.Context, path string, exclusive bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noLink, 0o600)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the token store cannot be locked: %w", err)
	}
	for pause := lockPause; ; pause = min(2*pause, maxLockPause) {
		ok, err := filelock.Try(f, exclusive)
		if ok {
			return f, nil
		}
		if err != nil {
			_ = f.Close() // it has nothing in it
			return nil, fmt.Errorf("mcpauth: the token store cannot be locked: %w", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			_ = f.Close() // it has nothing in it
			return nil, fmt.Errorf("mcpauth: another process uses the token store: %w", ctx.Err())
		}
	}
}
