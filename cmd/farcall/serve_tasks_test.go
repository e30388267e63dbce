package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// taskUser is a client of 2026-07-28 at an address, with a key of the guard or none.
func taskUser(t *testing.T, url, key string) *mcp.Client {
	t.Helper()
	o := &mcp.ClientOptions{Era: "modern", Tasks: true}
	if key != "" {
		o.HTTP = &mcphttp.DialOptions{Header: http.Header{"Authorization": {"Bearer " + key}}}
	}
	c, err := mcp.Dial(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// startTasks starts a task that ends soon and one that does not end, and waits for the end of the
// first.
func startTasks(t *testing.T, c *mcp.Client, tool string) (ended, works string) {
	t.Helper()
	// what takes less is no task
	short, err := c.StartTask(t.Context(), tool, map[string]int{"ms": 1200}, 0)
	if err != nil || short.TaskID == "" {
		t.Fatalf("%+v, %v", short, err)
	}
	long, err := c.StartTask(t.Context(), tool, map[string]int{"ms": 600_000}, 0)
	if err != nil || long.TaskID == "" {
		t.Fatalf("%+v, %v", long, err)
	}
	if _, err := c.WaitTask(t.Context(), short.TaskID); err != nil {
		t.Fatal(err)
	}
	return short.TaskID, long.TaskID
}

// checkTasks looks at tasks of startTasks after the process has been killed and started again.
func checkTasks(t *testing.T, c *mcp.Client, ended, works string) {
	t.Helper()
	if r, err := c.WaitTask(t.Context(), ended); err != nil ||
		!strings.Contains(r.Content[0].Text, "1200") {
		t.Errorf("the task that had ended: %+v, %v", r, err)
	}
	if got, err := c.Task(t.Context(), works); err != nil || got.Status != spec.TaskFailed ||
		!strings.Contains(got.StatusMessage, "was stopped while the task ran") {
		t.Errorf("the task that worked: %+v, %v", got, err)
	}
}

func checkUnknown(t *testing.T, c *mcp.Client, id string) {
	t.Helper()
	if got, err := c.Task(t.Context(), id); err == nil {
		t.Errorf("another one sees the task %+v", got)
	}
}

// TestServeTasks kills farcall serve while a task works. The next process on the directory knows
// all tasks.
func TestServeTasks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tasks")
	s := serve(t, "--tasks", dir, "--log", "off")
	ended, works := startTasks(t, taskUser(t, s.addrs[0]+"/mcp", ""), "demo_task")
	second := program(t, "serve", "--listen", "127.0.0.1:0", "--tasks", dir, "--log", "off")
	if out, err := second.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "another process uses the directory") {
		t.Errorf("a second one on the directory: %s, %v", out, err)
	}
	s.kill(t)
	s = serve(t, "--tasks", dir, "--log", "off")
	checkTasks(t, taskUser(t, s.addrs[0]+"/mcp", ""), ended, works)
	s.stop(t)
}

// TestGatewayTasks does the same with a gateway to a child and to a server at an address; its
// clients have keys, at the address of all and at that of one.
func TestGatewayTasks(t *testing.T) {
	t.Parallel()
	behind := serve(t, "--log", "off")
	dir := t.TempDir()
	file := filepath.Join(dir, "farcall.yaml")
	text := fmt.Sprintf(`tasks: stored
namespace: always
upstreams:
  child: {command: [%q, serve, --stdio, --log, "off"], env: {%s: "1"}}
  far: {url: %q}
guard:
  keys:
    - {id: ann, hash: %q, roles: [user]}
    - {id: ben, hash: %q, roles: [user]}
  allow: [{roles: [user], calls: ["*"]}]
`, os.Args[0], execVar, behind.addrs[0]+"/mcp", hashOf([]byte("ann-key")),
		hashOf([]byte("ben-key")))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--config", file, "--log", "off")
	far := taskUser(t, s.addrs[0]+"/mcp/far", "ann-key")
	var there [3]string // what goes on at the server there
	for i, ms := range []int{5000, 600_000, 600_000} {
		made, err := far.StartTask(t.Context(), "demo_task", map[string]int{"ms": ms}, 0)
		if err != nil || made.TaskID == "" {
			t.Fatalf("%+v, %v", made, err)
		}
		there[i] = made.TaskID
	}
	type place struct{ path, tool, ended, works string }
	places := []*place{
		{path: "/mcp", tool: "child__demo_task"},
		{path: "/mcp/child", tool: "demo_task"},
	}
	for _, p := range places {
		p.ended, p.works = startTasks(t, taskUser(t, s.addrs[0]+p.path, "ann-key"), p.tool)
	}
	s.kill(t)
	s = serve(t, "--config", file, "--log", "off")
	for _, p := range places {
		checkTasks(t, taskUser(t, s.addrs[0]+p.path, "ann-key"), p.ended, p.works)
		checkUnknown(t, taskUser(t, s.addrs[0]+p.path, "ben-key"), p.ended)
	}
	// it is of another address
	checkUnknown(t, taskUser(t, s.addrs[0]+"/mcp", "ann-key"), places[1].ended)
	working := func(c *mcp.Client, id string) {
		t.Helper()
		for range 2 { // it is resumed by the first one
			if got, err := c.Task(t.Context(), id); err != nil || got.Status != spec.TaskWorking {
				t.Errorf("a task that goes on: %+v, %v", got, err)
			}
		}
	}
	far = taskUser(t, s.addrs[0]+"/mcp/far", "ann-key")
	working(far, there[1])
	s.stop(t) // which leaves tasks as kill does
	s = serve(t, "--config", file, "--log", "off")
	far = taskUser(t, s.addrs[0]+"/mcp/far", "ann-key")
	if r, err := far.WaitTask(t.Context(), there[0]); err != nil ||
		!strings.Contains(r.Content[0].Text, "5000") {
		t.Errorf("a task that has gone on: %+v, %v", r, err)
	}
	if err := far.CancelTask(t.Context(), there[1]); err != nil {
		t.Error(err)
	}
	working(far, there[2])
	s.stop(t)
}
