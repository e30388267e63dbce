package signin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/filelock"
	"github.com/farcall-dev/farcall/internal/replace"
)

const (
	keyIDSize = 8
	fileHead  = "farcall sign-in 1" // the first line of a file
	suffix    = ".signin"
	maxFile   = 4 << 20 // bytes
)

// A file is a record as it is stored: lines with the version, the id of the key, and the two sealed
// parts.
type file struct {
	key           [keyIDSize]byte
	label, record []byte
}

var encoding = base64.RawStdEncoding.Strict()

func appendFile(b []byte, f *file) []byte {
	b = append(append(b, fileHead...), '\n')
	b = append(hex.AppendEncode(b, f.key[:]), '\n')
	b = append(encoding.AppendEncode(b, f.label), '\n')
	return append(encoding.AppendEncode(b, f.record), '\n')
}

// parseFile reads what appendFile writes, and nothing else.
func parseFile(text []byte) (*file, error) {
	lines := bytes.Split(text, []byte("\n"))
	if len(lines) != 5 || string(lines[0]) != fileHead || len(lines[4]) > 0 ||
		len(lines[1]) != hex.EncodedLen(keyIDSize) {
		return nil, errDamaged
	}
	f := &file{}
	if _, err := hex.Decode(f.key[:], lines[1]); err != nil ||
		!bytes.Equal(hex.AppendEncode(nil, f.key[:]), lines[1]) {
		return nil, errDamaged
	}
	for i, part := range []*[]byte{&f.label, &f.record} {
		line := lines[2+i]
		if bytes.IndexByte(line, '\r') >= 0 { // the decoder skips it
			return nil, errDamaged
		}
		var err error
		if *part, err = encoding.AppendDecode(nil, line); err != nil {
			return nil, errDamaged
		}
	}
	return f, nil
}

// files is a disk that is a directory, with a file for each record.
type files struct{ dir string }

func (d *files) String() string { return d.dir }

// openFiles makes the directory, or checks it.
func openFiles(dir string) (*files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("signin: the directory cannot be made: %w", err)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("signin: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("signin: %s is not a directory", dir)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil,
			fmt.Errorf("signin: other users can use the directory %s, its mode is %04o: chmod 700 it", dir,
				info.Mode().Perm())
	}
	return &files{dir}, nil
}

func (d *files) path(name string) string { return filepath.Join(d.dir, name+suffix) }

func (d *files) read(name string) ([]byte, uint64, error) {
	f, err := os.Open(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("signin: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("signin: %w", err)
	case !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("signin: %s is not a file", f.Name())
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, 0, fmt.Errorf("signin: other users can read %s, its mode is %04o: chmod 600 it",
			f.Name(), info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, 0, fmt.Errorf("signin: %w", err)
	}
	if len(text) > maxFile {
		return nil, 0, errDamaged
	}
	return text, 0, nil
}

// write replaces a file as a whole. The write lock is held.
func (d *files) write(name string, text []byte, _ uint64) error {
	if err := replace.Whole(d.path(name), text, 0o600); err != nil {
		return fmt.Errorf("signin: the tokens were not stored, and the record is as it was: %w", err)
	}
	return nil
}

func (d *files) remove(name string, _ uint64) error {
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("signin: %w", err)
	}
	return nil
}

func (d *files) names() (all []string, err error) {
	list, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("signin: %w", err)
	}
	for _, e := range list {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok {
			all = append(all, name)
		}
	}
	return all, nil
}

// stamp is of the file itself: each write makes another one.
func (d *files) stamp(name string) string {
	info, err := os.Stat(d.path(name))
	if err != nil {
		return ""
	}
	return strconv.FormatInt(info.ModTime().UnixNano(), 36) + inodeOf(info)
}

// lock locks an empty file, which is never removed: another process may wait for it. The lock ends
// with the process.
func (d *files) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := filelock.Wait(ctx, filepath.Join(d.dir, name+".lock"), 0, true)
	if err != nil {
		return nil, fmt.Errorf("signin: %s cannot be locked: %w", d.dir, err)
	}
	return func() { _ = filelock.Close(f) }, nil // it has nothing in it
}
