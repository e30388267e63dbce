package interop

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kill kills the processes that f has started and with a command that has a word in it.
func (f *far) kill(word string) (n int) {
	for _, process := range processes(f.dir) {
		pid, line, _ := strings.Cut(process, " ")
		if id, err := strconv.Atoi(pid); err == nil && id != f.cmd.Process.Pid &&
			strings.Contains(line, word) {
			syscall.Kill(id, syscall.SIGKILL)
			n++
		}
	}
	return n
}

// stateful is a gateway with children; one has started a process.
func stateful(t *testing.T) *far {
	t.Helper()
	memory := npm(t, "server-memory")
	memory.Env = append(memory.Env, "MEMORY_FILE_PATH="+short(t, "memory.jsonl"))
	forks := runs("forks",
		exec.Command("sh", "-c",
			"setsid sleep 1000 & sleep 1000 & exec "+farcallPath+" serve --stdio --log off"))
	return gatewayOf(t, "",
		runs("local", npm(t, "server-everything", "stdio")),
		runs("memory", memory),
		runs("gosdk", child(t, "go-sdk")),
		forks,
	)
}

// Children that are killed in the middle of calls: a call that may have had an
// effect fails, one that says it has none is made again, other servers do not
// notice, and the session goes on.
func TestGatewayKilledChild(t *testing.T) {
	t.Parallel()
	f := stateful(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for maker, m := range makers {
		for _, revision := range []string{"2026-07-28", "2025-11-25"} {
			t.Run(maker+" "+revision, func(t *testing.T) {
				u := m.use(t, f.place(""), "http", revision)
				check := func() {
					t.Helper()
					checkCall(t, u, "Echo: hello", "local__echo", map[string]any{"message": "hello"})
					checkCall(t, u, "5", "gosdk__add", addends{2, 3})
				}
				check()
				before := f.status(t, func(status) bool { return true })
				waits, works, others := make(chan error, 1), make(chan error, 1), make(chan error, 1)
				call := func(end chan error, tool string, args any) {
					_, err := u.call(within(t), tool, args)
					end <- err
				}
				// The last two begin when the first may have started a child, and last longer than
				// a slow machine takes to see all three in flight at once.
				go call(waits, "gosdk__wait", waiting{t.Name()})
				go call(works, "local__trigger-long-running-operation", map[string]any{"duration": 5})
				// The call of a client without a session has a second round, for which a child is
				// started: a kill between the rounds would meet no call.
				var since time.Time
				f.status(t, func(s status) bool {
					local := s.of("local")
					if s.of("gosdk").InFlight != 1 || local.InFlight != 1 || local.Queued != 0 {
						since = time.Time{}
						return false
					}
					if since.IsZero() {
						since = time.Now()
					}
					return time.Since(since) > time.Second
				})
				go call(others, "forks__sleep", map[string]any{"ms": 3000})
				f.status(t, func(s status) bool {
					return s.of("local").InFlight == 1 && s.of("forks").InFlight == 1
				})
				if f.kill("server-everything") == 0 || f.kill(self) == 0 {
					t.Fatal("there are no children to be killed")
				}
				if err := ended(t, waits); err == nil || !strings.Contains(err.Error(), "gosdk") {
					t.Errorf("the call that may have had an effect: %v", err)
				}
				// The repeated call starts a child again. A call that came now could start one before
				// the end of the killed one is known, which would be no restart.
				f.status(t, func(s status) bool { return s.of("local").Restarts > before.of("local").Restarts })
				check()
				if err := ended(t, works); err != nil {
					t.Errorf("the call that has none: %v", err)
				}
				if err := ended(t, others); err != nil {
					t.Errorf("the call of another server: %v", err)
				}
				after := f.status(t, func(status) bool { return true })
				for _, name := range []string{"local", "gosdk"} {
					if after.of(name).Restarts <= before.of(name).Restarts {
						t.Errorf("%s was restarted %d times", name, after.of(name).Restarts)
					}
				}
			})
		}
	}
}

func checkCall(t *testing.T, u user, want, tool string, args any) {
	t.Helper()
	if got, err := u.call(within(t), tool, args); err != nil || !strings.Contains(got, want) {
		t.Errorf("%s = %s, %v; want %q", tool, got, err, want)
	}
}

func ended(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(waitLimit):
		t.Fatal("a call does not end")
		return nil
	}
}

// Nothing is left of a gateway: not when it is asked to end, or killed, while
// calls are under way, nor when its client is gone.
func TestGatewayNothingLeft(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			f := stateful(t)
			u := useAs(t, f.place(""), "http", "legacy")
			for _, tool := range []string{
				"local__echo", "memory__read_graph", "gosdk__add",
				"forks__math_add",
			} {
				// have them started
				u.call(within(t), tool, map[string]any{"message": "x", "A": 1, "B": 2, "a": 1, "b": 2})
			}
			ended := make(chan error, 1)
			go func() {
				_, err := u.call(within(t), "local__trigger-long-running-operation",
					map[string]any{"duration": 2})
				ended <- err
			}()
			f.status(t, func(s status) bool { return s.of("local").InFlight == 1 })
			if n := len(processes(f.dir)); n < 7 {
				// itself, four children, and two that one of them has started
				t.Errorf("there are %d processes: %q", n, processes(f.dir))
			}
			f.cmd.Process.Signal(signal)
			select {
			case <-f.ended:
			case <-time.After(waitLimit):
				t.Fatal("it does not end")
			}
			if err := <-ended; (err == nil) != (signal != syscall.SIGKILL) {
				t.Errorf("the call that was under way: %v", err)
			}
			nothingLeft(t, f.dir)
		})
	}
	for _, way := range []string{"closes", "is killed"} {
		t.Run("a client "+way, func(t *testing.T) {
			t.Parallel()
			node := npm(t, "server-everything", "stdio")
			args := slices.Concat([]string{"bridge", "stdio", "--log", "off", "--"}, node.Args)
			cmd := exec.Command(farcallPath, args...)
			cmd.Dir = node.Dir
			dir := marked(t, cmd)
			u := useAs(t, &place{stdio: func() *exec.Cmd { return cmd }}, "stdio", "legacy")
			if got, err := u.call(within(t), "echo", map[string]string{"message": "hello"}); err != nil ||
				got != "Echo: hello" {
				t.Fatalf("echo = %s, %v", got, err)
			}
			if way == "closes" {
				u.client.Close()
			} else {
				cmd.Process.Kill()
			}
			nothingLeft(t, dir)
		})
	}
}
