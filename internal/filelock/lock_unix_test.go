//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filelock

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A child that is being started has a copy of the file. It holds no lock that was given up.
func TestCloseUnlocksCopies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	locked := func() (f *os.File, ok bool) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		ok, err = Try(f, true)
		if err != nil {
			t.Fatal(err)
		}
		return f, ok
	}
	first, ok := locked()
	if !ok {
		t.Fatal("a new file is locked")
	}
	second, ok := locked()
	if ok {
		t.Error("a file was locked twice")
	}
	if err := Close(second); err != nil {
		t.Error(err)
	}
	if second, ok = locked(); ok {
		t.Error("closing a file that is not locked unlocks another one")
	}
	second.Close()
	descriptor, err := syscall.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(descriptor) // as a child does when it runs its program
	if err := Close(first); err != nil {
		t.Error(err)
	}
	last, ok := locked()
	if !ok {
		t.Error("the copy holds the lock")
	}
	if err := Close(last); err != nil {
		t.Error(err)
	}
}
