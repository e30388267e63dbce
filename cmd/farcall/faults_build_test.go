//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const (
	// skewVar is by how many seconds the clock of a faulty program is wrong, and slowVar names a file:
	// while it is there, each sync of a file takes a millisecond for each of its bytes.
	skewVar, slowVar = "FARCALL_TEST_SKEW", "FARCALL_TEST_SLOW"

	skewCode = `package time

import "syscall"

var testSkew = func() int64 {
	text, _ := syscall.Getenv("` + skewVar + `")
	n, _ := atoi(text)
	return int64(n)
}()
`
	slowCode = `package poll

import (
	"syscall"
	"time"
)

func slowSync() {
	var s syscall.Stat_t
	if path, ok := syscall.Getenv("` + slowVar + `"); ok && syscall.Stat(path, &s) == nil {
		<-time.After(time.Duration(s.Size) * time.Millisecond)
	}
}
`
)

// buildFaulty builds the program with a standard library that can have a wrong clock (time.Now) and
// a slow disk (Sync of a file). It needs no rights, and takes minutes the first time.
func buildFaulty(t *testing.T) string {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src")
	write := func(name, text string) {
		to := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(src, name)] = to
	}
	edit := func(name, old, with string) {
		text, err := os.ReadFile(filepath.Join(src, name))
		if err != nil || strings.Count(string(text), old) != 1 {
			t.Fatalf("%s of %s is not as expected: %v", name, runtime.Version(), err)
		}
		write(name, strings.Replace(string(text), old, with, 1))
	}
	edit("time/time.go", "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {",
		"\tsec, nsec, mono := runtimeNow()\n\tsec += testSkew\n\tif mono == 0 {")
	write("time/skew.go", skewCode)
	edit("internal/poll/fd_fsync_posix.go", "\tdefer fd.decref()\n",
		"\tdefer fd.decref()\n\tslowSync()\n")
	write("internal/poll/slow.go", slowCode)

	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "farcall")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, ".")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return binary
}
