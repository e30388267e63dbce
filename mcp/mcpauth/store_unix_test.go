//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package mcpauth

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Others may put things into a directory like /tmp: a pipe makes no process wait, and no link has a
// file made elsewhere.
func TestFileStoreAmongOthers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := NewFileStore(pipe).Load(ctx, "a")
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a pipe has tokens")
		}
	case <-ctx.Done():
		t.Error("it waits for a writer of a pipe")
		if f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	}
	path, elsewhere := filepath.Join(dir, "tokens.json"), filepath.Join(dir, "elsewhere")
	if err := os.Symlink(elsewhere, path+".lock"); err != nil {
		t.Skip(err)
	}
	if err := NewFileStore(path).Save(ctx, "a", []byte(`1`)); err == nil {
		t.Error("it follows a link to its lock")
	}
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("a file was made elsewhere")
	}
}
