package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A file is one of an archive.
type file struct {
	name string
	text []byte
	mode fs.FileMode
}

func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int {
		return strings.Compare(a.name, b.name)
	})
}

// packTar writes a .tar.gz in which all files are below dir, owned by root, with the same date.
func packTar(name, dir string, files []file, date time.Time) error {
	return create(name, func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		t := tar.NewWriter(z)
		for _, f := range files {
			h := &tar.Header{
				Name: dir + "/" + f.name, Mode: int64(f.mode), Size: int64(len(f.text)), ModTime: date,
				Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
			}
			if err := t.WriteHeader(h); err != nil {
				return err
			}
			if _, err := t.Write(f.text); err != nil {
				return err
			}
		}
		return errors.Join(t.Close(), z.Close())
	})
}

// packZip writes the same as a .zip.
func packZip(name, dir string, files []file, date time.Time) error {
	return create(name, func(w io.Writer) error {
		z := zip.NewWriter(w)
		for _, f := range files {
			h := &zip.FileHeader{Name: dir + "/" + f.name, Method: zip.Deflate, Modified: date}
			h.SetMode(f.mode)
			part, err := z.CreateHeader(h)
			if err != nil {
				return err
			}
			if _, err := part.Write(f.text); err != nil {
				return err
			}
		}
		return z.Close()
	})
}

func create(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func sum(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeSums writes what sha256sum --check reads.
func (r *release) writeSums() error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.sums)) {
		fmt.Fprintf(&b, "%s  %s\n", r.sums[name], name)
	}
	return os.WriteFile(filepath.Join(r.dir, "SHA256SUMS"), []byte(b.String()), 0o644)
}
