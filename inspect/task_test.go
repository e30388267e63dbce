package inspect

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A call that becomes a task returns its result, and the page gets its states. A task that is
// started and not waited for is followed by its id, its question is answered in the page, and it is
// cancelled.
func TestTask(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := mcp.NewServer("tasks", "1", &mcp.ServerOptions{TaskAfter: -1}) // each call is one
			mcp.AddTool(s, mcp.Tool{Name: "ask", Execution: &spec.ToolExecution{TaskSupport: "optional"}},
				func(ctx context.Context, _ struct{}) (string, error) {
					a, err := mcp.Elicit[answerTo](ctx, "Who?")
					return "hello " + a.Name, err
				})
			mcp.AddTool(s, mcp.Tool{Name: "wait", Execution: &spec.ToolExecution{TaskSupport: "required"}},
				func(ctx context.Context, _ struct{}) (string, error) {
					<-ctx.Done()
					return "", ctx.Err()
				})
			mcp.AddTool(s, mcp.Tool{Name: "long", Execution: &spec.ToolExecution{TaskSupport: "required"}},
				func(context.Context, struct{}) (string, error) { return "at last", nil })
			_, p, _ := inspector(t,
				&Options{Servers: []Server{{InProcess: s, Era: era}}, Connect: true})
			p.state(1, stateReady)
			start := func(tool string) (id string) {
				t.Helper()
				var o outcome
				p.call("call", callParams{
					Conn: 1, Call: "s", Kind: kindStart, Name: tool, Params: jsonrpc.Raw("{}"),
				}, &o)
				_, rest, _ := strings.Cut(o.Result, `"taskId":"`)
				id, _, ok := strings.Cut(rest, `"`)
				if !ok {
					t.Fatalf("no task was started: %+v", o)
				}
				p.saw("the task", func(e event) bool {
					return e.Type == eventTask && strings.Contains(string(e.Data), id)
				})
				return id
			}
			id := start("ask")
			done := make(chan outcome)
			go func() {
				var o outcome
				c := callParams{Conn: 1, Call: "t", Kind: kindTask, Name: id}
				if err := p.peer.Call(t.Context(), "call", c, &o); err != nil {
					t.Error(err)
				}
				done <- o
			}()
			e := p.until("a question", func(e event) bool { return e.Type == eventQuestion })
			var asked int
			if _, err := fmt.Sscanf(string(e.Data), `{"id":%d`, &asked); err != nil {
				t.Fatal(err)
			}
			answer := jsonrpc.Raw(`{"action":"accept","content":{"name":"Ada"}}`)
			p.call("answer", answerParams{ID: asked, Result: answer}, nil)
			if o := <-done; !strings.Contains(o.Result, "hello Ada") || o.Failed {
				t.Errorf("the task has come to %+v", o)
			}
			o := p.tool("long", "{}")
			if strings.Contains(o.Result, `"status":`) || !strings.Contains(o.Result, "at last") {
				t.Errorf("a call that became a task: %+v", o)
			}
			id = start("wait")
			o = outcome{}
			p.call("call", callParams{
				Conn: 1, Call: "x", Kind: kindMethod, Name: spec.MethodTasksCancel,
				Params: jsonrpc.Raw(`{"taskId":"` + id + `"}`),
			}, &o)
			o = outcome{}
			p.call("call", callParams{Conn: 1, Call: "t", Kind: kindTask, Name: id}, &o)
			if o.Fault == "" && o.Error == nil {
				t.Errorf("a task that was cancelled has come to %+v", o)
			}
			p.saw("its state", func(e event) bool {
				return e.Type == eventTask && strings.Contains(string(e.Data), "cancelled") &&
					strings.Contains(string(e.Data), id)
			})
		})
	}
}
