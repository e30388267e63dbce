package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const taskNodesConfig = `
upstreams:
  child: {command: [%q, serve, --stdio, --log, "off"], env: {%s: "1"}}
  far: {url: %q}
guard:
  keys:
    - {id: ann, hash: %q, roles: [user]}
    - {id: ben, hash: %q, roles: [user]}
  allow: [{roles: [user], calls: ["*"]}]
`

// Each node answers for the tasks of the others, to their owner alone, also when the node that ran
// them was killed: one of a child has failed then, for good, and one of a server at an address goes
// on.
func TestClusterTasks(t *testing.T) {
	t.Parallel()
	behind := serve(t, "--log", "off")
	n := startNodes(t, fmt.Sprintf(taskNodesConfig, os.Args[0], execVar, behind.addrs[0]+"/mcp",
		hashOf([]byte("ann-key")), hashOf([]byte("ben-key"))))
	at := func(i int, upstream, key string) *mcp.Client {
		return taskUser(t, n.all[i].addrs[0]+"/mcp/"+upstream, key)
	}
	started := func(c *mcp.Client, ms int) string {
		made, err := c.StartTask(t.Context(), "demo_task", map[string]int{"ms": ms}, 0)
		if err != nil || made.TaskID == "" {
			t.Fatalf("%+v, %v", made, err)
		}
		return made.TaskID
	}
	ended, works := startTasks(t, at(0, "child", "ann-key"), "demo_task")
	stopped := started(at(0, "child", "ann-key"), 600_000)
	goesOn := started(at(0, "far", "ann-key"), 3000)

	status := func(i int, id string) func() string {
		c := at(i, "child", "ann-key")
		return func() string {
			got, err := c.Task(t.Context(), id)
			if err != nil {
				return err.Error()
			}
			return got.Status + " " + got.StatusMessage
		}
	}
	if err := at(1, "child", "ann-key").CancelTask(t.Context(), stopped); err != nil {
		t.Errorf("cancelled at another node: %v", err)
	}
	for i := range n.all {
		for id, want := range map[string]string{
			ended: spec.TaskCompleted, works: spec.TaskWorking, stopped: spec.TaskCancelled,
		} {
			if got := status(i, id)(); !strings.HasPrefix(got, want) {
				t.Errorf("at node %d a task is %q, want %q", i, got, want)
			}
			checkUnknown(t, at(i, "child", "ben-key"), id)
		}
	}
	if err := n.all[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "was stopped while the task ran", status(1, works))
	for i := range 2 {
		checkTasks(t, at(i+1, "child", "ann-key"), ended, works)
		checkUnknown(t, at(i+1, "child", "ben-key"), ended)
		if got := status(i+1, stopped)(); !strings.HasPrefix(got, spec.TaskCancelled) {
			t.Errorf("what was cancelled is %q", got)
		}
		r, err := at(i+1, "far", "ann-key").WaitTask(t.Context(), goesOn)
		if err != nil || !strings.Contains(r.Content[0].Text, "3000") {
			t.Errorf("at node %d, the task that goes on: %+v, %v", i+1, r, err)
		}
	}
}

// A call of JSON-RPC with an idempotency key that a node had sent when it was killed is not made
// again: the other nodes say that its outcome is unknown.
func TestClusterKeys(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	calls := make(chan string, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := bufio.NewScanner(conn); in.Scan(); {
					calls <- in.Text()
				}
			}()
		}
	}()
	n := startNodes(t, fmt.Sprintf("upstreams: {r: {url: \"tcp://%s\", profile: raw}}\n", l.Addr()))
	call := func(i int) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.all[i].addrs[0]+"/rpc/r",
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"charge","params":[1]}`))
		if err != nil {
			return err.Error()
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "order 4711 of 2026-11-27")
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			return err.Error()
		}
		defer got.Body.Close()
		body, err := io.ReadAll(got.Body)
		return fmt.Sprint(string(body), err)
	}
	first := make(chan string, 1)
	go func() { first <- call(0) }()
	select {
	case <-calls:
	case answer := <-first:
		t.Fatalf("the first call is not made: %s", answer)
	}
	if err := n.all[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if answer := <-first; strings.Contains(answer, "jsonrpc") {
		t.Errorf("the node that was killed answers %s", answer)
	}
	for i := range 2 {
		until(t, `"sent":"unknown"`, func() string { // while the store elects a leader: sent: no
			answer := call(i + 1)
			if strings.Contains(answer, `"result"`) {
				t.Errorf("node %d answers %s", i+1, answer)
			}
			return answer
		})
	}
	if len(calls) > 0 {
		t.Errorf("it was made again: %s", <-calls)
	}
}
