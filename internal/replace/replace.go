// Package replace answers one question: how does a file get another text in one step?
package replace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// File is Whole for a file that must still be what it was; none is as an empty one. before, when it
// is not nil, runs after that was found, and its error leaves the file as it is.
func File(path string, old, text []byte, mode fs.FileMode, before func() error) error {
	return whole(path, text, mode, func() error {
		switch now, err := os.ReadFile(path); {
		case errors.Is(err, fs.ErrNotExist) && len(old) == 0:
		case err != nil:
			return err
		case !bytes.Equal(now, old):
			return fmt.Errorf("%s was changed in the meantime: try again", path)
		}
		if before == nil {
			return nil
		}
		return before()
	})
}

// Whole writes a text beside a path and renames it: the file is replaced as a whole or not at all.
func Whole(path string, text []byte, mode fs.FileMode) error {
	return whole(path, text, mode, func() error { return nil })
}

func whole(path string, text []byte, mode fs.FileMode, before func() error) (err error) {
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
	if err := before(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
