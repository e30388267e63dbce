package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func asLegacy(t *testing.T, s *Server) *farcall.Peer {
	t.Helper()
	return dialLegacy(t, s, rev2511, canAll, answeringPeer(humanAnswers))
}

func startLegacy(t *testing.T, p *farcall.Peer, params string) spec.LegacyTask {
	t.Helper()
	r := sendLegacy(t, p, "tools/call", params)
	if r.Result.Task == nil || r.Result.Task.TaskID == "" {
		t.Fatalf("no task: %+v", r)
	}
	return *r.Result.Task
}

func taskParams(id string) string { return fmt.Sprintf(`{"taskId":%q}`, id) }

// relatedTask returns the task that a message says it belongs to.
func relatedTask(meta map[string]any) any {
	m, _ := meta[spec.MetaRelatedTask].(map[string]any)
	return m["taskId"]
}

func TestLegacyTaskLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskOptional, nil, sleepMinute)
		p := asLegacy(t, s)
		task := startLegacy(t, p, `{"name":"work","task":{"ttl":120000}}`)
		if task.Status != "working" || *task.TTL != 120_000 || *task.PollInterval != 1000 {
			t.Errorf("created: %+v", task)
		}
		begun := time.Now()
		r := sendLegacy(t, p, "tasks/result", taskParams(task.TaskID)) // waits
		if r.text() != "slept" || relatedTask(r.Result.Meta) != task.TaskID ||
			time.Since(begun) != time.Minute {
			t.Errorf("result: %+v", r)
		}
		if r := sendLegacy(t, p, "tasks/get", taskParams(task.TaskID)); r.Result.Status != "completed" ||
			*r.Result.TTL != 120_000 || relatedTask(r.Result.Meta) != nil {
			t.Errorf("get: %+v", r)
		}
		if r := sendLegacy(t, p, "tasks/cancel", taskParams(task.TaskID)); r.text() != "error -32602" {
			t.Errorf("cancel: %+v", r)
		}
		<-time.After(2 * time.Minute)
		if r := sendLegacy(t, p, "tasks/get", taskParams(task.TaskID)); r.text() != "error -32602" {
			t.Errorf("after its ttl: %+v", r)
		}
	})
}

func TestLegacyTaskOrNot(t *testing.T) {
	for _, test := range []struct{ support, rev, params, want string }{
		{spec.TaskOptional, rev2511, `{"name":"work"}`, "done"},
		{spec.TaskOptional, rev2511, `{"name":"work","task":{}}`, "task"},
		{spec.TaskRequired, rev2511, `{"name":"work"}`, "error -32601"},
		{spec.TaskRequired, rev2511, `{"name":"work","task":{"ttl":5}}`, "task"},
		{spec.TaskRequired, rev2511, `{"name":"work","task":5}`, "error -32602"},
		{spec.TaskRequired, rev2511, `{"name":"plain","task":{}}`, "error -32601"},
		{spec.TaskRequired, rev2511, `{"name":"plain"}`, "plain"},
		{spec.TaskForbidden, rev2511, `{"name":"work","task":{}}`, "done"}, // no task capability: ignored
		// a client that knows no tasks
		{spec.TaskRequired, rev2506, `{"name":"work"}`, "done"},
	} {
		s := taskServer(t, test.support, nil, func(context.Context) (string, error) {
			return "done", nil
		})
		r := sendLegacy(t, dialLegacy(t, s, test.rev, canAll, nil), "tools/call", test.params)
		got := r.text()
		if r.Result.Task != nil {
			got = "task"
		}
		if got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

func TestLegacyTaskOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		f              func(context.Context) (string, error)
		status, result string
	}{
		"tool error": {func(context.Context) (string, error) {
			return "", errors.New("no luck")
		}, "failed", "no luck"},
		"protocol error": {func(context.Context) (string, error) {
			return "", jsonrpc.Errorf(-5, "broken")
		}, "failed", "error -5"},
		"panic": {func(context.Context) (string, error) {
			panic("secret")
		}, "failed", "error -32603"},
	} {
		s := taskServer(t, spec.TaskRequired, nil, test.f)
		p := asLegacy(t, s)
		task := startLegacy(t, p, `{"name":"work","task":{}}`)
		if r := sendLegacy(t, p, "tasks/result", taskParams(task.TaskID)); r.text() != test.result {
			t.Errorf("%s: %+v", name, r)
		}
		if r := sendLegacy(t, p, "tasks/get", taskParams(task.TaskID)); r.Result.Status != test.status {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestLegacyTaskCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, nil, sleepMinute)
		p := asLegacy(t, s)
		id := startLegacy(t, p, `{"name":"work","task":{}}`).TaskID
		waited := make(chan wireReply, 1)
		go func() { waited <- sendLegacy(t, p, "tasks/result", taskParams(id)) }()
		synctest.Wait()
		if r := sendLegacy(t, p, "tasks/cancel", taskParams(id)); r.Result.Status != "cancelled" ||
			r.Result.TaskID != id {
			t.Errorf("%+v", r)
		}
		if r := <-waited; r.Error == nil || r.Error.Code != jsonrpc.Cancelled {
			t.Errorf("the result: %+v", r)
		}
	})
}

func TestLegacyTaskAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, nil, askEverything)
		var metas []any
		p := dialLegacy(t, s, rev2511, canAll,
			func(_ context.Context, req *farcall.Request) (any, error) {
				metas = append(metas,
					string(scan.Member(scan.Member(req.Params, "_meta"), spec.MetaRelatedTask)))
				return jsonrpc.Raw(humanAnswers(req.Method, req.Params)), nil
			})
		id := startLegacy(t, p, `{"name":"work","task":{}}`).TaskID
		synctest.Wait()
		if r := sendLegacy(t, p, "tasks/get", taskParams(id)); r.Result.Status != "input_required" ||
			len(metas) > 0 {
			t.Errorf("before tasks/result: %+v, asked %v", r, metas)
		}
		r := sendLegacy(t, p, "tasks/result", taskParams(id))
		if r.text() != "AnnredParisfile:///r" {
			t.Errorf("%+v", r)
		}
		if want := taskParams(id); len(metas) != 4 || metas[0] != want || metas[3] != want {
			t.Errorf("asked with %v", metas)
		}
	})
}

func TestLegacyTaskAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, nil, func(ctx context.Context) (string, error) {
			p, err := Elicit[askForm](ctx, "Who?")
			return p.Name, err
		})
		asked := 0
		p := dialLegacy(t, s, rev2511, canAll,
			func(ctx context.Context, req *farcall.Request) (any, error) {
				if asked++; asked == 1 { // the user is slow
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return jsonrpc.Raw(humanAnswers(req.Method, req.Params)), nil
			})
		id := startLegacy(t, p, `{"name":"work","task":{}}`).TaskID
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Call(ctx, "tasks/result", jsonrpc.Raw(taskParams(id)), nil); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if r := sendLegacy(t, p, "tasks/get", taskParams(id)); r.Result.Status != "input_required" {
			t.Errorf("%+v", r)
		}
		if r := sendLegacy(t, p, "tasks/result", taskParams(id)); r.text() != "Ann" || asked != 2 {
			t.Errorf("%+v, asked %d times", r, asked)
		}
	})
}

func TestLegacyTaskRefused(t *testing.T) {
	s := taskServer(t, spec.TaskRequired, nil, askEverything)
	p := dialLegacy(t, s, rev2511, canAll, answeringPeer(func(string, jsonrpc.Raw) string {
		return `{}`
	}))
	id := startLegacy(t, p, `{"name":"work","task":{}}`).TaskID
	if r := sendLegacy(t, p, "tasks/result", taskParams(id)); !r.Result.IsError ||
		!strings.Contains(r.text(), `"action" must be`) {
		t.Errorf("%+v", r)
	}
}

func TestLegacyTaskList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, &ServerOptions{PageSize: 2}, sleepMinute)
		p, other := asLegacy(t, s), asLegacy(t, s)
		var ids, listed []string
		for range 5 {
			ids = append(ids, startLegacy(t, p, `{"name":"work","task":{}}`).TaskID)
		}
		strange := startLegacy(t, other, `{"name":"work","task":{}}`).TaskID
		params := `{}`
		for pages := 1; ; pages++ {
			r := sendLegacy(t, p, "tasks/list", params)
			for _, task := range r.Result.Tasks {
				listed = append(listed, task.TaskID)
			}
			if r.Result.NextCursor == "" {
				if pages != 3 {
					t.Errorf("%d pages", pages)
				}
				break
			}
			params = fmt.Sprintf(`{"cursor":%q}`, r.Result.NextCursor)
		}
		if fmt.Sprint(listed) != fmt.Sprint(ids) {
			t.Errorf("listed %v, want %v", listed, ids)
		}
		if r := sendLegacy(t, p, "tasks/list", `{"cursor":"x"}`); r.text() != "error -32602" {
			t.Errorf("a bad cursor: %+v", r)
		}
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/result"} {
			if r := sendLegacy(t, p, method, taskParams(strange)); r.text() != "error -32602" {
				t.Errorf("%s of another session's: %+v", method, r)
			}
		}
		s.tasks.mu.Lock()
		gone := s.tasks.byID[strange].owner
		s.tasks.mu.Unlock()
		s.tasks.endOwner(gone)
		if r := sendLegacy(t, other, "tasks/list", `{}`); len(r.Result.Tasks) != 0 || keptTasks(s) != 5 {
			t.Errorf("after the session: %+v", r)
		}
	})
}

func TestLegacyTaskLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, nil, func(ctx context.Context) (string, error) {
			<-time.After(time.Second)
			return "", Log(ctx, "error", "", "hot")
		})
		told := make(chan string, 1)
		p := dialLegacy(t, s, rev2511, canAll,
			func(_ context.Context, req *farcall.Request) (any, error) {
				told <- string(req.Params)
				return nil, nil
			})
		id := startLegacy(t, p, `{"name":"work","task":{}}`).TaskID
		if params := <-told; !strings.Contains(params, "hot") || !strings.Contains(params, id) {
			t.Errorf("told %s", params)
		}
	})
}
