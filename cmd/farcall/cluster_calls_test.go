package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// childConfig is the upstream of a node: a command, with a process for each owner.
func childConfig(t *testing.T, lifetime, era string) (config, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	return fmt.Sprintf(`
upstreams:
  c:
    command: [%q]
    env: {FARCALL_TEST_MCP: cluster, FARCALL_TEST_CHILD_LOG: %q, FARCALL_TEST_ERA: %q}
    lifetime: %s
    max_message: 100MB
`, os.Args[0], log, era, lifetime), log
}

// dialed is a client of an address, which answers questions.
func dialed(t *testing.T, at, era string, o mcp.ClientOptions) *mcp.Client {
	t.Helper()
	o.Era, o.NoCache = era, true
	o.Elicit = func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
		return &spec.ElicitResult{Action: spec.ElicitAccept, Content: jsonrpc.Raw(`{"Name":"ada"}`)}, nil
	}
	c, err := mcp.Dial(t.Context(), at, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func textOf(t *testing.T, c *mcp.Client, tool string, args any) string {
	t.Helper()
	r, err := c.CallTool(t.Context(), tool, args)
	if err != nil || r.IsError || len(r.Content) != 1 {
		t.Fatalf("%s: %v, %+v", tool, err, r)
	}
	return r.Content[0].Text
}

// present waits until each node knows the others.
func (n *nodes) present(t *testing.T) {
	t.Helper()
	for i := range n.all {
		until(t, "3 present", func() string {
			_, body := n.send(t, i, asking(t, "/readyz", ""))
			return body
		})
	}
}

// linked waits until each node knows where the others take requests.
func (n *nodes) linked(t *testing.T) {
	t.Helper()
	for _, s := range n.all {
		until(t, "3 nodes", func() string {
			out, _ := program(t, "cluster", "status", s.addrs[0], "--json").CombinedOutput()
			return fmt.Sprintf("%d nodes", strings.Count(string(out), `"calls"`))
		})
	}
}

// A session in the memory of one node, and the process that it has there, are used by way of all
// nodes: questions, progress, cancellation and large results pass.
func TestClusterCalls(t *testing.T) {
	t.Parallel()
	config, log := childConfig(t, "session", "legacy")
	n := startNodes(t, "sessions: {mode: memory}\n"+config)
	n.linked(t)
	front, _ := n.balance(t)
	for _, era := range []string{spec.Revision20251125, "2025-06-18"} {
		c := dialed(t, front+"/mcp", era, mcp.ClientOptions{})
		pid := ""
		for i := range 7 {
			got := textOf(t, c, "where", nil)
			was, count, _ := strings.Cut(got, ":")
			if pid == "" {
				pid = was
			}
			if was != pid || count != fmt.Sprint(i+1) {
				t.Errorf("%s: call %d is answered by %s", era, i, got)
			}
		}
		for range 4 {
			if got := textOf(t, c, "ask", nil); got != pid+" ada" {
				t.Errorf("%s: %s", era, got)
			}
		}
	}
	c := dialed(t, front+"/mcp", spec.Revision20251125, mcp.ClientOptions{
		HTTP: &mcphttp.DialOptions{MaxMessage: 100 << 20},
	})
	for range 3 {
		if got := textOf(t, c, "big", map[string]int{"Size": 50 << 20}); len(got) != 50<<20 {
			t.Errorf("%d bytes", len(got))
		}
	}
	for i := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.CallTool(mcp.OnProgress(ctx, func(spec.ProgressNotificationParams) {
			cancel()
		}), "wait", nil)
		if err == nil || ctx.Err() == nil {
			t.Error("it was not cancelled at its progress:", err)
		}
		until(t, strings.Repeat("cancelled\n", i+1), func() string {
			text, _ := os.ReadFile(log)
			return string(text)
		})
	}
	out, _ := program(t, "cluster", "status", n.all[0].addrs[0]).CombinedOutput()
	if !strings.Contains(string(out), "SESSIONS  SUSPENDED  PROCESSES") {
		t.Errorf("%s", out)
	}
}

// A principal has one process at all nodes together also by way of WebSocket and of /rpc.
func TestClusterPlacesOfOthers(t *testing.T) {
	t.Parallel()
	config, log := childConfig(t, "principal", "legacy")
	config += fmt.Sprintf(
		"  r:\n    command: [%q]\n    env: {FARCALL_TEST_MCP: cluster, FARCALL_TEST_CHILD_LOG: %q, "+
			"FARCALL_TEST_ERA: %q}\n    profile: raw\n",
		os.Args[0], log, spec.Revision20260728)
	var guard strings.Builder
	guard.WriteString("\nguard:\n  allow: [{calls: [\"*\"]}]\n  keys:\n")
	keys := []string{"fc_local", "fc_other", "fc_third"}
	for _, key := range keys {
		fmt.Fprintf(&guard, "    - {id: %s, hash: %q}\n", key, hashOf([]byte(key)))
	}
	n := startNodes(t, guard.String()+config)
	n.present(t)
	all := map[string]bool{}
	var asked []*mcp.Client
	for _, key := range keys {
		header := http.Header{"Authorization": {"Bearer " + key}}
		pids, raw := map[string]bool{}, map[string]bool{}
		for i, s := range n.all {
			for _, at := range []string{"http://", "ws://"} {
				c := dialed(t, at+s.hostport(t)+"/mcp", spec.Revision20251125,
					mcp.ClientOptions{HTTP: &mcphttp.DialOptions{Header: header}})
				pid, _, _ := strings.Cut(textOf(t, c, "where", nil), ":")
				pids[pid] = true
				if at == "ws://" {
					asked = append(asked, c)
				}
			}
			for _, path := range []string{"/rpc/r", "/rpc/r/"} {
				r := asking(t, path,
					`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"where","arguments":{},`+
						modernMeta+`}}`)
				r.Header.Set("Authorization", "Bearer "+key)
				status, body := n.send(t, i, r)
				_, pid, _ := strings.Cut(body, `"text":"`)
				if pid, _, _ = strings.Cut(pid, ":"); status != http.StatusOK || pid == "" {
					t.Errorf("node %d: %d %s", i, status, body)
				}
				raw[pid] = true
			}
		}
		if len(pids) != 1 || len(raw) != 1 {
			t.Errorf("%s: the processes %v, and for calls of JSON-RPC %v", key, pids, raw)
		}
		for pid := range raw {
			all[pid] = true
		}
	}
	if len(all) > len(n.all) {
		t.Errorf("%d processes for calls of JSON-RPC", len(all))
	}
	for _, c := range asked {
		if got := textOf(t, c, "ask", nil); !strings.HasSuffix(got, " ada") {
			t.Errorf("over a WebSocket: %s", got)
		}
	}
}

// A call that is suspended while its client is asked goes on where it began, whichever node gets
// the answers; and the processes of a principal are at one node.
func TestClusterPlaces(t *testing.T) {
	t.Parallel()
	config, _ := childConfig(t, "principal", "legacy")
	guard := fmt.Sprintf("\nguard:\n  keys:\n    - {id: local, hash: %q}\n"+
		"    - {id: other, hash: %q}\n  allow: [{calls: [\"*\"]}]\n",
		hashOf([]byte("fc_local")), hashOf([]byte("fc_other")))
	n := startNodes(t, guard+config)
	n.present(t)
	front, _ := n.balance(t)
	with := func(key, era string) *mcp.Client {
		return dialed(t, front+"/mcp", era,
			mcp.ClientOptions{
				HTTP: &mcphttp.DialOptions{Header: http.Header{"Authorization": {"Bearer " + key}}},
			})
	}
	pids := map[string]string{}
	for _, era := range []string{spec.Revision20251125, spec.Revision20260728} {
		for _, key := range []string{"fc_local", "fc_other", "fc_local", "fc_other"} {
			c := with(key, era)
			for range 5 {
				pid, _, _ := strings.Cut(textOf(t, c, "where", nil), ":")
				if pids[key+era] == "" {
					pids[key+era] = pid
				}
				if pid != pids[key+era] {
					t.Errorf("%s, %s: the process %s in place of %s", key, era, pid, pids[key+era])
				}
			}
		}
		if pids["fc_local"+era] == pids["fc_other"+era] {
			t.Error("two principals share a process")
		}
	}
	c := with("fc_local", spec.Revision20260728)
	for range 7 {
		if got := textOf(t, c, "ask", nil); !strings.HasSuffix(got, " ada") {
			t.Error(got)
		}
	}
}
