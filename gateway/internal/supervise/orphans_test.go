//go:build linux

package supervise

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/faulty"
	"github.com/farcall-dev/farcall/internal/race"
)

// TestNoOrphans starts real processes and ends what they hang on in every way.
// Its log is meant to be read.
func TestNoOrphans(t *testing.T) {
	t.Parallel()
	race.Skip(t, "the other tests of children start and end them too")
	for _, mode := range []string{
		"ok", "hang-close", "ignore-sigterm", "deaf", "fork", "fork-away",
		"fork-daemon",
	} {
		t.Run("the client closes/child "+mode, func(t *testing.T) {
			closesChild(t, mode, farcall.Transport.Close)
		})
	}
	for _, mode := range []string{
		"ok", "ignore-sigterm", "fork", "fork-bare", "fork-away",
		"fork-daemon",
	} {
		t.Run("the child is killed/child "+mode, func(t *testing.T) {
			closesChild(t, mode, func(tr farcall.Transport) error {
				_ = syscall.Kill(pidOf(tr), syscall.SIGKILL)
				err := exitOf(t, tr)
				t.Logf("told:    %v", Reason(err))
				return nil
			})
		})
	}
	t.Run("the child exits at once, having forked into its own session", func(t *testing.T) {
		s := supervise(t, of("fork-exit"), nil)
		tr := start(t, s)
		child := pidOf(tr)
		grandchild, err := forked(tr)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("started: child %d (fork-exit), its child %d in its own session, which holds standard "+
			"output and error open", child, grandchild)
		began := time.Now()
		err = exitOf(t, tr)
		t.Logf("told:    after %v: %s", time.Since(began).Round(time.Millisecond), Reason(err))
		none(t, map[string]int{"child": child, "its child": grandchild})
	})
	t.Run("the supervisor closes, 20 children of all kinds", func(t *testing.T) {
		processes := make(map[string]int)
		var all []*Supervisor
		for n := range 20 {
			mode := []string{"ok", "ignore-sigterm", "fork", "fork-away", "deaf"}[n%5]
			s := supervise(t, of(mode), nil)
			all = append(all, s)
			tr := start(t, s)
			processes[fmt.Sprintf("child %d (%s)", n, mode)] = pidOf(tr)
			if strings.HasPrefix(mode, "fork") {
				pid, err := forked(tr)
				if err != nil {
					t.Fatal(err)
				}
				processes[fmt.Sprintf("child of child %d (%s)", n, mode)] = pid
			}
		}
		t.Logf("started: %v", processes)
		closed := make(chan error)
		began := time.Now()
		for _, s := range all {
			go func() { closed <- s.Close() }()
		}
		for range all {
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
		t.Logf("ended:   Close of all supervisors, which took %v",
			time.Since(began).Round(time.Millisecond))
		none(t, processes)
	})
	for _, mode := range []string{
		"ok", "ignore-sigterm", "fork", "fork-bare", "fork-away",
		"fork-daemon",
	} {
		for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(fmt.Sprintf("farcall gets %v/child %s", how, mode), func(t *testing.T) {
				killsParent(t, mode, how, func(p parent) error { return syscall.Kill(p.pid, how) })
			})
		}
	}
	t.Run("farcall's process group gets SIGKILL/child fork-away", func(t *testing.T) {
		killsParent(t, "fork-away", syscall.SIGKILL, func(p parent) error {
			return syscall.Kill(-p.pid, syscall.SIGKILL)
		})
	})
	t.Run("the guard is killed first, and then farcall/child ignore-sigterm", func(t *testing.T) {
		killsParent(t, "ignore-sigterm", syscall.SIGKILL, func(p parent) error {
			_ = syscall.Kill(p.guard, syscall.SIGKILL)
			return syscall.Kill(p.pid, syscall.SIGKILL)
		})
	})
}

// TestMayOutlive: a process that took care to leave everything stays. That is the
// way to start one that is to outlive the child.
func TestMayOutlive(t *testing.T) {
	s := supervise(t, of("fork-free"), nil)
	tr := start(t, s)
	pid, err := forked(tr)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("process %d, in its own session and without %s in its environment: runs on: %v", pid,
		Variable, faulty.Alive(pid))
	if !faulty.Alive(pid) {
		t.Error("it was killed")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if left := faulty.Gone(pid); left != nil {
		t.Error("it is left", left)
	}
}

func pidOf(tr farcall.Transport) int {
	c := tr.(*tryChild).child
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.pid
}

func closesChild(t *testing.T, mode string, end func(farcall.Transport) error) {
	t.Helper()
	s := supervise(t, of(mode), nil)
	tr := start(t, s)
	processes := map[string]int{"child": pidOf(tr)}
	switch {
	case strings.HasPrefix(mode, "fork"):
		pid, err := forked(tr)
		if err != nil {
			t.Fatal(err)
		}
		processes["its child"] = pid
	case mode != "deaf":
		send(t, tr, ping)
		expect(t, tr, `"id":2`)
	}
	t.Logf("started: %v", processes)
	for name, pid := range processes {
		if !faulty.Alive(pid) {
			t.Fatalf("%s %d does not run", name, pid)
		}
	}
	began := time.Now()
	if err := end(tr); err != nil {
		t.Error(err)
	}
	t.Logf("ended:   the child, which took %v", time.Since(began).Round(time.Millisecond))
	none(t, processes)
}

// parent is a process that plays a gateway.
type parent struct{ pid, child, grandchild, guard int }

func killsParent(t *testing.T, mode string, how syscall.Signal, kill func(parent) error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentMode+"="+mode, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := parent{pid: cmd.Process.Pid}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &p.child, &p.grandchild, &p.guard)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("%q: %v", line, err)
	}
	processes := map[string]int{"farcall": p.pid, "child": p.child, "guard": p.guard}
	if p.grandchild > 0 {
		processes["child of the child"] = p.grandchild
	}
	t.Logf("started: %v", processes)
	for name, pid := range processes {
		if !faulty.Alive(pid) {
			t.Errorf("%s %d does not run", name, pid)
		}
	}
	began := time.Now()
	if err := kill(p); err != nil {
		t.Error(err)
	}
	err = cmd.Wait()
	t.Logf("killed:  farcall %d, %v: it ended with %v", p.pid, how, cmd.ProcessState)
	if how == syscall.SIGTERM && err != nil {
		t.Error(err)
	}
	none(t, processes)
	t.Logf("         after %v", time.Since(began).Round(time.Millisecond))
}

// none fails when one of the processes runs.
func none(t *testing.T, processes map[string]int) {
	t.Helper()
	var left []string
	for name, pid := range processes {
		if faulty.Gone(pid) != nil {
			left = append(left, fmt.Sprintf("%s %d", name, pid))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if left != nil {
		t.Errorf("found:   STILL RUNNING: %v", left)
		return
	}
	t.Logf("found:   none of the %d processes runs", len(processes))
}
