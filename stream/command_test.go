//go:build unix

package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
)

// self is this test binary as a child that plays the mode.
func self(mode string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	// The race detector would hold up each exit by a second.
	cmd.Env = append(os.Environ(), childMode+"="+mode, "GORACE=atexit_sleep_ms=0")
	return cmd
}

func command(t *testing.T, cmd *exec.Cmd, grace time.Duration) farcall.Transport {
	t.Helper()
	tr, err := Command(cmd, NDJSON, &Options{Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// readPID reads the process id that a hanging child says.
func readPID(t *testing.T, tr farcall.Transport) int {
	t.Helper()
	frame, err := tr.Read()
	if err != nil {
		t.Fatal(err)
	}
	return parsePID(t, frame)
}

func parsePID(t *testing.T, frame []byte) int {
	t.Helper()
	var said struct{ PID int }
	if err := json.Unmarshal(frame, &said); err != nil || said.PID == 0 {
		t.Fatalf("%q: %v", frame, err)
	}
	return said.PID
}

// mustBeGone waits until a process is gone, or a zombie: who is not our child
// is not ours to reap.
func mustBeGone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if syscall.Kill(pid, 0) != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		<-tick.C
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d is left", pid)
}

func TestCommand(t *testing.T) {
	cmd := self("stdio")
	tr := command(t, cmd, time.Minute)
	if _, ok := tr.(farcall.TryWriter); !ok {
		t.Error("a pipe can be written without blocking")
	}
	large := `"` + strings.Repeat("x", 5<<20) + `"`
	written := make(chan error)
	go func() { written <- tr.Write([]byte(`{"a":1}`), []byte(large), []byte("[]")) }()
	for _, want := range []string{`{"a":1}`, large, "[]"} {
		if got, err := tr.Read(); err != nil || string(got) != want {
			t.Fatalf("got %.20q, %v", got, err)
		}
	}
	if err := errors.Join(<-written, tr.Close(), tr.Close()); err != nil {
		t.Error(err)
	}
	if !cmd.ProcessState.Success() {
		t.Errorf("a child that ends with its input was not left in peace: %v", cmd.ProcessState)
	}
	if _, err := tr.Read(); !errors.Is(err, farcall.ErrClosed) {
		t.Error(err)
	}
}

func TestCommandEnds(t *testing.T) {
	var passed strings.Builder
	cmd := self("crash")
	cmd.Stderr = &passed
	tr := command(t, cmd, time.Minute)
	if got, err := tr.Read(); err != nil || string(got) != `{"last":"words"}` {
		t.Fatalf("got %q, %v", got, err)
	}
	_, err := tr.Read()
	var exit *ExitError
	if !errors.As(err, &exit) || exit.State.ExitCode() != 3 || errors.Is(err, io.EOF) ||
		exit.Stderr != "cannot open the database\n" {
		t.Fatalf("%#v", err)
	}
	if s := err.Error(); !strings.Contains(s, "exit status 3") ||
		!strings.Contains(s, `"cannot open the database"`) {
		t.Error(s)
	}
	if passed.String() != exit.Stderr {
		t.Errorf("passed on: %q", passed.String())
	}
	if err := tr.Write([]byte("{}")); err == nil {
		t.Error("a write to a dead child succeeded")
	}

	_, err = command(t, self("succeed"), time.Minute).Read()
	if !errors.As(err, &exit) || !errors.Is(err, io.EOF) ||
		!strings.Contains(err.Error(), "exit status 0") {
		t.Error(err)
	}
}

// TestCommandOnExit: it is called before Read returns, also when Close ends the child.
func TestCommandOnExit(t *testing.T) {
	for _, mode := range []string{"crash", "stdio"} {
		var told []*ExitError
		tr, err := Command(self(mode), NDJSON, &Options{OnExit: func(e *ExitError) {
			told = append(told, e)
		}})
		if err != nil {
			t.Fatal(err)
		}
		if mode == "crash" {
			_, _ = tr.Read()
			if _, err = tr.Read(); len(told) != 1 || err == nil || told[0].Error() != err.Error() {
				t.Errorf("told %v, read %v", told, err)
			}
		}
		if err := errors.Join(tr.Close(), tr.Close()); err != nil || len(told) != 1 ||
			told[0].State == nil {
			t.Errorf("%s: told %v, %v", mode, told, err)
		}
	}
}

func TestCommandCannotStart(t *testing.T) {
	before := openFiles(t)
	if _, err := Command(exec.Command("/nonexistent/program"), NDJSON, nil); err == nil ||
		!strings.Contains(err.Error(), `cannot start "/nonexistent/program"`) {
		t.Error(err)
	}
	cmd := self("stdio")
	cmd.Stdout = os.Stderr
	if _, err := Command(cmd, NDJSON, nil); err == nil {
		t.Error("two users of one standard output")
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}

func TestCommandFloodsStderr(t *testing.T) {
	tr := command(t, self("flood"), time.Minute)
	if got, err := tr.Read(); err != nil || string(got) != `"flooded"` {
		t.Fatalf("got %q, %v", got, err)
	}
	_, err := tr.Read()
	var exit *ExitError
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if len(exit.Stderr) != stderrTail || !strings.HasSuffix(exit.Stderr, "the last line\n") ||
		len(err.Error()) > 2*stderrText {
		t.Errorf("%d bytes are kept; the text has %d", len(exit.Stderr), len(err.Error()))
	}
}

// TestCommandIgnoresSIGTERM: SIGKILL comes, and only after twice the grace.
func TestCommandIgnoresSIGTERM(t *testing.T) {
	const grace = 50 * time.Millisecond
	cmd := self("hang")
	tr := command(t, cmd, grace)
	pid := readPID(t, tr)
	read := make(chan error)
	go func() {
		_, err := tr.Read()
		read <- err
	}()
	start := time.Now()
	closed := make(chan error)
	go func() { closed <- tr.Close() }()
	if err := <-read; !errors.Is(err, farcall.ErrClosed) {
		t.Error(err)
	}
	if err := <-closed; err != nil || time.Since(start) < 2*grace {
		t.Errorf("closed after %v: %v", time.Since(start), err)
	}
	mustBeGone(t, pid)
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok ||
		status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}

func TestCommandClosesItsOutput(t *testing.T) {
	_, err := command(t, self("mute"), 20*time.Millisecond).Read()
	var exit *ExitError
	if !errors.As(err, &exit) || exit.State == nil {
		t.Errorf("the child is of no use any more: %v", err)
	}
}

// TestCommandForks: what a child has started ends with it.
func TestCommandForks(t *testing.T) {
	t.Run("Close", func(t *testing.T) {
		tr := command(t, self("fork"), time.Minute)
		pid := readPID(t, tr)
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		mustBeGone(t, pid)
	})
	t.Run("exit", func(t *testing.T) {
		tr := command(t, self("fork-and-exit"), time.Minute)
		var exit *ExitError
		for {
			_, err := tr.Read()
			if errors.As(err, &exit) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if exit.State.ExitCode() != 7 {
			t.Error(exit)
		}
	})
	t.Run("exit, and the other has left the group", func(t *testing.T) {
		// It holds the output and standard error open: Read must end all the same.
		tr := command(t, self("fork-away-and-exit"), 100*time.Millisecond)
		var exit *ExitError
		for !errors.As(func() error {
			frame, err := tr.Read()
			if err == nil {
				t.Cleanup(func() { _ = syscall.Kill(parsePID(t, bytes.Clone(frame)), syscall.SIGKILL) })
			}
			return err
		}(), &exit) {
			t.Log("a frame came")
		}
		if exit.State.ExitCode() != 7 {
			t.Error(exit)
		}
	})
}

func TestCommandContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = self("hang").Env
	tr := command(t, cmd, 20*time.Millisecond)
	pid := readPID(t, tr)
	cancel()
	_, err := tr.Read()
	if _, ok := errors.AsType[*ExitError](err); !ok {
		t.Error(err)
	}
	mustBeGone(t, pid)
}

// TestCommandDiesWithParent kills the parent of a child that survives the end
// of its input.
func TestCommandDiesWithParent(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only linux ends a child with its parent")
	}
	middle := self("middle")
	out, err := middle.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := middle.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid := parsePID(t, line)
	_ = middle.Process.Kill()
	_ = middle.Wait()
	mustBeGone(t, pid)
}

// TestCommandLeavesNothing starts and ends children and counts descriptors.
func TestCommandLeavesNothing(t *testing.T) {
	round := func() {
		tr := command(t, self("succeed"), time.Minute)
		_, _ = tr.Read()
		tr.Close()
	}
	round() // what the first one opens stays: the poller
	before := openFiles(t)
	for range 20 {
		round()
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}

func TestStdio(t *testing.T) {
	in := "{}\n\n\r\n[1,\t2]\nlast"
	const want, end = "{}\n[1,\t2]\nlast\n", "end: EOF\n"
	t.Run("pipes", func(t *testing.T) {
		cmd := self("stdio")
		cmd.Stdin = strings.NewReader(in)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || string(out) != want || stderr.String() != end {
			t.Errorf("got %q, %q, %v", out, stderr.String(), err)
		}
	})
	t.Run("files", func(t *testing.T) {
		name := t.TempDir() + "/f"
		if err := os.WriteFile(name, []byte(in), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := self("stdio")
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		out, err := os.Create(name + "2")
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd.Stdin, cmd.Stdout = file, out
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name + "2"); err != nil || string(got) != want {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		var stderr strings.Builder
		cmd := self("stdio") // standard input and output are /dev/null
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil || stderr.String() != end {
			t.Errorf("%q, %v", stderr.String(), err)
		}
	})
	t.Run("sockets", func(t *testing.T) {
		ours, theirs := socketFiles(t)
		cmd := self("stdio")
		cmd.Stdin, cmd.Stdout = theirs, theirs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		if _, err := io.WriteString(ours, in); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Shutdown(int(ours.Fd()), syscall.SHUT_WR)
		if got, err := io.ReadAll(ours); err != nil || string(got) != want {
			t.Errorf("got %q, %v", got, err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Run("no reader", func(t *testing.T) {
		cmd := self("stdio")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin, cmd.Stdout = strings.NewReader(in), w
		r.Close()
		defer w.Close()
		// Not killed by SIGPIPE: it gets the error.
		if err := cmd.Run(); err == nil || err.Error() != "exit status 4" ||
			!strings.Contains(stderr.String(), "broken pipe") {
			t.Errorf("%v, %q", err, stderr.String())
		}
	})
}

func socketFiles(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// TestStdioClose closes the transport in a child that waits for its input.
func TestStdioClose(t *testing.T) {
	pipe := func(t *testing.T) (ours io.Writer, theirs *os.File) {
		t.Helper()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return w, r
	}
	socket := func(t *testing.T) (io.Writer, *os.File) { t.Helper(); return socketFiles(t) }
	for name, open := range map[string]func(t *testing.T) (io.Writer, *os.File){
		"pipe":   pipe,
		"socket": socket,
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := open(t)
			cmd := self("stdio-close")
			cmd.Stdin = theirs
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			goRead, goWrite, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer goRead.Close()
			defer goWrite.Close()
			cmd.ExtraFiles = []*os.File{goRead}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(stderr)
			if line, err := lines.ReadString('\n'); line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			_, _ = io.WriteString(ours, "{}\n")
			_, _ = io.WriteString(goWrite, "go\n")
			if line, _ := lines.ReadString('\n'); line != "read: farcall: connection closed close: <nil>\n" {
				t.Errorf("the child says %q", line)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if name == "pipe" && runtime.GOOS == "linux" {
				var flags uintptr
				conn, err := theirs.SyscallConn() // Fd would change the mode itself
				if err == nil {
					err = conn.Control(func(fd uintptr) {
						flags, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
					})
				}
				if err != nil || flags&syscall.O_NONBLOCK != 0 {
					t.Errorf("the child has changed the mode of our descriptor: %#x, %v", flags, err)
				}
			}
		})
	}
}
