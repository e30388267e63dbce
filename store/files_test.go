package store

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// opened opens a directory until the end of the test.
func opened(t *testing.T, dir string) *Local {
	t.Helper()
	l, err := Open(dir, &Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte(magic))
	f.Add(
		encode(&Record{
			Owner: "o", Group: "g", ID: "id", Version: 3, Expires: time.Unix(1, 2),
			Value: []byte("value"),
		}))
	lengths := encode(&Record{})
	copy(lengths[headerSize-4:], "\xff\xff\xff\xff")
	f.Add(lengths)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= headerSize { // nothing is learnt from wrong checksums
			sum := checksum(b)
			b = bytes.Clone(b)
			b[4], b[5], b[6], b[7] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		}
		r, err := decode(b)
		if err != nil {
			return
		}
		if again := encode(r); !bytes.Equal(again, b) {
			t.Errorf("%x is read and written as %x", b, again)
		}
	})
}

// A record that is deleted while it is read is not found, and no failure.
func TestGetWhileDeleted(t *testing.T) {
	l := opened(t, t.TempDir())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 500 {
			if _, err := l.Put(t.Context(),
				&Record{Owner: "o", ID: "i", Expires: time.Now().Add(time.Hour)}); err != nil {
				t.Error(err)
			}
			if err := l.Delete(t.Context(), "o", "i"); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		if _, err := l.Get(t.Context(), "o", "i"); err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// What is no record in a directory keeps no record from being found.
func TestOddEntries(t *testing.T) {
	for name, odd := range map[string]func(path string) error{
		"directory":     func(p string) error { return os.Mkdir(p, 0o700) },
		"dangling link": func(p string) error { return os.Symlink(p+".nowhere", p) },
		"new directory": func(p string) error { return os.MkdirAll(p+newSuffix+"/x", 0o700) },
		"empty":         func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"corrupt taken": func(p string) error {
			return errors.Join(os.MkdirAll(p+corruptSuffix+"/x", 0o700), os.WriteFile(p, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := opened(t, dir)
			if _, err := l.Put(t.Context(),
				&Record{Owner: "o", ID: "i", Expires: time.Now().Add(time.Hour)}); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(l.Close(),
				odd(filepath.Join(dir, strings.Repeat("a", 40)+recordSuffix))); err != nil {
				t.Fatal(err)
			}
			if _, err := opened(t, dir).Get(t.Context(), "o", "i"); err != nil {
				t.Error(err)
			}
		})
	}
}
