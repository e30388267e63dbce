package mcpauth

import (
	"bytes"
	"cmp"
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
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/replace"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	storeVersion = 1
	maxStore     = 16 << 20 // of the file, in bytes
	maxEntry     = 1 << 20  // of one value
	storeDepth   = 64
)

// locker is a Store that keeps others away from one key while a token is refreshed, also
// other processes: a refresh token counts once, and who uses it again may lose all.
type locker interface {
	Lock(ctx context.Context, key string) (unlock func(), err error)
}

// marker is a locker of several machines, where a process that holds a lock may end or be stopped.
// It notes that a refresh token is about to be sent, so that no other process sends it when the
// outcome is unknown.
type marker interface {
	locker
	// Mark is called while the key is locked. After an error nothing is sent. unused is called when
	// the token was not used: the authorization server has refused it, or was not reached.
	Mark(ctx context.Context, key string) (unused func(), err error)
}

// markTime is how long a request with a refresh token may take that a marker has noted, whether the
// caller waits for it or not.
const markTime = 20 * time.Second

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
func NewFileStore(path string) Store {
	return &fileStore{path: path, held: map[string]chan struct{}{}}
}

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
		return fmt.Errorf("mcpauth: a value for the token store has %d bytes, more than %d", len(value),
			maxEntry)
	}
	value = bytes.Clone(value)
	return s.change(ctx, func(all map[string]jsonrpc.Raw) bool {
		if bytes.Equal(all[key], value) {
			return false
		}
		all[key] = value
		return true
	})
}

// Delete implements Store.
func (s *fileStore) Delete(ctx context.Context, key string) error {
	return s.change(ctx, func(all map[string]jsonrpc.Raw) bool {
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
func (s *fileStore) lockFile(
	ctx context.Context, key string, free chan struct{},
) (unlock func(), err error) {
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
func (s *fileStore) snapshot(ctx context.Context) (map[string]jsonrpc.Raw, error) {
	path, err := s.resolve()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS == "windows" { // where a file that is being read cannot be replaced
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return map[string]jsonrpc.Raw{}, nil
		}
		lock, err := acquire(ctx, path+".lock", false)
		if err != nil {
			return nil, err
		}
		defer filelock.Close(lock) //nolint:errcheck // it has nothing in it
	}
	return readStore(path)
}

// change reads the file and writes it again if do says so, while no other process does.
func (s *fileStore) change(ctx context.Context, do func(map[string]jsonrpc.Raw) bool) error {
	path, err := s.prepare()
	if err != nil {
		return err
	}
	lock, err := acquire(ctx, path+".lock", true)
	if err != nil {
		return err
	}
	defer filelock.Close(lock) //nolint:errcheck // it has nothing in it
	all, err := readStore(path)
	if err != nil || !do(all) {
		return err
	}
	if err := replace.Whole(path, appendStore(nil, all), 0o600); err != nil {
		return fmt.Errorf("mcpauth: the token store could not be written, and is as it was before: %w",
			err)
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
		return "",
			fmt.Errorf("mcpauth: others can replace the token store: the directory %s has the mode %04o; "+
				"chmod go-w it, or keep the tokens elsewhere", dir, info.Mode().Perm())
	}
	return path, nil
}

// readStore reads a file that may not be there.
func readStore(path string) (map[string]jsonrpc.Raw, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|dontWait, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]jsonrpc.Raw{}, nil
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
		return nil,
			fmt.Errorf("mcpauth: others can read the token store: %s has the mode %04o; chmod 600 it, and "+
				"log in again if another user may have read it", path, mode.Perm())
	case !ours(info):
		return nil,
			fmt.Errorf(
				"mcpauth: the token store %s belongs to another user; remove it, or keep the tokens elsewhere",
				path)
	case info.Size() > maxStore:
		return nil,
			fmt.Errorf(
				"mcpauth: the token store %s has %d bytes, more than %d; move it away and log in again", path,
				info.Size(), maxStore)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxStore+1))
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the token store cannot be read: %w", err)
	}
	all, err := parseStore(data)
	if err != nil {
		return nil,
			fmt.Errorf("mcpauth: the token store %s %w; it is left as it is: repair it, or move it away "+
				"and log in again", path, err)
	}
	return all, nil
}

// stored is the text of a file.
type stored struct {
	Version int                    `json:"version"`
	Tokens  map[string]jsonrpc.Raw `json:"tokens"`
}

// parseStore reads the text of a file.
func parseStore(data []byte) (map[string]jsonrpc.Raw, error) {
	if end, fault := scan.Text(data, storeDepth); fault != 0 || end != len(data) {
		return nil, fmt.Errorf("is damaged at byte %d", end)
	}
	var f stored
	switch err := jsonv2.UnmarshalStrict(data, &f); {
	case f.Version > storeVersion:
		return nil, errors.New("was written by a later version of farcall")
	case err != nil:
		p := jsonv2.Explain(err)
		return nil, fmt.Errorf("is damaged: at %.100q: %s", p.Pointer,
			cmp.Or(p.Reason, "it is not what farcall has written"))
	case f.Version != storeVersion || f.Tokens == nil:
		return nil, errors.New("is damaged: it is not what farcall has written")
	}
	return f.Tokens, nil
}

// appendStore writes what parseStore reads.
func appendStore(b []byte, all map[string]jsonrpc.Raw) []byte {
	b = fmt.Appendf(b, "{\"version\":%d,\n\"tokens\":{\n", storeVersion)
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

// acquire locks a file, until filelock.Close.
func acquire(ctx context.Context, path string, exclusive bool) (*os.File, error) {
	f, err := filelock.Wait(ctx, path, noLink, exclusive)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the token store cannot be locked: %w", err)
	}
	return f, nil
}
