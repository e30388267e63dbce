// Package replace answers one question: how does a file get another text in one step, when it is
// still what it was?
package replace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// File writes a text beside a path and renames it. It fails when the file is not what it was; none
// is as an empty one. before, when it is not nil, runs just before that, and its error leaves the
// file as it is.
func File(path string, old, text []byte, mode fs.FileMode, before func() error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	switch now, err := os.ReadFile(path); {
	case errors.Is(err, fs.ErrNotExist) && len(old) == 0:
	case err != nil:
		return err
	case !bytes.Equal(now, old):
		return fmt.Errorf("%s was changed in the meantime: try again", path)
	}
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	return os.Rename(f.Name(), path)
}
