//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
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

// openDir is a directory that every user may enter, with files of the user: a secret one, a plain
// one, and a directory with nothing but secrets.
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
	for _, name := range []string{
		"farcall.yaml", "plain", "audit/audit.jsonl",
		"audit/audit.jsonl.1",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(canary), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"", "farcall.yaml", "plain", "audit", "audit/audit.jsonl",
		"audit/audit.jsonl.1",
	} {
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
		r := &Rules{
			Open: true, Hide: []string{file("farcall.yaml"), file("audit/audit.jsonl"), file("missing")},
		}
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
			{"read", file("plain")},
			{"create", file("new")},
			{"execute", "/bin/sh", "-c", "exit 0"},
			{"udp socket"},
			{"memfd"},
			{"nothing"},
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
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok ||
			status.Signal() != syscall.SIGTERM {
			t.Error("a signal ends the launcher as it ended the command:", cmd.ProcessState)
		}
	})
}

// TestOpenCapabilities: a command without a sandbox has none of the capabilities of reading, and
// gets none by executing.
func TestOpenCapabilities(t *testing.T) {
	got := launch(t, confined(t, &Rules{Open: true}, tool(t, "cat"), "/proc/self/status"))
	if got.code != 0 {
		t.Fatal(got)
	}
	for line := range strings.Lines(got.out) {
		name, value, _ := strings.Cut(line, ":\t")
		if !slices.Contains([]string{"CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"}, name) ||
			name == "CapBnd" && os.Getuid() != 0 {
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

// TestHide: a directory with nothing but private files is covered as a whole, and what is not is
// known to be loose.
func TestHide(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(names ...string) (out []string) {
		for _, n := range names {
			out = append(out, filepath.Join(base, n))
		}
		return out
	}
	for _, name := range []string{
		"mixed/farcall.yaml", "mixed/server.py", "mixed/audit.jsonl.2", "mixed/audit.jsonl.old",
		"own/audit.jsonl", "own/audit.jsonl.1", "own/.audit.jsonl.swp",
		"cwd/farcall.yaml", "dir/a/b", "dir/c", "conf/farcall.yaml", "conf/keys/tls.key",
		"map/..1/farcall.yaml", "none/x", "other/key", "other/data/x",
		"alike/log", "alike/catalog.js", "hiddenfile/.env", "hiddenfile/.env.1",
	} {
		file := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range [][2]string{
		{"..1", "map/..data"},
		{"..data/farcall.yaml", "map/farcall.yaml"},
		{"../own/audit.jsonl", "mixed/link"},
	} {
		if err := os.Symlink(link[0], filepath.Join(base, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(base, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name                string
		hide, points, loose []string
	}{
		{
			"a file beside others", at("mixed/farcall.yaml"), at("mixed/farcall.yaml"),
			at("mixed/farcall.yaml"),
		},
		{
			"one that is not there, with files before it", at("mixed/audit.jsonl"),
			at("mixed/audit.jsonl.2"), at("mixed/audit.jsonl"),
		},
		{"its own directory", at("own/audit.jsonl"), at("own"), nil},
		{"a file that comes later", at("empty/locks"), at("empty"), nil},
		{"no directory", at("missing/locks"), nil, nil},
		{"the working directory", at("cwd/farcall.yaml"), at("cwd/farcall.yaml"), at("cwd/farcall.yaml")},
		{"a directory, and what is below", at("dir", "dir/a/b"), at("dir"), nil},
		{"directories below", at("conf/farcall.yaml", "conf/keys/tls.key"), at("conf"), nil},
		{"a volume of Kubernetes", at("map/farcall.yaml"), at("map"), nil},
		{"a link from elsewhere", at("mixed/link"), at("own"), at("mixed/link")},
		{"names that only have the name in them", at("alike/log"), at("alike/log"), at("alike/log")},
		{"a name with a dot", at("hiddenfile/.env"), at("hiddenfile"), nil},
		{"a directory of others", at("other/key"), at("other/key"), at("other/key")},
	} {
		got := planCover(c.hide, []string{filepath.Join(base, "cwd")})
		if !slices.Equal(got.points, c.points) || !slices.Equal(got.loose, c.loose) {
			t.Errorf("%s: %q, wanted %q and %q", c.name, got, c.points, c.loose)
		}
	}
}

// replacing are the ways in which a private file becomes another one.
var replacing = map[string]func(file string) error{
	"rotated": func(file string) error {
		return errors.Join(os.Rename(file+".1", file+".2"), os.Rename(file, file+".1"),
			os.WriteFile(file, []byte(canary), 0o600))
	},
	"saved": func(file string) error {
		return errors.Join(os.WriteFile(file+".tmp", []byte(canary), 0o600), os.Rename(file+".tmp", file))
	},
	"saved with a copy": func(file string) error {
		return errors.Join(os.Rename(file, file+"~"), os.WriteFile(file, []byte(canary), 0o600))
	},
	"removed and made again": func(file string) error {
		return errors.Join(os.Remove(file), os.WriteFile(file, []byte(canary), 0o600))
	},
	"linked": func(file string) error {
		return errors.Join(os.Rename(file, file+".real"), os.Symlink(file+".real", file))
	},
}

// TestHiddenStaysHidden: what is private in its own directory cannot be read by a command that runs
// already when it is rotated, renamed or replaced, with a sandbox that may read the directory above
// or without one.
func TestHiddenStaysHidden(t *testing.T) {
	everyUser(t, func(t *testing.T, as *syscall.Credential) {
		for name, replace := range replacing {
			for mode, rules := range map[string]func(dir string) *Rules{
				"open":   func(string) *Rules { return &Rules{Open: true} },
				"strict": func(dir string) *Rules { return &Rules{Read: []string{dir}} },
			} {
				t.Run(name+" "+mode, func(t *testing.T) {
					dir := openDir(t, as)
					file := filepath.Join(dir, "audit", "audit.jsonl")
					r := rules(dir)
					r.Hide = []string{file}
					if len(r.Loose(dir)) > 0 {
						t.Error("a file in its own directory is loose")
					}
					needs(t, r)
					const reading = `echo ready; read -r line; cat "$1"/audit/* "$1"/audit/.a* ` +
						`"$1"/audit/audit.jsonl "$1"/audit/audit.jsonl.1 "$1"/audit/audit.jsonl.2; cat ` +
						`"$1"/plain; echo ended`
					r.Execute = append(r.Execute, tool(t, "cat"))
					cmd := confined(t, r, "/bin/sh", "-c", reading, "sh", dir)
					cmd.Dir = dir
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
					in, lines := begin(t, cmd)
					if line, err := lines.ReadString('\n'); line != "ready\n" {
						t.Fatal(line, err)
					}
					if err := replace(file); err != nil {
						t.Fatal(err)
					}
					if _, err := in.Write([]byte("go\n")); err != nil {
						t.Fatal(err)
					}
					got, err := lines.ReadString('\n')
					if err = errors.Join(err, cmd.Wait()); err != nil || got != canary+"ended\n" {
						t.Errorf("%v, got %q, wanted what is in plain alone", err, got)
					}
				})
			}
		}
	})
}

// TestExposes: the launcher reports what a system cannot keep from a command without a sandbox.
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

// TestLoose: of a sandbox only that is loose which it may read, and what it names itself is not
// hidden.
func TestLoose(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, plain := filepath.Join(dir, "farcall.yaml"), filepath.Join(dir, "plain")
	for _, name := range []string{file, plain} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		r      Rules
		points bool
		loose  bool
	}{
		{"without a sandbox", Rules{Open: true}, true, true},
		{"that reads nothing", Rules{}, true, false},
		{"that reads the directory", Rules{Read: []string{dir}}, true, true},
		{"that writes the one above", Rules{Write: []string{filepath.Dir(dir)}}, true, true},
		{"that reads another file", Rules{Read: []string{plain}}, true, false},
		{"that reads the file", Rules{Read: []string{file}}, false, false},
	} {
		c.r.Hide = []string{file}
		if h := c.r.hidden("/"); (len(h.points) > 0) != c.points || (len(c.r.Loose("/")) > 0) != c.loose {
			t.Errorf("%s: %q", c.name, h)
		}
	}
}
