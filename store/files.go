package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/filelock"
)

// The names of files: a record, one that is being written, and one that was found to be no record.
const (
	recordSuffix  = ".record"
	newSuffix     = ".new"
	corruptSuffix = ".corrupt"
	lockName      = "lock"
)

// files keeps each record in its own file, which is replaced as a whole: written to another name,
// synced, renamed, and the directory synced.
type files struct {
	dir  string
	lock *os.File
}

// Open returns a store in a directory, which it makes if it is not there, for this user only. The
// directory belongs to one process at a time: while another has it open Open fails with ErrInUse
// (flock, LockFileEx; on systems that have neither, the user sees to it).
//
// A record that Put has written survives the death of the process at any point (kill -9), and a
// loss of power where fsync does what it promises; Windows cannot sync a directory, and may lose
// the last records with the power. Each Put waits for two syncs, those of concurrent ones often go
// together. Expired records are removed within a second or so.
//
// Open reads all records. A file that is not whole, or is none of this package, is logged and
// renamed to NAME.corrupt; what is whole is kept.
func Open(dir string, o *Options) (*Local, error) {
	l := newLocal(o, defaultDisk)
	f, err := openFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("store: open %s: %w", dir, err)
	}
	l.files = f
	if err := l.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("store: open %s: %w", dir, err), f.close())
	}
	return l, nil
}

func openFiles(dir string) (*files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	switch ok, err := filelock.Try(lock, true); {
	case err != nil:
		return nil, errors.Join(err, lock.Close())
	case !ok:
		return nil, errors.Join(ErrInUse, lock.Close())
	}
	return &files{dir: dir, lock: lock}, nil
}

func (f *files) close() error { return filelock.Close(f.lock) }

func (f *files) path(name string) string { return filepath.Join(f.dir, name+recordSuffix) }

// load finds the records of the directory.
func (l *Local) load() error {
	list, err := os.ReadDir(l.files.dir)
	if err != nil {
		return err
	}
	for _, d := range list {
		name, is := strings.CutSuffix(d.Name(), recordSuffix)
		switch {
		case !d.Type().IsRegular():
			if is || strings.HasSuffix(d.Name(), newSuffix) {
				l.logger.Error("store: passed over an entry that is not a file; remove it",
					slog.String("path", filepath.Join(l.files.dir, d.Name())))
			}
		case strings.HasSuffix(d.Name(), newSuffix): // Put has not returned
			if err := os.Remove(filepath.Join(l.files.dir, d.Name())); err != nil {
				return err
			}
		case is:
			if err := l.loadRecord(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Local) loadRecord(name string) error {
	r, err := l.files.read(name)
	var pathError *fs.PathError
	switch {
	case errors.As(err, &pathError):
		return err
	case err != nil:
		path := l.files.path(name)
		l.logger.Error("store: passed over a file that is no whole record; it is kept as "+corruptSuffix,
			slog.String("file", path), slog.Any("error", err))
		if err := os.Rename(path, path+corruptSuffix); err != nil {
			l.logger.Error("store: the file could not be renamed; remove it", slog.String("file", path),
				slog.Any("error", err))
		}
		return nil
	case !r.Expires.After(time.Now()):
		return l.files.remove(name)
	}
	e := &entry{owner: ownerOf(r), version: r.Version, expires: r.Expires, cost: costOf(r)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held.Add(e.owner, e.cost)
	l.entries[name] = e
	l.scheduleLocked(e.expires)
	return nil
}

// write writes a record. After an error the old one is still there, unless it is unsure.
func (f *files) write(name string, r *Record) (unsure bool, err error) {
	path := f.path(name)
	made := path + newSuffix
	if err := writeSynced(made, encode(r)); err != nil {
		_ = os.Remove(made)
		return false, err
	}
	if err := os.Rename(made, path); err != nil {
		_ = os.Remove(made)
		return false, err
	}
	if err := f.sync(); err != nil {
		return true, err
	}
	return false, nil
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// sync makes the names of files durable.
func (f *files) sync() error {
	if runtime.GOOS == "windows" { // directories cannot be synced there
		return nil
	}
	d, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f *files) read(name string) (*Record, error) {
	file, err := os.Open(f.path(name))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	r, err := decode(b)
	if err == nil && nameOf(r.Owner, r.ID) != name {
		return nil, errors.New("it is the record of another file")
	}
	return r, err
}

func (f *files) remove(name string) error {
	err := os.Remove(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// A file is: magic, checksum of all that follows (CRC-32C), version, expiry (Unix, nanoseconds),
// the lengths of owner, group and id, these, and the value. Numbers are big-endian.
const (
	magic      = "FCR1"
	headerSize = len(magic) + 4 + 8 + 8 + 3*4
)

// MarshalBinary returns the record as a store may write it, with a checksum.
func (r *Record) MarshalBinary() ([]byte, error) { return encode(r), nil }

// UnmarshalBinary reads what MarshalBinary returned. The value lies in b.
func (r *Record) UnmarshalBinary(b []byte) error {
	read, err := decode(b)
	if err != nil {
		return fmt.Errorf("store: a record: %w", err)
	}
	*r = *read
	return nil
}

func encode(r *Record) []byte {
	b := make([]byte, 0, headerSize+len(r.Owner)+len(r.Group)+len(r.ID)+len(r.Value))
	b = append(b, magic+"\x00\x00\x00\x00"...)
	b = binary.BigEndian.AppendUint64(b, r.Version)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Expires.UnixNano()))
	for _, text := range []string{r.Owner, r.Group, r.ID} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	}
	b = append(b, r.Owner+r.Group+r.ID...)
	b = append(b, r.Value...)
	binary.BigEndian.PutUint32(b[len(magic):], checksum(b))
	return b
}

func checksum(file []byte) uint32 {
	return crc32.Checksum(file[len(magic)+4:], crc32.MakeTable(crc32.Castagnoli))
}

// decode reads a file. The value lies in b.
func decode(b []byte) (*Record, error) {
	switch {
	case len(b) < headerSize:
		return nil, fmt.Errorf("it has %d bytes, of the %d of a header", len(b), headerSize)
	case string(b[:len(magic)]) != magic:
		return nil, fmt.Errorf("it does not begin with %q", magic)
	case binary.BigEndian.Uint32(b[len(magic):]) != checksum(b):
		return nil, errors.New("its checksum does not match: it is truncated or was changed")
	}
	n := b[len(magic)+4:]
	r := &Record{
		Version: binary.BigEndian.Uint64(n),
		Expires: time.Unix(0, int64(binary.BigEndian.Uint64(n[8:]))),
	}
	rest := b[headerSize:]
	for i, text := range []*string{&r.Owner, &r.Group, &r.ID} {
		size := uint64(binary.BigEndian.Uint32(n[16+4*i:]))
		if size > uint64(len(rest)) {
			return nil, fmt.Errorf("a text of %d bytes does not fit into it", size)
		}
		*text, rest = string(rest[:size]), rest[size:]
	}
	r.Value = rest
	return r, nil
}
