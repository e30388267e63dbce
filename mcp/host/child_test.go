package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/stream"
)

// child is what the test's binary does as a server.
func child(behaviour string) int {
	fmt.Fprintln(os.Stderr, "I am", behaviour)
	switch behaviour {
	case "broken":
		return 3
	case "stubborn": // and outlives its standard input
		signal.Ignore(syscall.SIGTERM)
		defer func() { <-make(chan int) }()
	}
	fmt.Println("this is no message")
	s := newServer("child", "hello")
	mcp.AddTool(s, mcp.Tool{Name: "die"}, func(context.Context, struct{}) (string, error) {
		fmt.Fprintln(os.Stderr, "dying \x1b[31mnow")
		os.Exit(4)
		return "", nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "pid"}, func(context.Context, struct{}) (string, error) {
		return strconv.Itoa(os.Getpid()), nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "env"}, func(context.Context, struct{}) (string, error) {
		return strings.Join(os.Environ(), "\n"), nil
	})
	if s.ServeStdio(context.Background()) != nil {
		return 1
	}
	return 0
}

func childServer(t *testing.T, name, behaviour string) Server {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{
		Name: name, Command: []string{binary},
		Env: map[string]string{"HOST_TEST_CHILD": behaviour}, InheritEnv: []string{"GOCOVERDIR"},
	}
}

func said(t *testing.T, h *Host, tool string) string {
	t.Helper()
	r, err := h.CallTool(t.Context(), tool, nil)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return r.Content[0].Text
}

func statusOf(t *testing.T, h *Host, name string) Status {
	t.Helper()
	for _, s := range h.Status() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no status of %s", name)
	return Status{}
}

func alive(pid string) bool {
	n, _ := strconv.Atoi(pid)
	p, err := os.FindProcess(n)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

// A child that dies is started again, one that does not start hinders none, and Close leaves none.
func TestChildren(t *testing.T) {
	t.Setenv("NPM_TOKEN", "secret")
	h := newHost(t, []Server{
		childServer(t, "good", "good"), childServer(t, "broken", "broken"),
		{Name: "absent", Command: []string{"/no/such/program"}},
	}, &Options{MaxFailures: 1})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := statusOf(t, h, "good"); got.State != Ready || got.Server == nil ||
		got.Server.Name != "child" || got.Stderr != "I am good\n" {
		t.Errorf("good: %+v", got)
	}
	var exit *stream.ExitError
	if got := statusOf(t, h, "broken"); got.State != Failed || !got.Retry.IsZero() ||
		got.Stderr != "I am broken\n" || !errors.As(got.Err, &exit) {
		t.Errorf("broken: %+v", got)
	}
	if got := statusOf(t, h, "absent"); got.State != Failed || !errors.Is(got.Err, os.ErrNotExist) {
		t.Errorf("absent: %+v", got)
	}
	if l := h.Tools(); len(l.Items) != 4 || len(l.Missing) != 2 {
		t.Errorf("tools: %+v", l)
	}
	if env := said(t, h, "good__env"); strings.Contains(env, "NPM_TOKEN") ||
		!strings.Contains(env, "PATH=") {
		t.Errorf("the child's environment is %s", env)
	}
	pid := said(t, h, "good__pid")
	if err := h.Restart(t.Context(), "good"); err != nil {
		t.Fatal(err)
	}
	next := said(t, h, "good__pid")
	if next == pid || alive(pid) {
		t.Errorf("Restart left the process %s; now it is %s", pid, next)
	}
	if _, err := h.CallTool(t.Context(), "good__die", nil); err == nil {
		t.Error("a call with a server that dies has succeeded")
	}
	if err := h.Restart(t.Context(), "good"); err != nil { // it may not be known yet that it is dead
		t.Fatal(err)
	}
	if pid = said(t, h, "good__pid"); pid == next {
		t.Errorf("it is still the process %s", pid)
	}
	if err := h.Close(context.Background()); err != nil || alive(pid) {
		t.Errorf("after Close: %v, the child lives: %v", err, alive(pid))
	}
}

// A child that dies is started again without being asked for.
func TestChildComesBack(t *testing.T) {
	states := make(chan Status, 100)
	h := newHost(t, []Server{childServer(t, "good", "good")},
		&Options{MinDelay: time.Millisecond, OnStatus: func(s Status) { states <- s }})
	if _, err := h.CallTool(t.Context(), "good__die", nil); err == nil {
		t.Error("a call with a server that dies has succeeded")
	}
	var exit *stream.ExitError
	for _, want := range []State{Starting, Ready, Failed, Starting, Ready} {
		got := <-states
		if got.State != want {
			t.Fatalf("the state is %s, want %s: %+v", got.State, want, got)
		}
		if want == Failed &&
			(!errors.As(got.Err, &exit) || exit.State.ExitCode() != 4 || got.Retry.IsZero() ||
				got.Failures != 1 || !strings.HasSuffix(got.Stderr, "dying \\u001b[31mnow\n")) {
			t.Errorf("%+v", got)
		}
	}
	if got := said(t, h, "good__hello"); got != "child hello" {
		t.Errorf("it says %q", got)
	}
}

// Close ends also a child that does not want to, when its context has ended.
func TestCloseKills(t *testing.T) {
	h, err := New(t.Context(), []Server{childServer(t, "stubborn", "stubborn")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pid := said(t, h, "stubborn__pid")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := h.Close(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > time.Second || alive(pid) {
		t.Errorf("after %v the child lives: %v", took, alive(pid))
	}
}
