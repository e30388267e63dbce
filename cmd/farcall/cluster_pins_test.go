package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
)

const pinnedNodesConfig = `
lock: %s
upstreams:
  child: {command: [%q, serve, --stdio, --log, "off"], env: {%s: "1"}}
`

// What an operator accepts at one node holds at all. Without a quorum it still does, and nothing is
// accepted.
func TestClusterPins(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(t.TempDir(), "farcall.lock")
	if err := os.WriteFile(lock, []byte(`{"_":"","version":2,"upstreams":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startNodes(t, fmt.Sprintf(pinnedNodesConfig, lock, os.Args[0], execVar))
	admin := func(i int, args ...string) string {
		args = append(append([]string{"admin"}, args[0], n.all[i].addrs[0]), args[1:]...)
		out, _ := program(t, args...).CombinedOutput() // what is asked may be refused
		return string(out)
	}
	serves := func(i int) string {
		c, err := mcp.Dial(t.Context(), n.all[i].addrs[0]+"/mcp/child", nil)
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		r, err := c.CallTool(t.Context(), "echo", map[string]string{"text": "served"})
		if err != nil {
			return err.Error()
		}
		return r.Content[0].Text
	}
	for i := range n.all {
		if got := serves(i); !strings.Contains(got, "blocked") {
			t.Fatalf("node %d: %s", i, got)
		}
	}
	if out := admin(0, "accept-pins", "child"); !strings.Contains(out, "of child in the cluster") {
		t.Fatal(out)
	}
	for i := range n.all {
		until(t, "served", func() string { return serves(i) })
		until(t, "all as pinned in the cluster", func() string { return admin(i, "pins", "child") })
	}
	for i := range 2 {
		if err := n.all[i].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "does not decide since", n.ready(t, 2))
	if out := admin(2, "accept-pins", "child"); !strings.Contains(out, "does not answer") {
		t.Errorf("without a quorum: %s", out)
	}
	if got := serves(2); !strings.Contains(got, "served") {
		t.Errorf("without a quorum: %s", got)
	}
}
