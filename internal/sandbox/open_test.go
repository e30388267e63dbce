//go:build linux && (amd64 || arm64)

package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// protected is a process like a gateway: it has a secret in its environment, and is protected.
func protected(t *testing.T, as *syscall.Credential) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), self, "victim", "protected")
	cmd.Env = []string{"SECRET=" + canary}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	_, lines := begin(t, cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	return strconv.Itoa(cmd.Process.Pid)
}

// openDir is a directory that every user may enter, with files of the user: a secret one, a plain one,
// and a directory with nothing but secrets.
func openDir(t *testing.T, as *syscall.Credential) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "farcall") //nolint:usetesting // all users may enter its parents
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "audit"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"farcall.yaml", "plain", "audit/audit.jsonl", "audit/audit.jsonl.1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(canary), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "farcall.yaml", "plain", "audit", "audit/audit.jsonl", "audit/audit.jsonl.1"} {
		if as != nil {
			if err := os.Chown(filepath.Join(dir, name), int(as.Uid), int(as.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// everyUser runs a test as this user, and, if this is root, as one without privileges.
func everyUser(t *testing.T, test func(t *testing.T, as *syscall.Credential)) {
	t.Helper()
	t.Run("as this user", func(t *testing.T) { test(t, nil) })
	if os.Getuid() != 0 {
		return
	}
	t.Run("without privileges", func(t *testing.T) {
		file := filepath.Join(openDir(t, nil), "program")
		program, err := os.ReadFile(self)
		if err == nil {
			err = os.WriteFile(file, program, 0o755)
		}
		if err == nil {
			err = os.Chmod(filepath.Dir(file), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		before := self
		self = file
		t.Cleanup(func() { self = before })
		test(t, &syscall.Credential{Uid: unprivileged, Gid: unprivileged})
	})
}

// TestOpen: a command without a sandbox reads neither the memory nor the environment of a protected
// process, nor the files that are hidden, and everything else works as before.
func TestOpen(t *testing.T) {
	everyUser(t, func(t *testing.T, as *syscall.Credential) {
		dir, victim := openDir(t, as), protected(t, as)
		file := func(name string) string { return filepath.Join(dir, name) }
		r := &Rules{Open: true, Hide: []string{file("farcall.yaml"), file("audit/audit.jsonl"), file("missing")}}
		if parts := Missing(r); len(parts) > 0 {
			t.Skip("this system lacks a part:", parts)
		}
		run := func(r *Rules, command ...string) result {
			cmd := confined(t, r, command...)
			cmd.Dir = dir
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
			return launch(t, cmd)
		}
		for _, try := range [][]string{
			{"read", file("farcall.yaml")},
			{"read", "farcall.yaml"},
			{"read", file("audit/audit.jsonl")},
			{"read", file("audit/audit.jsonl.1")},
			{"empty", file("farcall.yaml")},
			{"remove", file("farcall.yaml")},
			{"chmod", file("farcall.yaml")},
			{"read", "/proc/" + victim + "/environ"},
			{"read", "/proc/" + victim + "/root" + file("farcall.yaml")},
			{"read", "/proc/" + victim + "/maps"},
			{"mem", victim},
			{"ptrace", victim},
			{"seize", victim},
			{"read vm", victim},
			{"read", "/proc/" + victim + "/fd/0"},
			{"uncover", file("farcall.yaml")},
			{"uncover in namespaces", file("farcall.yaml")},
		} {
			if got := run(r, append([]string{self, "hostile"}, try...)...); got.code != 1 {
				t.Error(try, got)
			} else {
				t.Log(try, got)
			}
		}
		for _, try := range [][]string{
			{"read", file("plain")}, {"create", file("new")}, {"execute", "/bin/sh", "-c", "exit 0"}, {"udp socket"}, {"memfd"}, {"nothing"},
		} {
			if got := run(r, append([]string{self, "hostile"}, try...)...); got.code != 0 {
				t.Error(try, got)
			}
		}
		if got := run(&Rules{Open: true}, self, "hostile", "read", file("farcall.yaml")); got.code != 0 {
			t.Error("what is not hidden can be read:", got)
		}
		if got := run(r, self, "hostile", "mem", strconv.Itoa(os.Getpid())); as != nil && got.code != 1 {
			t.Error("another user's process:", got)
		}
		if got := run(r, "/bin/sh", "-c", "exit 7"); got.code != 7 {
			t.Error(got)
		}
		cmd := confined(t, r, "/bin/sh", "-c", "kill -TERM $$")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		cmd.Dir = dir
		_ = cmd.Run()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
			t.Error("a signal ends the launcher as it ended the command:", cmd.ProcessState)
		}
	})
}

// TestOpenCapabilities: a command without a sandbox has none of the capabilities of reading, and gets
// none by executing.
func TestOpenCapabilities(t *testing.T) {
	got := launch(t, confined(t, &Rules{Open: true}, tool(t, "cat"), "/proc/self/status"))
	if got.code != 0 {
		t.Fatal(got)
	}
	for line := range strings.Lines(got.out) {
		name, value, _ := strings.Cut(line, ":\t")
		if !slices.Contains([]string{"CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"}, name) || name == "CapBnd" && os.Getuid() != 0 {
			continue
		}
		has, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range reading() {
			if has&(1<<c) != 0 {
				t.Errorf("%s has capability %d: %s", name, c, value)
			}
		}
	}
}

// TestHiddenPoints: a directory with nothing but what is hidden is covered as a whole.
func TestHiddenPoints(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mixed/farcall.yaml", "mixed/server.py", "own/audit.jsonl", "own/audit.jsonl.1", "cwd/farcall.yaml", "dir/a/b", "dir/c"} {
		file := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(names ...string) (out []string) {
		for _, n := range names {
			out = append(out, filepath.Join(base, n))
		}
		return out
	}
	got := hiddenPoints(at("mixed/farcall.yaml", "own/audit.jsonl", "cwd/farcall.yaml", "dir", "dir/a/b", "missing"), filepath.Join(base, "cwd"))
	if want := at("mixed/farcall.yaml", "own", "cwd/farcall.yaml", "dir"); !slices.Equal(got, want) {
		t.Errorf("got %q, wanted %q", got, want)
	}
}

// TestExposes: what a system cannot keep from a command without a sandbox is said.
func TestExposes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "farcall.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Rules{Open: true, Hide: []string{file}}
	begins(t, r.exposes(kernel{}), []string{"memory: ", "files: "}, "")
	begins(t, r.exposes(kernel{known: true, mounts: os.ErrPermission}), []string{"files: "}, "")
	begins(t, r.exposes(kernel{known: true}), nil, "")
	begins(t, (&Rules{Open: true}).exposes(kernel{known: true, mounts: os.ErrPermission}), nil, "")
}
