package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Files are read again when one of them has changed, once for each change, also
// for one that is made while they are read.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(a, "1")
	write(b, "1")
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		var touch atomic.Bool // once, while they are read
		files := []string{a, b, c}
		w := New(files[:2], func(before []string) []string {
			if reads.Add(1) == 1 && !slices.Equal(before, files[:2]) {
				t.Errorf("%v were read", before)
			}
			if touch.Swap(false) {
				write(a, "123")
			}
			return files
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
		want := func(what string, n int64) {
			t.Helper()
			<-time.After(5 * Every)
			synctest.Wait()
			if got := reads.Load(); got != n {
				t.Fatalf("%s: read %d times, want %d", what, got, n)
			}
		}
		want("nothing has changed", 0)
		write(c, "1")
		want("a file that is not of them has changed", 0)
		write(b, "12")
		want("one has changed", 1)
		write(c, "12")
		want("one that is of them now has changed", 2)
		touch.Store(true)
		write(b, "123")
		want("one has changed, and one while they were read", 4)
		if err := os.Remove(a); err != nil {
			t.Fatal(err)
		}
		want("the first is gone, as it is while editors write it", 4)
		write(a, "1234")
		want("it is back", 5)
		if err := os.Remove(b); err != nil {
			t.Fatal(err)
		}
		want("another one is gone", 6)
		w.Reload()
		want("they were read for another reason", 7)
	})
}

// A directory is replaced as a whole, by a link to another one, as Kubernetes does with what a
// ConfigMap holds.
func TestWatchReplacedDirectory(t *testing.T) {
	dir := t.TempDir()
	swap := func(version, text string) {
		t.Helper()
		err := errors.Join(
			os.Mkdir(filepath.Join(dir, version), 0o700),
			os.WriteFile(filepath.Join(dir, version, "conf"), []byte(text), 0o600),
			os.Symlink(version, filepath.Join(dir, "..new")),
			os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
		if err != nil {
			t.Fatal(err)
		}
	}
	swap("..1", "1")
	file := filepath.Join(dir, "conf")
	if err := os.Symlink(filepath.Join("..data", "conf"), file); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		read := make(chan string, 1)
		w := New([]string{file}, func(files []string) []string {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Error(err)
			}
			read <- string(text)
			return files
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		defer running.Wait()
		defer cancel()
		swap("..2", "the second")
		if got := <-read; got != "the second" {
			t.Errorf("read %q", got)
		}
	})
}
