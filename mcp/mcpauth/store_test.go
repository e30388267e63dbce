package mcpauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// storeVar has a process of this binary work on a store instead of running tests.
const storeVar = "MCPAUTH_TEST_STORE"

func fileStoreAt(t *testing.T) (*fileStore, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "farcall", "tokens.json")
	return NewFileStore(path).(*fileStore), path
}

func TestFileStore(t *testing.T) {
	ctx := t.Context()
	s, path := fileStoreAt(t)
	if got, err := s.Load(ctx, "a"); got != nil || err != nil {
		t.Fatalf("nothing there: %q, %v", got, err)
	}
	if err := s.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", `https://host/"\ ü` + "\n", ""} {
		value := fmt.Sprintf(`{"token":%q}`, key)
		if err := s.Save(ctx, key, []byte(value)); err != nil {
			t.Fatal(err)
		}
		if got, err := NewFileStore(path).Load(ctx, key); string(got) != value || err != nil {
			t.Errorf("%q: %q, %v", key, got, err)
		}
	}
	if err := s.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(ctx, "a"); got != nil || err != nil {
		t.Errorf("deleted: %q, %v", got, err)
	}
	if err := s.Save(ctx, "b", []byte("{")); err == nil || strings.Contains(err.Error(), "{") {
		t.Errorf("no JSON: %v", err)
	}
	if err := s.Save(ctx, "b", []byte(`"`+strings.Repeat("x", maxEntry)+`"`)); err == nil {
		t.Error("a value may be of any size")
	}
	if runtime.GOOS == "windows" {
		return
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// What another could read, write or replace is of no use, and what is damaged stays.
func TestFileStoreRefuses(t *testing.T) {
	const good = `{"version":1,"tokens":{"a":{"secret":"s3cret"}}}`
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		dir  os.FileMode
		want string
	}{
		"readable":     {good, 0o644, 0o700, "chmod 600"},
		"of the group": {good, 0o640, 0o700, "chmod 600"},
		"directory":    {good, 0o600, 0o777, "chmod go-w"},
		"cut":          {good[:40], 0o600, 0o700, "damaged at byte 40"},
		"empty":        {"", 0o600, 0o700, "damaged"},
		"array":        {"[]", 0o600, 0o700, "damaged"},
		"tokens":       {`{"version":1,"tokens":[]}`, 0o600, 0o700, "damaged"},
		"none":         {`{"version":1}`, 0o600, 0o700, "damaged"},
		"twice":        {`{"version":1,"tokens":{"a":1,"\u0061":2}}`, 0o600, 0o700, "duplicate"},
		"version":      {`{"version":2,"tokens":{}}`, 0o600, 0o700, "later version"},
		"another's":    {`{"version":1,"tokens":{},"more":1}`, 0o600, 0o700, "damaged"},
		"deep": {
			`{"version":1,"tokens":{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`,
			0o600, 0o700, "damaged",
		},
		"binary": {"\x00\xff\xfe", 0o600, 0o700, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && (c.mode != 0o600 || c.dir != 0o700) {
				t.Skip("skipped: there are no such modes")
			}
			s, path := fileStoreAt(t)
			if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700),
				os.WriteFile(path, []byte(c.text), 0o600),
				os.Chmod(path, c.mode), os.Chmod(filepath.Dir(path), c.dir)); err != nil {
				t.Fatal(err)
			}
			_, err := s.Load(t.Context(), "a")
			if c.dir == 0o700 && (err == nil || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "s3cret")) {
				t.Errorf("Load: %v", err)
			}
			err = s.Save(t.Context(), "b", []byte("1"))
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "s3cret") {
				t.Errorf("Save: %v", err)
			}
			if got, _ := os.ReadFile(path); string(got) != c.text {
				t.Errorf("the file was changed: %q", got)
			}
		})
	}
}

func TestFileStoreOdd(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	if _, err := NewFileStore(dir).Load(ctx, "a"); err == nil ||
		!strings.Contains(err.Error(), "is no file") {
		t.Errorf("a directory: %v", err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, maxStore+1); err != nil {
		t.Fatal(err)
	}
	if _, err := NewFileStore(large).Load(ctx, "a"); err == nil ||
		!strings.Contains(err.Error(), "more than") {
		t.Errorf("a large one: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := NewFileStore(link).Save(ctx, "a", []byte("1")); err == nil ||
		!strings.Contains(err.Error(), "a link to nothing") {
		t.Errorf("a link to nothing: %v", err)
	}
	if err := NewFileStore(target).Save(ctx, "a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := NewFileStore(link).Save(ctx, "b", []byte("2")); err != nil {
		t.Fatal(err)
	}
	if got, err := NewFileStore(target).Load(ctx, "b"); string(got) != "2" || err != nil {
		t.Errorf("through a link: %q, %v", got, err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, ".target-*")); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

// rotate does what a refresh does: it reads a token, which counts once, and keeps its
// successor.
func rotate(ctx context.Context, s Store, key string) error {
	unlock, err := exclusive(ctx, s, key)
	if err != nil {
		return err
	}
	defer unlock()
	before, err := s.Load(ctx, key)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(string(before))
	return s.Save(ctx, key, strconv.AppendInt(nil, int64(n+1), 10))
}

const rotations = 20

// rotateMain is the process that TestRotation starts.
func rotateMain(path string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := NewFileStore(path)
	for i := range rotations {
		if err := errors.Join(rotate(ctx, s, "shared"),
			s.Save(ctx, fmt.Sprintf("%d/%d", os.Getpid(), i), []byte("true"))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// Processes and goroutines that renew the same token do not use one twice, and lose none.
func TestRotation(t *testing.T) {
	s, path := fileStoreAt(t)
	const processes, goroutines = 3, 3
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), storeVar+"="+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	for range goroutines {
		wg.Go(func() {
			for range rotations {
				if err := rotate(t.Context(), s, "shared"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got, err := s.Load(t.Context(),
		"shared"); string(got) != strconv.Itoa((processes+goroutines)*rotations) || err != nil {
		t.Errorf("%s rotations, %v", got, err)
	}
	if all, err := readStore(path); len(all) != 1+processes*rotations || err != nil {
		t.Errorf("%d entries, %v", len(all), err)
	}
}

func TestLockEnds(t *testing.T) {
	s, path := fileStoreAt(t)
	unlock, err := s.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err) // keys do not wait for each other
	}
	other()
	for _, s := range []*fileStore{s, NewFileStore(path).(*fileStore)} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := s.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		cancel()
	}
	unlock()
	if unlock, err = s.Lock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestMemory(t *testing.T) {
	s := newMemory()
	value := []byte("1")
	if err := s.Save(t.Context(), "a", value); err != nil {
		t.Fatal(err)
	}
	value[0] = '2'
	if got, _ := s.Load(t.Context(), "a"); string(got) != "1" {
		t.Errorf("%s", got)
	}
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(t.Context(), "a"); got != nil || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzParseStore(f *testing.F) {
	f.Add([]byte(`{"version":1,"tokens":{"a":{"b":[1,"x"]},"\u0062":null}}`))
	f.Add([]byte(`{"version":1,"tokens":{"a":1,"a":1}}`))
	f.Add([]byte(`{"tokens":{},"version":1}` + "\n"))
	f.Add([]byte(" [1] "))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseStore(data)
		if err != nil {
			return
		}
		again, err := parseStore(appendStore(nil, all))
		if err != nil || len(again) != len(all) {
			t.Fatalf("%d entries, then %d, %v", len(all), len(again), err)
		}
		for key, value := range all {
			if !bytes.Equal(value, again[key]) {
				t.Errorf("%q: %q, then %q", key, value, again[key])
			}
		}
	})
}

// A file that another writer makes at the moment of the check is not a link to nothing.
func TestFileStoreAppears(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Error(err)
			}
			if err := os.Remove(path); err != nil && runtime.GOOS != "windows" {
				t.Error(err)
			}
		}
	})
	s := &fileStore{path: path}
	for range 10_000 {
		if _, err := s.resolve(); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	wg.Wait()
}
