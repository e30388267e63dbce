package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/store"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// kinds are the stores that every test of the contract tries.
var kinds = map[string]func(t *testing.T, o *store.Options) *store.Local{
	"memory": func(t *testing.T, o *store.Options) *store.Local { return closed(t, store.New(o)) },
	"directory": func(t *testing.T, o *store.Options) *store.Local {
		return open(t, t.TempDir(), o)
	},
}

func open(t *testing.T, dir string, o *store.Options) *store.Local {
	t.Helper()
	l, err := store.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return closed(t, l)
}

func closed(t *testing.T, l *store.Local) *store.Local {
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func record(owner, id, value string, version uint64) *store.Record {
	return &store.Record{
		Owner: owner, ID: id, Value: []byte(value), Version: version,
		Expires: time.Now().Add(time.Hour),
	}
}

func put(t *testing.T, l store.Records, r *store.Record) {
	t.Helper()
	if v, err := l.Put(t.Context(), r); err != nil || v != r.Version+1 {
		t.Fatalf("Put %s %s: version %d, %v", r.Owner, r.ID, v, err)
	}
}

func all(t *testing.T, l store.Records) map[string]string {
	t.Helper()
	found := map[string]string{}
	for r, err := range l.Adopt(t.Context()) {
		if err != nil {
			t.Error(err)
			continue
		}
		found[r.Owner+"/"+r.ID] = string(r.Value)
	}
	return found
}

func TestContract(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, l := t.Context(), kind(t, nil)
			put(t, l, record("a", "1", "one", 0))
			put(t, l, record("b", "1", "other", 0))
			for _, v := range []uint64{0, 2, 7} {
				if _, err := l.Put(ctx, record("a", "1", "lost", v)); !errors.Is(err, store.ErrConflict) {
					t.Errorf("Put over version %d: %v", v, err)
				}
			}
			put(t, l, record("a", "1", "two", 1))
			if r, err := l.Get(ctx, "a", "1"); err != nil || string(r.Value) != "two" || r.Version != 2 {
				t.Errorf("Get: %+v, %v", r, err)
			}
			if _, err := l.Get(ctx, "a", "2"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("Get of none: %v", err)
			}
			if _, err := l.Put(ctx, record("a", "2", "", 3)); !errors.Is(err, store.ErrConflict) {
				t.Errorf("Put over none: %v", err)
			}
			if got := all(t, l); !maps.Equal(got, map[string]string{"a/1": "two", "b/1": "other"}) {
				t.Errorf("Adopt: %v", got)
			}
			if err := errors.Join(l.Delete(ctx, "a", "1"), l.Delete(ctx, "a", "1"),
				l.Delete(ctx, "c", "")); err != nil {
				t.Error(err)
			}
			if _, err := l.Get(ctx, "a", "1"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("Get of what was deleted: %v", err)
			}
			l.Close()
			_, err := l.Put(ctx, record("a", "1", "", 0))
			if _, gone := l.Get(ctx, "b", "1"); !errors.Is(err, store.ErrClosed) ||
				!errors.Is(gone, store.ErrClosed) {
				t.Errorf("after Close: %v, %v", err, gone)
			}
		})
	}
}

// One of many concurrent writers of a version wins.
func TestOneWriterWins(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := kind(t, nil)
			var won atomic.Int32
			var wait sync.WaitGroup
			for i := range 8 {
				wait.Go(func() {
					for v := range uint64(5) {
						if _, err := l.Put(t.Context(), record("a", "1", fmt.Sprint(i), v)); err == nil {
							won.Add(1)
						} else if !errors.Is(err, store.ErrConflict) {
							t.Error(err)
						}
					}
				})
			}
			wait.Wait()
			if r, err := l.Get(t.Context(), "a", "1"); err != nil || int32(r.Version) != won.Load() {
				t.Errorf("version %+v, %d writers won: %v", r, won.Load(), err)
			}
		})
	}
}

// What expires makes room, and leaves no file.
func TestExpiry(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var l *store.Local
				if name == "directory" {
					l = open(t, dir, nil)
				} else {
					l = kind(t, nil)
				}
				short := record("a", "1", "x", 0)
				short.Expires = time.Now().Add(100 * time.Millisecond)
				put(t, l, short)
				<-time.After(200 * time.Millisecond) // it has expired, and is not removed yet
				put(t, l, record("a", "1", "x", 0))
				<-time.After(time.Hour - time.Nanosecond)
				if _, err := l.Get(t.Context(), "a", "1"); err != nil {
					t.Error(err)
				}
				<-time.After(time.Nanosecond)
				if _, err := l.Get(t.Context(), "a", "1"); !errors.Is(err, store.ErrNotFound) {
					t.Error(err)
				}
				<-time.After(2 * time.Second)
				synctest.Wait()
				if bytes, n := l.Used(); bytes != 0 || n != 0 {
					t.Errorf("%d bytes of %d records are left", bytes, n)
				}
				put(t, l, record("a", "1", "y", 0))
			})
			if name == "directory" {
				if got := recordsIn(t, dir); len(got) != 1 {
					t.Errorf("files: %v", got)
				}
			}
		})
	}
}

func recordsIn(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.record*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestOwnersHaveShares fills a store as one owner, as all sessions of one group, and checks that
// another finds room, and that an ending of what is stored always fits.
func TestOwnersHaveShares(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const size = 64 << 10
			l := kind(t, &store.Options{MaxBytes: 16 * size})
			big := strings.Repeat("x", size-8192)
			for _, group := range []string{"", "g"} {
				n := 0
				for ; n < 100; n++ {
					r := record("greedy", fmt.Sprint(n), big, 0)
					if r.Group = group; group != "" {
						r.Owner = fmt.Sprint("greedy", n)
					}
					if _, err := l.Put(t.Context(), r); errors.Is(err, store.ErrFull) {
						break
					} else if err != nil {
						t.Fatal(err)
					}
				}
				if n == 0 || n > 9 { // half, and the one that crosses it
					t.Errorf("group %q: %d of 16 records fit", group, n)
				}
			}
			put(t, l, record("modest", "1", big, 0))
			put(t, l, record("greedy", "0", "the end of it", 1))
			if used, _ := l.Used(); used > 16*size {
				t.Errorf("%d bytes are used of %d", used, 16*size)
			}
		})
	}
}

// What a directory has is there when it is opened again, and counts.
func TestReopen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "here")
	l := open(t, dir, nil)
	want := map[string]string{}
	for i := range 20 {
		owner, value := fmt.Sprint("owner ", i%3), strings.Repeat("\x00v", i*100)
		put(t, l, record(owner, fmt.Sprint(i), value, 0))
		want[fmt.Sprintf("%s/%d", owner, i)] = value
	}
	short := record("owner 0", "short", "", 0)
	short.Expires = time.Now()
	put(t, l, short)
	used, _ := l.Used()
	if _, err := store.Open(dir, nil); !errors.Is(err, store.ErrInUse) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("opened twice: %v", err)
	}
	l.Close()
	l = open(t, dir, nil)
	if got := all(t, l); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if now, n := l.Used(); n != 20 || now > used || now < used-8192 {
		t.Errorf("%d bytes of %d records, %d before", now, n, used)
	}
	put(t, l, record("owner 0", "0", "next", 1))
}

// A file that is not whole is set aside with a line in the log; the others stay.
func TestCorruptFiles(t *testing.T) {
	t.Parallel()
	harm := map[string]func(b []byte) []byte{
		"truncated": func(b []byte) []byte { return b[:len(b)-1] },
		"header":    func(b []byte) []byte { return b[:7] },
		"empty":     func([]byte) []byte { return nil },
		"a bit":     func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"longer":    func(b []byte) []byte { return append(b, 0) },
		"foreign":   func([]byte) []byte { return []byte(strings.Repeat("not ours", 20)) },
	}
	for name, f := range harm {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := open(t, dir, nil)
			put(t, l, record("a", "1", "harmed", 0))
			l.Close()
			harmed := recordsIn(t, dir)[0]
			l = open(t, dir, nil)
			put(t, l, record("a", "2", "whole", 0))
			l.Close()
			b, err := os.ReadFile(harmed)
			if err != nil {
				t.Fatal(err)
			}
			write(t, harmed, f(b))
			write(t, filepath.Join(dir, "0123.record.new"), b[:10])
			var log bytes.Buffer
			l = open(t, dir, &store.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if got := all(t, l); !maps.Equal(got, map[string]string{"a/2": "whole"}) {
				t.Errorf("kept: %v", got)
			}
			if !strings.Contains(log.String(), harmed) {
				t.Errorf("log: %s", log.String())
			}
			if files := recordsIn(t, dir); len(files) != 2 || !slices.Contains(files, harmed+".corrupt") {
				t.Errorf("files: %v", files)
			}
			put(t, l, record("a", "1", "again", 0))
		})
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A record that cannot be written is not there, and the one before is.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, nil)
	put(t, l, record("a", "1", "old", 0))
	path := recordsIn(t, dir)[0]
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path+".new", "x"), nil) // it cannot be removed either
	used, _ := l.Used()
	if _, err := l.Put(t.Context(), record("a", "1", strings.Repeat("new", 9999), 1)); err == nil {
		t.Fatal("it was written")
	}
	if r, err := l.Get(t.Context(), "a", "1"); err != nil || string(r.Value) != "old" {
		t.Errorf("%+v, %v", r, err)
	}
	if now, _ := l.Used(); now != used {
		t.Errorf("%d bytes are used, %d before", now, used)
	}
	if err := os.RemoveAll(path + ".new"); err != nil {
		t.Fatal(err)
	}
	put(t, l, record("a", "1", "new", 1))
}

func BenchmarkPut(b *testing.B) {
	for name, open := range map[string]func() (*store.Local, error){
		"memory":    func() (*store.Local, error) { return store.New(nil), nil },
		"directory": func() (*store.Local, error) { return store.Open(b.TempDir(), nil) },
	} {
		for _, writers := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%d", name, writers), func(b *testing.B) {
				l, err := open()
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				var next atomic.Int64
				b.SetParallelism(writers)
				b.RunParallel(func(p *testing.PB) {
					id, version := fmt.Sprint(next.Add(1)), uint64(0)
					for p.Next() {
						r := record("a", id, "some 500 bytes of state"+strings.Repeat(" ", 477), version)
						if version, err = l.Put(b.Context(), r); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
