//go:build linux && (amd64 || arm64)

package sandbox

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/internal/race"
)

// world is what a hostile program finds outside.
type world struct {
	dir, secret    string // outside
	inside         string // may be written
	program        string // a small one of the system; a copy of it is inside
	tcp, udp, path string
	abstract       string
	datagrams      string
	victim         string
}

const canary = "CANARY-9f2c41"

// newWorld has listeners that answer, and a process with a secret in its environment.
func newWorld(t *testing.T) *world {
	t.Helper()
	base := t.TempDir()
	w := &world{dir: filepath.Join(base, "outside"), inside: filepath.Join(base, "inside")}
	for _, dir := range []string{w.dir, w.inside} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.program = dynamic(t)
	w.reset(t)
	w.tcp = answers(t, "tcp", "127.0.0.1:0")
	w.path = answers(t, "unix", filepath.Join(base, "s"))
	w.abstract = answers(t, "unix", "@farcall-sandbox-"+filepath.Base(base)+strconv.Itoa(os.Getpid()))
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	w.udp = udp.LocalAddr().String()
	w.datagrams = filepath.Join(base, "d")
	dgram, err := net.ListenPacket("unixgram", w.datagrams)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dgram.Close() })
	victim := exec.CommandContext(t.Context(), self, "victim")
	victim.Env = []string{"SECRET=" + canary}
	_, lines := begin(t, victim)
	t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	w.victim = strconv.Itoa(victim.Process.Pid)
	t.Cleanup(func() {
		_ = os.Remove(w.shared())
		_ = os.Remove(filepath.Join(ownTmp, filepath.Base(w.program)))
	})
	return w
}

// shared is a file where everybody may have some.
func (w *world) shared() string { return "/tmp/farcall-sandbox-" + w.victim }

// reset makes the files as they were.
func (w *world) reset(t *testing.T) {
	t.Helper()
	for _, dir := range []string{w.dir, w.inside} {
		names, _ := os.ReadDir(dir)
		for _, n := range names {
			_ = os.RemoveAll(filepath.Join(dir, n.Name()))
		}
	}
	_ = os.Remove(w.shared())
	if _, err := copied(w.program, w.inside); err != nil {
		t.Fatal(err)
	}
	w.secret = filepath.Join(w.dir, "secret")
	if err := os.WriteFile(w.secret, []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
}

// answers accepts connections and says "ok".
func answers(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("ok"))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// attempt is one line of the table.
type attempt struct {
	name  string
	args  []string
	root  bool   // only root can do it outside
	maybe bool   // some systems refuse it to everybody
	ports bool   // with the network of ports
	alone string // why it works without namespaces
}

func (w *world) attempts() []attempt {
	in := func(name string) string { return filepath.Join(w.inside, name) }
	out := func(name string) string { return filepath.Join(w.dir, name) }
	return []attempt{
		{name: "read", args: []string{w.secret}},
		{name: "read", args: []string{"/etc/shadow"}, root: true},
		{name: "read", args: []string{"/proc/" + w.victim + "/environ"}},
		{name: "read", args: []string{"/proc/" + w.victim + "/cmdline"}},
		{name: "read", args: []string{"/proc/" + w.victim + "/root/etc/passwd"}},
		{
			name: "read", args: []string{"/proc/" + w.victim + "/cwd/../../../../../../etc/hostname"},
			maybe: true,
		},
		{name: "search environs", args: []string{canary}},
		{name: "list", args: []string{w.dir}},
		{name: "list", args: []string{"/root"}, root: true},
		{name: "create", args: []string{out("new")}},
		{name: "create", args: []string{w.shared()}},
		{name: "empty", args: []string{w.secret}},
		{name: "remove", args: []string{w.secret}},
		{name: "mkdir", args: []string{out("dir")}},
		{name: "chmod", args: []string{w.secret}, alone: "Landlock has no say in modes"},
		{name: "touch", args: []string{w.secret}, alone: "nor in times"},
		{name: "rename", args: []string{w.secret, in("moved")}},
		{name: "symlink", args: []string{w.secret, in("link")}},
		{name: "link", args: []string{w.secret, in("hard")}},
		{name: "handle", args: []string{w.secret}, root: true},
		{name: "execute", args: []string{"/usr/bin/env"}},
		{name: "copy and execute", args: []string{"/proc/self/exe", in("program")}},
		{name: "execute", args: []string{in(filepath.Base(w.program))}},
		{name: "load", args: []string{in(filepath.Base(w.program))}, alone: "it has no private mounts"},
		{
			name: "load from", args: []string{in(filepath.Base(w.program)), "/dev/shm"}, maybe: true,
			alone: "it has no private mounts",
		},
		{name: "map", args: []string{in(filepath.Base(w.program))}, alone: "it has no private mounts"},
		{name: "execute by descriptor", args: []string{in(filepath.Base(w.program))}},
		{name: "tcp", args: []string{w.tcp}},
		{name: "tcp", args: []string{w.tcp}, ports: true},
		{name: "mapped", args: []string{w.tcp}, ports: true},
		{name: "udp sendmmsg", args: []string{w.udp}, ports: true},
		{name: "tcp fast open", args: []string{w.tcp}, ports: true},
		{name: "mptcp", ports: true, maybe: true},
		{name: "listen", ports: true},
		{name: "udp", args: []string{w.udp}},
		{name: "udp", args: []string{w.udp}, ports: true},
		{name: "dns"},
		{name: "dns", ports: true},
		{name: "unix", args: []string{w.abstract}},
		{name: "unix", args: []string{w.abstract}, ports: true},
		{name: "unix", args: []string{w.path}},
		{name: "unix", args: []string{w.path}, ports: true},
		{name: "pair sends", args: []string{w.datagrams}},
		{name: "netlink"},
		{name: "packet", root: true},
		{name: "raw", root: true},
		{name: "kill", args: []string{w.victim}},
		{name: "ptrace", args: []string{w.victim}, maybe: true},
		{name: "seize", args: []string{w.victim}, maybe: true},
		{name: "read vm", args: []string{w.victim}, maybe: true},
		{name: "mem", args: []string{w.victim}, maybe: true},
		{name: "mount", args: []string{w.inside}, root: true},
		{name: "unshare", maybe: true},
		{name: "setns", root: true},
		{name: "chroot", root: true},
		{name: "key", maybe: true},
		{name: "memfd"},
		{name: "io_uring", maybe: true},
		{name: "bpf", maybe: true},
		{name: "perf", maybe: true},
		{name: "clone3"},
		{name: "call", args: []string{strconv.Itoa(unix.SYS_KCMP)}, maybe: true},
		{name: "call", args: []string{strconv.Itoa(unix.SYS_STATMOUNT)}, maybe: true},
		{name: "call", args: []string{strconv.Itoa(unix.SYS_OPEN_TREE_ATTR)}, maybe: true},
		{name: "call", args: []string{strconv.Itoa(unix.SYS_LISTNS)}, maybe: true},
		{name: "shared mem", maybe: true},
		{name: "fork bomb", alone: "root's processes are not bounded"},
		{name: "eat memory"},
		{name: "eat shared", alone: "no process watches"},
		{name: "eat together", alone: "no process watches"},
		{name: "open files"},
		{name: "raise a limit"},
	}
}

// TestHostile: what works outside fails in the sandbox. Its log is meant to be read.
func TestHostile(t *testing.T) {
	needs(t, &Rules{Network: []string{"1"}})
	w := newWorld(t)
	for i, a := range w.attempts() {
		if race.Enabled && i%8 > 0 {
			continue // the launcher, which has goroutines, is the same for all
		}
		var name strings.Builder
		name.WriteString(a.name)
		for _, arg := range a.args {
			name.WriteString(" " + filepath.Base(arg))
		}
		if a.ports {
			name.WriteString(" with ports")
		}
		t.Run(name.String(), func(t *testing.T) {
			if a.root && os.Getuid() != 0 {
				t.Skip("only root can do that outside")
			}
			command := append([]string{self, "hostile", a.name}, a.args...)
			w.reset(t)
			open := launch(t, bounded(t, command...))
			if open.code != 0 && a.maybe {
				t.Skip("this system refuses it to everybody:", open)
			}
			if open.code != 0 {
				t.Fatal("outside the sandbox it should work:", open)
			}
			t.Log("outside:", open)
			r := &Rules{Write: []string{w.inside}, Memory: 200 << 20, Processes: 60, Files: 64}
			if a.ports {
				r.Network = []string{"1"}
			}
			w.reset(t)
			closed := launch(t, confined(t, r, command...))
			w.stopped(t, "in the sandbox", closed)
			if a.alone != "" {
				t.Log("without namespaces it works:", a.alone)
				return
			}
			if !full.Wanted() {
				return
			}
			w.reset(t)
			r.BestEffort = true
			cmd := confined(t, r, command...)
			cmd.Env = append(cmd.Env, noNamespaces+"=1")
			w.stopped(t, "without namespaces", launch(t, cmd))
		})
	}
}

// stopped fails when an attempt has worked, or was not made.
func (w *world) stopped(t *testing.T, where string, got result) {
	t.Helper()
	if got.code != 1 && got.code != 128+int(syscall.SIGKILL) {
		t.Fatalf("%s: %v", where, got)
	}
	t.Logf("%s: %v", where, got)
	if text, err := os.ReadFile(w.secret); err != nil || string(text) != canary {
		t.Errorf("the file outside is %q %v", text, err)
	}
}

// TestProcessor: a process that uses more than its time is ended.
func TestProcessor(t *testing.T) {
	needs(t, &Rules{})
	if open := launch(t, bounded(t, self, "hostile", "burn")); open.code != 0 {
		t.Fatal(open)
	}
	got := launch(t, confined(t, &Rules{CPU: time.Second}, self, "hostile", "burn"))
	if got.code != 128+int(syscall.SIGXCPU) && got.code != 128+int(syscall.SIGKILL) {
		t.Fatal(got)
	}
	t.Log(got)
}

// TestDescriptor: a file that farcall has open is not the command's.
func TestDescriptor(t *testing.T) {
	needs(t, &Rules{})
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	give := func(cmd *exec.Cmd) *exec.Cmd {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		cmd.ExtraFiles = []*os.File{f}
		return cmd
	}
	if open := launch(t, give(bounded(t, self, "hostile", "descriptor"))); open.code != 0 {
		t.Fatal(open)
	}
	cmd := confined(t, &Rules{}, self, "hostile", "descriptor")
	if got := launch(t, give(cmd)); got.code != 1 {
		t.Error("in the sandbox:", got)
	}
	cmd = confined(t, &Rules{BestEffort: true}, self, "hostile", "descriptor")
	cmd.Env = append(cmd.Env, noNamespaces+"=1")
	if got := launch(t, give(cmd)); got.code != 1 {
		t.Error("without namespaces:", got)
	}
}

// TestSetuid: a program of root gives no process root.
func TestSetuid(t *testing.T) {
	needs(t, &Rules{})
	if os.Getuid() != 0 {
		t.Skip("only root can make such a program")
	}
	dir, err := os.MkdirTemp("/var/tmp", "farcall") //nolint:usetesting // everybody may enter its parents
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	cmd := bounded(t, file, "hostile", "am I root")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged},
	}
	if open := launch(t, cmd); open.code != 0 {
		t.Skip("such programs have no effect here:", open)
	}
	for _, command := range [][]string{
		{file, "hostile", "am I root"},
		{self, "hostile", "setuid program", file},
	} {
		if got := launch(t, confined(t, &Rules{Execute: []string{dir}}, command...)); got.code != 1 {
			t.Error(command, got)
		} else {
			t.Log(got)
		}
	}
}

// TestNothingStays: a process that has left its group, its session and its environment ends with
// the sandbox, also when the launcher is killed.
func TestNothingStays(t *testing.T) {
	needs(t, &Rules{})
	for _, how := range []string{"the launcher is killed", "the command is killed"} {
		t.Run(how, func(t *testing.T) {
			cmd := confined(t, &Rules{}, self, "hostile", "hide")
			_, lines := begin(t, cmd)
			if line, err := lines.ReadString('\n'); err != nil {
				t.Fatal(line, err)
			}
			all := family(cmd.Process.Pid)
			if len(all) < 3 {
				t.Fatal("there are only", all)
			}
			if how == "the launcher is killed" {
				_ = cmd.Process.Kill()
			} else {
				_ = syscall.Kill(all[1], syscall.SIGKILL)
			}
			// All of them hold standard output open: its end is theirs.
			if _, err := io.Copy(io.Discard, lines); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait()
			for _, p := range all[1:] {
				gone(t, p)
			}
		})
	}
}

// gone waits until a process has ended, which takes a moment after its files were closed.
func gone(t *testing.T, pid int) {
	t.Helper()
	for range 3000 {
		if state := statusOf(pid)["State"]; state == "" || state[0] == 'Z' || state[0] == 'X' {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Errorf("process %d is left: %s", pid, statusOf(pid)["State"])
}
