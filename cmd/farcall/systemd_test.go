package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// systemd is the socket of a service manager.
type systemd struct{ *net.UnixConn }

func newSystemd(t *testing.T) (*systemd, string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("systemd is a program of Linux")
	}
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &systemd{c}, path
}

// next returns the next state but those of the watchdog, if skip.
func (s *systemd) next(t *testing.T, skip bool) string {
	t.Helper()
	for {
		buf := make([]byte, 4096)
		if err := s.SetReadDeadline(time.Now().Add(waitLimit)); err != nil {
			t.Fatal(err)
		}
		n, err := s.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(buf[:n]); !skip || text != "WATCHDOG=1" {
			return text
		}
	}
}

// A service says to systemd when it is ready, reads its configuration again, is alive and stops.
func TestSystemd(t *testing.T) {
	t.Parallel()
	manager, path := newSystemd(t)
	file := filepath.Join(t.TempDir(), "farcall.yaml")
	if err := os.WriteFile(file, []byte("upstreams:\n  a: {command: [sh, -c, 'exit 1']}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, "serve")
	cmd.Env = append(cmd.Environ(), "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=200000")
	s := serveProgram(t, cmd, "--config", file, "--listen", "127.0.0.1:0")
	if got := manager.next(t, true); got != "READY=1" {
		t.Errorf("the first state is %q", got)
	}
	for range 3 {
		if got := manager.next(t, false); got != "WATCHDOG=1" {
			t.Errorf("%q", got)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if got := manager.next(t, true); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("%q", got)
	}
	if got := manager.next(t, true); got != "READY=1" {
		t.Errorf("%q", got)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := manager.next(t, true); got != "STOPPING=1" {
		t.Errorf("%q", got)
	}
}

// What is wrong with the variables is an error, and they are not passed on.
func TestNotifier(t *testing.T) {
	manager, path := newSystemd(t)
	for _, at := range []struct {
		socket, pid, period, err string
		interval                 time.Duration
		none                     bool
	}{
		{none: true},
		{period: "100", none: true},
		{socket: path},
		{socket: path, period: "200000", interval: 100 * time.Millisecond},
		{socket: path, period: "200000", pid: fmt.Sprint(os.Getpid()), interval: 100 * time.Millisecond},
		{socket: path, period: "200000", pid: "1"},
		{socket: path, period: "-1", err: "WATCHDOG_USEC"},
		{socket: path, period: "1e9", err: "WATCHDOG_USEC"},
		{socket: path, period: "9223372036854775807", err: "WATCHDOG_USEC"},
		{socket: "relative", err: "neither a path nor an abstract name"},
		{socket: path + "2", err: "NOTIFY_SOCKET"},
	} {
		t.Setenv("NOTIFY_SOCKET", at.socket)
		t.Setenv("WATCHDOG_PID", at.pid)
		t.Setenv("WATCHDOG_USEC", at.period)
		n, err := newNotifier()
		switch {
		case at.err != "" || err != nil:
			if at.err == "" || err == nil || !strings.Contains(err.Error(), at.err) {
				t.Errorf("%+v: %v", at, err)
			}
		case (n == nil) != at.none || n != nil && n.interval != at.interval:
			t.Errorf("%+v: %+v", at, n)
		}
		if _, there := os.LookupEnv("NOTIFY_SOCKET"); there {
			t.Error("the variable is passed on")
		}
		if n.tell("STATUS=x"); n != nil {
			if got := manager.next(t, false); got != "STATUS=x" {
				t.Errorf("%q", got)
			}
		}
		n.close()
	}
}
