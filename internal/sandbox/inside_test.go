//go:build linux && (amd64 || arm64)

package sandbox

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// TestRestriction: what each version can is used, and nothing that it does not know.
func TestRestriction(t *testing.T) {
	const refer, truncate, resolve = ll.AccessFSRefer, ll.AccessFSTruncate, ll.AccessFSResolveUnix
	for version, want := range []struct {
		files    uint64 // of the three
		tcp, udp bool
		scoped   bool
	}{
		{},
		{},
		{files: refer},
		{files: refer | truncate},
		{refer | truncate, true, false, false},
		{refer | truncate, true, false, false},
		{refer | truncate, true, false, true},
		{refer | truncate, true, false, true},
		{refer | truncate, true, false, true},
		{refer | truncate | resolve, true, false, true},
		{refer | truncate | resolve, true, true, true},
		{refer | truncate | resolve, true, true, true},
		{refer | truncate | resolve, true, true, true},
	} {
		c := restriction(version, network{none: true}, false)
		if uint64(c.HandledAccessFS)&(refer|truncate|resolve) != want.files ||
			(c.Scoped != 0) != want.scoped ||
			(c.HandledAccessNet&ll.AccessNetConnectTCP != 0) != want.tcp ||
			(c.HandledAccessNet&ll.AccessNetConnectSendUDP != 0) != want.udp {
			t.Errorf("version %d: %v", version, c)
		}
		if version > 0 && c.HandledAccessFS&mayExecute != mayExecute {
			t.Errorf("version %d does not restrict reading and executing: %v", version, c)
		}
		if c := restriction(version, network{all: true}, false); c.HandledAccessNet != 0 {
			t.Errorf("version %d restricts a network that is open: %v", version, c)
		}
	}
	for _, promise := range []struct {
		version int
		has     bool
	}{
		{landlockFiles, restriction(landlockFiles, network{}, false).HandledAccessFS&truncate != 0},
		{
			landlockPorts,
			restriction(landlockPorts, network{}, false).HandledAccessNet&ll.AccessNetConnectTCP != 0,
		},
	} {
		if !promise.has {
			t.Errorf("version %d does not keep what a strict sandbox promises", promise.version)
		}
	}
}

// TestStatus: the thread that became the command has no privileges, and no way to some.
func TestStatus(t *testing.T) {
	needs(t, &Rules{})
	cat := tool(t, "cat")
	for _, where := range []string{"in the sandbox", "without namespaces"} {
		cmd := confined(t, &Rules{}, cat, "/proc/self/status")
		override := "0000000000000000"
		if where != "in the sandbox" {
			cmd = confined(t, &Rules{BestEffort: true}, cat, "/proc/self/status")
			cmd.Env = append(cmd.Env, noNamespaces+"=1")
		} else if os.Getuid() == 0 {
			override = "0000000000000002" // CAP_DAC_OVERRIDE, in its namespace
		}
		got := launch(t, cmd)
		for name, value := range map[string]string{
			"NoNewPrivs": "1", "Seccomp": "2", "Threads": "1", "CapBnd": "0000000000000000",
			"CapEff": override, "CapPrm": override, "CapInh": override, "CapAmb": override,
		} {
			if name == "CapBnd" && os.Getuid() != 0 && where != "in the sandbox" {
				continue // only who has a privilege can drop it for good; no_new_privs makes that nothing
			}
			if !strings.Contains(got.out, name+":\t"+value+"\n") {
				t.Errorf("%s: %s is not %s: %v", where, name, value, got)
			}
		}
	}
}

// TestLauncherEnvironment: what the launcher has in its environment and does not hand on is in none
// that the command can read: not in its own, which is that of /proc/1, and not in the launcher's.
func TestLauncherEnvironment(t *testing.T) {
	needs(t, &Rules{})
	for _, best := range []bool{false, true} {
		cmd := confined(t, &Rules{BestEffort: best}, self, "hostile", "search environs", canary)
		cmd.Env = append(cmd.Env, ofLauncher+"SECRET="+canary)
		if best {
			cmd.Env = append(cmd.Env, noNamespaces+"=1")
		}
		if got := launch(t, cmd); got.code != 1 || !strings.Contains(got.out, "environments") {
			t.Error(got)
		}
	}
	// It does look into its own.
	cmd := confined(t, &Rules{}, self, "hostile", "search environs", canary)
	cmd.Env = append(cmd.Env, "HANDED_ON="+canary)
	if got := launch(t, cmd); got.code != 0 {
		t.Error(got)
	}
}

// TestForeignProc: where no new /proc may be mounted, as in a container that covers a part of it,
// the one that is there is that of other processes: it leads to none of them, and nothing waits for
// them.
func TestForeignProc(t *testing.T) {
	needs(t, &Rules{})
	if os.Getuid() != 0 {
		t.Skip("only root can cover a part of /proc")
	}
	sh := tool(t, "sh")
	covered := func(command ...string) *exec.Cmd {
		cmd := confined(t, &Rules{}, command...)
		cmd.Args = append([]string{sh, "-c", `mount -t tmpfs none /proc/sys && exec "$@"`, sh, cmd.Path},
			cmd.Args[1:]...)
		cmd.Path = sh
		cmd.Env = append(cmd.Env, ofLauncher+"SECRET="+canary)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		return cmd
	}
	if got := launch(t, covered(self, "hostile", "nothing")); got.code != 0 {
		t.Fatal(got)
	}
	for _, try := range [][]string{
		{"list", "/proc"},
		{"search environs", canary},
		{"read", "/proc/1/environ"},
		{"mem", strconv.Itoa(os.Getpid())},
	} {
		if got := launch(t, covered(append([]string{self, "hostile"}, try...)...)); got.code != 1 {
			t.Error(try, got)
		} else {
			t.Log(try, got)
		}
	}
}
