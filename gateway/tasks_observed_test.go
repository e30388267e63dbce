package gateway_test

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// A call that runs as a task is observed with its principal, what the guard has decided, its tool
// and its server, as any other call.
func TestTaskIsObserved(t *testing.T) {
	t.Parallel()
	seen := make(chan observe.Call, 100)
	o := &observe.Observer{End: func(_ context.Context, c *observe.Call) {
		if c.Method == spec.MethodToolsCall && !c.Outgoing {
			seen <- observe.Call{
				Tool: c.Tool, Upstream: c.Upstream, Principal: c.Principal,
				Decision: c.Decision,
			}
		}
	}}
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, mcp.Tool{
		Name: "job", Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional},
	}, func(context.Context, struct{}) (string, error) {
		return "done", nil
	})
	l := newLabOf(t, &gateway.Options{RPC: &farcall.Options{Observer: o}}, &gateway.Config{
		Upstreams: []*gateway.Upstream{{Name: "s", Server: s}}, Namespace: "always",
		Guard: guarded(guard.Rule{Roles: []string{"dev"}, Calls: []string{"*"}}),
	})
	for rev, decision := range map[string]string{"2025-11-25": "", "2026-07-28": "allowed"} {
		// the older client has decided on a task before the guard is asked
		c := l.clientAt(t, "/mcp", mcp.ClientOptions{Era: rev, Tasks: true, HTTP: withKeyOf("dev")})
		task, err := c.StartTask(t.Context(), "s__job", struct{}{}, 0)
		if err != nil {
			t.Fatal(rev, err)
		}
		if task.TaskID != "" {
			if _, err := c.WaitTask(t.Context(), task.TaskID); err != nil {
				t.Error(rev, err)
			}
		}
		got := received(t, "the call", seen)
		if decision == "" {
			if got.Principal != "dev" {
				t.Errorf("%s: %+v", rev, got)
			}
			continue
		}
		if got.Principal != "dev" || got.Decision != decision || got.Tool != "s__job" ||
			got.Upstream != "s" {
			t.Errorf("%s: %+v", rev, got)
		}
	}
}
