package supervise

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/faulty"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/internal/scan"
)

// parentMode makes this test binary play a gateway with a child of the mode.
const parentMode = "SUPERVISE_TEST_PARENT"

// TestMain fails when a goroutine or a process is left at the end.
func TestMain(m *testing.M) {
	faulty.Main()
	if mode := os.Getenv(parentMode); mode != "" {
		os.Exit(playParent(mode))
	}
	code := leak.Main(m)
	if left := faulty.NoneLeft(); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes are left:", left)
		code = 1
	}
	os.Exit(code)
}

const grace = 100 * time.Millisecond

// of is the command of a faulty child.
func of(mode string, args ...string) Command {
	path, args, env := faulty.Command(mode, args...)
	return Command{Path: path, Args: args, Env: env, Grace: grace}
}

// supervise makes a supervisor that the test ends with.
func supervise(t *testing.T, c Command, o *Options) *Supervisor {
	t.Helper()
	s := New(c, o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left := faulty.NoneLeft(); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	})
	return s
}

func start(t *testing.T, s *Supervisor) farcall.Transport {
	t.Helper()
	tr, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func send(t *testing.T, tr farcall.Transport, frames ...string) {
	t.Helper()
	for _, frame := range frames {
		if err := tr.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
}

// expect reads a frame that has the parts.
func expect(t *testing.T, tr farcall.Transport, parts ...string) []byte {
	t.Helper()
	frame, err := tr.Read()
	if err != nil {
		t.Fatalf("%v, wanted %q", err, parts)
	}
	for _, part := range parts {
		if !strings.Contains(string(frame), part) {
			t.Fatalf("got %.200q, wanted %q", frame, part)
		}
	}
	return frame
}

const (
	initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize",` +
		`"params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t",` +
		`"version":"1"}}}`
	call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",` +
		`"arguments":{"text":"hello"}}}`
	ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
)

// forked reads the id of the process that a child has started.
func forked(tr farcall.Transport) (pid int, err error) {
	frame, err := tr.Read()
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(scan.Member(scan.Member(frame, "params"), "pid")), &pid)
	return pid, err
}

// playParent starts a child, says the ids of all processes and waits to be
// killed. SIGTERM makes it close in order.
func playParent(mode string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := New(of(mode), nil)
	tr, err := s.Start(ctx)
	if err != nil {
		fmt.Println("cannot start:", err)
		return 1
	}
	grandchild := 0
	if strings.HasPrefix(mode, "fork") {
		if grandchild, err = forked(tr); err != nil {
			fmt.Println("no fork:", err)
			return 1
		}
	} else {
		err = tr.Write([]byte(ping))
		if _, readErr := tr.Read(); err != nil || readErr != nil {
			fmt.Println("no answer:", err, readErr)
			return 1
		}
	}
	fmt.Println(s.Stats().PIDs[0], grandchild, s.guard.line.pid())
	<-ctx.Done()
	if err := s.Close(); err != nil {
		fmt.Println("close:", err)
		return 1
	}
	return 0
}

// exitOf reads to the end.
func exitOf(t *testing.T, tr farcall.Transport) error {
	t.Helper()
	for {
		if _, err := tr.Read(); err != nil {
			return err
		}
	}
}
