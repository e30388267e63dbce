//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nativeAttempts run native code that the rules do not let run.
var nativeAttempts = map[string]func(args []string) error{
	// Landlock's right to execute is about execve alone: the loader reads and maps.
	"load": func(a []string) error { return runs(append(existing(loaders()), a...)) },
	"load from": func(a []string) error { // LOADER in a directory with the program
		file, err := copied(a[0], a[1])
		return errors.Join(err, runs(append(existing(loaders()), file)))
	},
	"map": func(a []string) error { return mapped(a[0], unix.PROT_READ|unix.PROT_EXEC) },
	"map, then protect": func(a []string) error {
		return mapped(a[0], unix.PROT_READ)
	},
	"execute by descriptor": func(a []string) error {
		f, err := os.Open(a[0])
		if err != nil {
			return err
		}
		return runs([]string{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())})
	},
	"mounts": func([]string) error {
		text, err := os.ReadFile("/proc/self/mountinfo")
		_, _ = os.Stdout.Write(text)
		return err
	},
}

func runs(command []string) error {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w %s", err, out)
	}
	return nil
}

// existing is the first file that is there.
func existing(files []string) []string {
	for _, f := range files {
		if _, err := os.Stat(f); err == nil {
			return []string{f}
		}
	}
	return []string{"/no loader"}
}

func copied(from, dir string) (string, error) {
	file := filepath.Join(dir, filepath.Base(from))
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(file, text, 0o700)
	}
	return file, err
}

// mapped maps a file, as dlopen does with a library, and makes it executable if it is not.
func mapped(file string, prot int) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	p, err := unix.Mmap(int(f.Fd()), 0, 4096, prot, unix.MAP_PRIVATE)
	if err == nil {
		err = unix.Mprotect(p, unix.PROT_READ|unix.PROT_EXEC)
	}
	return err
}

// dynamic is a small program that the loader of the system starts.
func dynamic(t *testing.T) string {
	t.Helper()
	file, err := filepath.EvalSymlinks(tool(t, "env"))
	if err != nil {
		t.Fatal(err)
	}
	if loader := loaderOf(file); !slices.Contains(loaders(), loader) {
		t.Skip("the programs of this system are not dynamically linked:", loader)
	}
	return file
}

// TestNativeCode: a program or library that is only readable or writable does not run, whichever
// way it is loaded; the same file runs where execute names it.
func TestNativeCode(t *testing.T) {
	needs(t, &Rules{})
	program := dynamic(t)
	written, readable := t.TempDir(), t.TempDir()
	inWritten, err := copied(program, written)
	if err != nil {
		t.Fatal(err)
	}
	inReadable, err := copied(program, readable)
	if err != nil {
		t.Fatal(err)
	}
	for _, try := range [][]string{
		{"load", inWritten},
		{"load", inReadable},
		{"load from", inReadable, "/dev/shm"},
		{"load from", inReadable, written},
		{"execute", inWritten},
		{"execute", inReadable},
		{"copy and execute", "/proc/self/exe", "/dev/shm/program"},
		{"map", inWritten},
		{"map", inReadable},
		{"map, then protect", inWritten},
		{"map, then protect", inReadable},
		{"execute by descriptor", inWritten},
		{"execute by descriptor", inReadable},
	} {
		t.Run(try[0]+" "+filepath.Dir(try[1])+" "+strings.Join(try[2:], " "), func(t *testing.T) {
			command := append([]string{self, "hostile"}, try...)
			if open := launch(t, bounded(t, command...)); open.code != 0 {
				t.Fatal("outside the sandbox it should work:", open)
			}
			_ = os.Remove(filepath.Join(ownTmp, "program"))
			_ = os.Remove(filepath.Join(ownTmp, filepath.Base(program)))
			r := &Rules{Write: []string{written}, Read: []string{readable}}
			if got := launch(t, confined(t, r, command...)); got.code != 1 {
				t.Error("in the sandbox:", got)
			} else {
				t.Log(got)
			}
			if slices.Contains(try, "/dev/shm") || slices.Contains(try, "/dev/shm/program") {
				return
			}
			r.Execute = []string{readable, written}
			if got := launch(t, confined(t, r, command...)); got.code != 0 {
				t.Error("where execute names it:", got)
			}
		})
	}
}

// TestLibrariesAreNoPrograms: programs among the libraries of the system are not executed.
func TestLibrariesAreNoPrograms(t *testing.T) {
	needs(t, &Rules{})
	const program = "/usr/lib/git-core/git"
	if open := launch(t, bounded(t, self, "hostile", "execute", program, "--version")); open.code !=
		0 {
		t.Skip(open)
	}
	command := []string{self, "hostile", "execute", program, "--version"}
	if got := launch(t, confined(t, &Rules{}, command...)); got.code != 1 ||
		!strings.Contains(got.out, "permission denied") {
		t.Error(got)
	}
	if got := launch(t, confined(t, &Rules{Execute: []string{program}}, command...)); got.code != 0 {
		t.Error("where execute names it:", got)
	}
}

// TestDlopen: a library that was written is not loaded, and those of the system are.
func TestDlopen(t *testing.T) {
	needs(t, &Rules{})
	python := tool(t, "python3")
	libraries, _ := filepath.Glob("/usr/lib/*/libz.so.1")
	if len(libraries) == 0 {
		t.Skip("there is no library to copy")
	}
	dir := t.TempDir()
	library, err := copied(libraries[0], dir)
	if err != nil {
		t.Fatal(err)
	}
	load := func(r *Rules, file string) result {
		return launch(t,
			confined(t, r, python, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", file))
	}
	if got := load(&Rules{}, libraries[0]); got.code != 0 {
		t.Error("a library of the system:", got)
	}
	for _, r := range []*Rules{
		{Write: []string{dir}},
		{Read: []string{dir}},
		{Write: []string{dir}, Execute: []string{filepath.Dir(dir)}},
	} {
		if got := load(r, library); got.code != 1 || !strings.Contains(got.err, "failed to map segment") {
			t.Errorf("%+v: %v", r, got)
		}
	}
	if got := load(&Rules{Read: []string{dir}, Execute: []string{dir}}, library); got.code != 0 {
		t.Error("where execute names it:", got)
	}
}

// TestMounts: of all mounts of a sandbox only those that are named can be written or executed.
func TestMounts(t *testing.T) {
	needs(t, &Rules{})
	base := t.TempDir()
	dir := func(name string) string {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	app, data, plugins, downloads := dir("app"), dir("app/data"), dir("app/data/plugins"),
		dir("downloads")
	r := &Rules{
		Execute: []string{app, plugins}, Write: []string{data, downloads, dir("both")},
		Read: []string{dir("app/doc")},
	}
	r.Execute = append(r.Execute, dir("both"))
	got := launch(t, confined(t, r, self, "hostile", "mounts"))
	if got.code != 0 {
		t.Fatal(got)
	}
	seen := map[string]string{} // the last of a path is the one on top
	for line := range strings.Lines(got.out) {
		if f := strings.Fields(line); len(f) > 6 {
			seen[f[4]] = f[5]
		}
	}
	p, err := program(self, "")
	if err != nil {
		t.Fatal(err)
	}
	points, err := r.mountPoints(p)
	if err != nil {
		t.Fatal(err)
	}
	has := func(options, name string) bool {
		return slices.Contains(strings.Split(options, ","), name)
	}
	for path, options := range seen {
		m, _ := nearest(points, path)
		own := path == ownTmp || path == "/proc"
		if !has(options, "noexec") && !m.execute {
			t.Errorf("%s may be executed: %s", path, options)
		}
		if !has(options, "ro") && !m.write && !own {
			t.Errorf("%s may be written: %s", path, options)
		}
	}
	for path, want := range map[string]mountPoint{
		app: {execute: true}, data: {write: true}, plugins: {write: true, execute: true},
		downloads: {write: true}, dir("both"): {write: true, execute: true},
	} {
		if options := seen[path]; has(options, "rw") != want.write ||
			has(options, "noexec") == want.execute {
			t.Errorf("%s is %q, wanted %+v", path, options, want)
		}
	}
}

// TestPlanMounts: what overlaps is decided by the nearest path, and nothing is writable and
// executable unless execute names it.
func TestPlanMounts(t *testing.T) {
	paths := []string{"/", "/a", "/a/b", "/a/b/c", "/a/d", "/ab", "/e"}
	some := func() (out []string) {
		for _, p := range paths {
			if rand.IntN(3) == 0 {
				out = append(out, p)
			}
		}
		return out
	}
	for range 20000 {
		write, execute, implicit := some(), some(), some()
		points, err := planMounts(write, execute, implicit)
		if err != nil {
			if !slices.ContainsFunc(implicit, func(p string) bool {
				return slices.Contains(write, p) && !slices.Contains(execute, p)
			}) {
				t.Fatal(write, execute, implicit, err)
			}
			continue
		}
		for _, path := range append(paths, "/a/b/c/x", "/a/d/x", "/x") {
			m, _ := nearest(points, path)
			w, x, i := longest(write, path), longest(execute, path), longest(implicit, path)
			if want := x > 0 && x >= w || i > 0 && i > w; m.execute != want {
				t.Fatalf("%s of write %q, execute %q, implicit %q: execute is %v", path, write, execute,
					implicit, m.execute)
			}
			if m.write && (w == 0 || i > w && x < w) {
				t.Fatalf("%s of write %q, execute %q, implicit %q is writable", path, write, execute, implicit)
			}
			if m.write && m.execute && x < w {
				t.Fatalf("%s of write %q, execute %q, implicit %q is writable and executable", path, write,
					execute, implicit)
			}
		}
	}
}

// longest is the length of the longest path that is the path or above it, 0 when there is none.
func longest(paths []string, path string) (n int) {
	for _, p := range paths {
		if within(path, []string{p}) {
			n = max(n, len(p))
		}
	}
	return n
}

// TestLoaderOf: the loader of a program is found, and nothing in other files.
func TestLoaderOf(t *testing.T) {
	if loader := loaderOf(dynamic(t)); !filepath.IsAbs(loader) {
		t.Error(loader)
	}
	dir := t.TempDir()
	for _, text := range [][]byte{
		nil, []byte("#!/bin/sh"), []byte("\x7fELF"),
		bytes.Repeat([]byte{0xff}, 4096),
	} {
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if loader := loaderOf(file); loader != "" {
			t.Error(loader)
		}
	}
}
