package main

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// connect connects a client with a server in memory, until the end of the test.
func connect(t *testing.T, s *mcp.Server, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	near, far := farcall.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), far) }()
	c, err := mcp.Connect(t.Context(), near, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A caller that only wants the result does not see whether there was a task.
func TestCall(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			defer s.Close()
			c := connect(t, s,
				&mcp.ClientOptions{Era: era, Tasks: true, Timeout: time.Hour, MaxTimeout: time.Hour})
			for minutes, want := range map[int]string{0: "a cake of 0 minutes", 3: "a cake of 3 minutes"} {
				if got, err := mcp.CallTool[baked](t.Context(), c, "bake", cake{minutes}); got.Cake != want ||
					err != nil {
					t.Errorf("%s: %v, %v", era, got, err)
				}
			}
		})
	}
}

// A task shows how far it is, and ends when it is cancelled.
func TestTask(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			defer s.Close()
			c := connect(t, s, &mcp.ClientOptions{Era: era, Tasks: true})
			task, err := c.StartTask(t.Context(), "bake", cake{90}, time.Hour)
			if err != nil || task.TaskID == "" {
				t.Fatalf("%s: %+v, %v", era, task, err)
			}
			<-time.After(10 * time.Minute)
			if task, err = c.Task(t.Context(), task.TaskID); err != nil || task.Status != spec.TaskWorking ||
				task.StatusMessage != "in the oven" {
				t.Errorf("%s: %+v, %v", era, task, err)
			}
			if err := c.CancelTask(t.Context(), task.TaskID); err != nil {
				t.Error(err)
			}
			var failure *mcp.ToolError
			if result, err := c.WaitTask(t.Context(), task.TaskID); err == nil && !result.IsError &&
				!errors.As(err, &failure) {
				t.Errorf("%s: a task that was cancelled has the result %+v", era, result)
			}
		})
	}
}
