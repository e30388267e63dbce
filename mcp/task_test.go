package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const canNothing = `{}`

// taskServer returns a server with the tool "work", which can run as a task, and
// does at once unless the options say when, and the tool "plain", which cannot.
func taskServer(
	t *testing.T, support string, o *ServerOptions, f func(ctx context.Context) (string, error),
) *Server {
	t.Helper()
	atOnce := ServerOptions{}
	if o != nil {
		atOnce = *o
	}
	if atOnce.TaskAfter == 0 {
		atOnce.TaskAfter = -1
	}
	s := NewServer("s", "1", &atOnce)
	t.Cleanup(s.Close)
	run := func(ctx context.Context, _ struct{}) (string, error) { return f(ctx) }
	AddTool(s, Tool{Name: "work", Execution: &spec.ToolExecution{TaskSupport: support}}, run)
	AddTool(s, Tool{Name: "plain"}, func(context.Context, struct{}) (string, error) {
		return "plain", nil
	})
	return s
}

// sleepMinute takes a minute.
func sleepMinute(ctx context.Context) (string, error) {
	select {
	case <-time.After(time.Minute):
		return "slept", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func startModern(t *testing.T, s *Server, params string) wireReply {
	t.Helper()
	r := sendModern(t, s, canAll, "tools/call", params)
	if r.Result.ResultType != spec.ResultTask || r.Result.TaskID == "" {
		t.Fatalf("no task: %s", r.raw)
	}
	return r
}

func sendTask(t *testing.T, s *Server, method, id, more string) wireReply {
	t.Helper()
	return sendModern(t, s, canAll, method, fmt.Sprintf(`{"taskId":%q%s}`, id, more))
}

// keptTasks returns how many tasks the server keeps.
func keptTasks(s *Server) int {
	s.tasks.mu.Lock()
	defer s.tasks.mu.Unlock()
	return max(len(s.tasks.byID), len(s.tasks.byEnd))
}

func TestTaskLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskOptional, nil, sleepMinute)
		r := startModern(t, s, `{"name":"work"}`)
		id := r.Result.TaskID
		if r.Result.Status != "working" || *r.Result.TTLMS != 3_600_000 ||
			*r.Result.PollIntervalMS != 1000 || len(id) < 20 {
			t.Errorf("created: %s", r.raw)
		}
		if _, err := time.Parse(time.RFC3339, r.Result.CreatedAt); err != nil ||
			r.Result.CreatedAt != r.Result.LastUpdatedAt {
			t.Errorf("created: %s", r.raw)
		}
		for _, member := range []string{
			"requestState", `"task"`, `"ttl"`, `"pollInterval"`,
			"inputRequests", `"error"`, `"result":{"content`,
		} {
			if strings.Contains(strings.Replace(r.raw, `"resultType":"task"`, "", 1), member) {
				t.Errorf("created with %s: %s", member, r.raw)
			}
		}
		if g := sendTask(t, s, "tasks/get", id, ""); g.Result.Status != "working" ||
			g.Result.ResultType != "complete" || g.Result.TaskID != id {
			t.Errorf("at once: %s", g.raw)
		}
		<-time.After(time.Minute + time.Second)
		g := sendTask(t, s, "tasks/get", id, "")
		if g.Result.Status != "completed" || g.Result.Result == nil ||
			g.Result.Result.Content[0].Text != "slept" || g.Result.LastUpdatedAt == g.Result.CreatedAt {
			t.Errorf("at the end: %s", g.raw)
		}
		if strings.Contains(g.raw, "related-task") {
			t.Errorf("at the end: %s", g.raw)
		}
		if c := sendTask(t, s, "tasks/cancel", id, ""); c.Result.ResultType != "complete" ||
			c.Result.Status != "" || c.Result.TaskID != "" {
			t.Errorf("cancel after the end: %s", c.raw)
		}
		if g := sendTask(t, s, "tasks/get", id, ""); g.Result.Status != "completed" {
			t.Errorf("after cancel: %s", g.raw)
		}
	})
}

func TestTaskOrNot(t *testing.T) {
	done := func(ctx context.Context) (string, error) { return "done", ctx.Err() }
	for _, test := range []struct{ support, caps, params, want string }{
		{spec.TaskOptional, canAll, `{"name":"work"}`, "task"},
		{spec.TaskRequired, canAll, `{"name":"work"}`, "task"},
		{spec.TaskForbidden, canAll, `{"name":"work"}`, "done"},
		{"", canAll, `{"name":"work"}`, "done"},
		{spec.TaskOptional, canNothing, `{"name":"work"}`, "done"},
		{spec.TaskRequired, canNothing, `{"name":"work"}`, "error -32021"},
		{spec.TaskRequired, canAll, `{"name":"plain","task":{"ttl":60000,"pollInterval":100}}`, "plain"},
		{spec.TaskOptional, canNothing, `{"name":"work","task":{"ttl":60000}}`, "done"},
	} {
		s := taskServer(t, test.support, nil, done)
		r := sendModern(t, s, test.caps, "tools/call", test.params)
		if r.text() != test.want {
			t.Errorf("%+v: %s", test, r.raw)
		}
		if r.Error != nil &&
			string(r.Error.Data) !=
				`{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}` {
			t.Errorf("%+v: %s", test, r.raw)
		}
	}
}

func TestTaskMethodErrors(t *testing.T) {
	s := taskServer(t, spec.TaskOptional, nil, sleepMinute)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		params := `{"taskId":"x","inputResponses":{}}`
		if r := sendModern(t, s, canNothing, method, params); r.text() != "error -32021" {
			t.Errorf("%s without the extension: %s", method, r.raw)
		}
		if r := sendModern(t, s, canAll, method, params); r.text() != "error -32602" {
			t.Errorf("%s of no task: %s", method, r.raw)
		}
		if r := sendModern(t, s, canAll, method, `{"taskId":7}`); r.text() != "error -32602" {
			t.Errorf("%s of a number: %s", method, r.raw)
		}
	}
	for _, method := range []string{"tasks/result", "tasks/list", "tasks/other"} {
		if r := sendModern(t, s, canAll, method, `{"taskId":"x"}`); r.text() != "error -32601" {
			t.Errorf("%s: %s", method, r.raw)
		}
	}
	p := dialLegacy(t, s, rev2506, canAll, nil)
	if r := sendLegacy(t, p, "tasks/get", `{"taskId":"x"}`); r.text() != "error -32601" {
		t.Errorf("a revision without tasks: %+v", r)
	}
	if r := sendLegacy(t, asLegacy(t, s), "tasks/update",
		`{"taskId":"x"}`); r.text() != "error -32601" {
		t.Errorf("tasks/update in the legacy era: %+v", r)
	}
}

func TestTaskFailures(t *testing.T) {
	for name, test := range map[string]struct {
		f            func(context.Context) (string, error)
		status, code string
	}{
		"tool error": {func(context.Context) (string, error) {
			return "", errors.New("no luck")
		}, "completed", ""},
		"protocol error": {func(context.Context) (string, error) {
			return "", jsonrpc.Errorf(-5, "broken")
		}, "failed", "-5 broken"},
		"panic": {func(context.Context) (string, error) {
			panic("secret")
		}, "failed", "-32603 Internal error"},
		"goexit": {func(context.Context) (string, error) {
			runtime.Goexit()
			return "", nil
		}, "failed", "-32603 Internal error"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := taskServer(t, spec.TaskRequired, nil, test.f)
			id := startModern(t, s, `{"name":"work"}`).Result.TaskID
			synctest.Wait()
			g := sendTask(t, s, "tasks/get", id, "")
			if g.Result.Status != test.status || strings.Contains(g.raw, "secret") {
				t.Errorf("%s: %s", name, g.raw)
			}
			if e := g.Result.Error; e != nil &&
				(fmt.Sprint(int(e.Code), " ", e.Message) != test.code || g.Result.Result != nil) {
				t.Errorf("%s: %s", name, g.raw)
			}
			if test.code == "" &&
				(g.Result.Result == nil || !g.Result.Result.IsError || g.Result.Error != nil) {
				t.Errorf("%s: %s", name, g.raw)
			}
		})
	}
}

func TestTaskCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		s := taskServer(t, spec.TaskRequired, nil, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			<-time.After(time.Second)
			return "too late", nil
		})
		id := startModern(t, s, `{"name":"work"}`).Result.TaskID
		if c := sendTask(t, s, "tasks/cancel", id, ""); c.Result.ResultType != "complete" ||
			c.Result.TaskID != "" {
			t.Errorf("ack: %s", c.raw)
		}
		if err := <-ended; !errors.Is(err, errTaskCancelled) {
			t.Errorf("the handler ended by %v", err)
		}
		<-time.After(time.Minute)
		if g := sendTask(t, s, "tasks/get", id, ""); g.Result.Status != "cancelled" ||
			g.Result.Result != nil {
			t.Errorf("%s", g.raw)
		}
	})
}

func TestTaskAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, nil, func(ctx context.Context) (string, error) {
			var wait sync.WaitGroup
			names := make([]string, 2)
			for i := range names {
				wait.Go(func() {
					p, err := Elicit[askForm](relay.Named(ctx, fmt.Sprint("who", i)), "Who?")
					names[i] = fmt.Sprint(p.Name, err)
				})
			}
			wait.Wait()
			p, err := Elicit[askForm](relay.Named(ctx, "who0"), "And now?")
			return fmt.Sprint(names, p.Name), err
		})
		id := startModern(t, s, `{"name":"work"}`).Result.TaskID
		keysOf := func() []string {
			synctest.Wait()
			g := sendTask(t, s, "tasks/get", id, "")
			if len(g.Result.InputRequests) > 0 && g.Result.Status != "input_required" {
				t.Errorf("%s", g.raw)
			}
			return slices.Sorted(maps.Keys(g.Result.InputRequests))
		}
		if keys := keysOf(); !slices.Equal(keys, []string{"who0", "who1"}) {
			t.Fatalf("keys %v", keys)
		}
		for _, test := range []struct{ responses, want, keys string }{
			{`{}`, "complete", "[who0 who1]"},
			{`{"unknown":{"ignored":true}}`, "complete", "[who0 who1]"},
			{`{"who0":{"action":"accept","content":{"name":1}}}`, "error -32602", "[who0 who1]"},
			{`{"who0":5,"who1":{"action":"decline"}}`, "error -32602", "[who0 who1]"},
			{`{"who1":{"action":"accept","content":{"name":"B","confirm":true}}}`, "complete", "[who0]"},
			{`{"who1":{"action":"decline"}}`, "complete", "[who0]"},
			{`{"who0":{"action":"accept","content":{"name":"A"}}}`, "complete", "[who0-2]"},
		} {
			u := sendTask(t, s, "tasks/update", id, `,"inputResponses":`+test.responses)
			if u.text() != test.want || u.Result.TaskID != "" || u.Result.Status != "" {
				t.Errorf("%s: %s", test.responses, u.raw)
			}
			if keys := fmt.Sprint(keysOf()); keys != test.keys {
				t.Errorf("%s: keys %v, want %v", test.responses, keys, test.keys)
			}
		}
		for _, bad := range []string{``, `,"inputResponses":7`, `,"inputResponses":null`} {
			if u := sendTask(t, s, "tasks/update", id, bad); u.text() != "error -32602" {
				t.Errorf("%s: %s", bad, u.raw)
			}
		}
		sendTask(t, s, "tasks/update", id,
			`,"inputResponses":{"who0-2":{"action":"accept","content":{"name":"C"}}}`)
		synctest.Wait()
		if g := sendTask(t, s, "tasks/get", id, ""); g.Result.Status != "completed" ||
			g.Result.Result.Content[0].Text != "[A<nil> B<nil>] C" &&
				g.Result.Result.Content[0].Text != "[A<nil> B<nil>]C" {
			t.Errorf("%s", g.raw)
		}
	})
}

func TestTaskAskGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, nil, func(ctx context.Context) (string, error) {
			limited, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := Roots(limited)
			if !errors.Is(err, context.DeadlineExceeded) {
				return "", err
			}
			return sleepMinute(ctx)
		})
		id := startModern(t, s, `{"name":"work"}`).Result.TaskID
		synctest.Wait()
		if g := sendTask(t, s, "tasks/get", id, ""); g.Result.Status != "input_required" {
			t.Errorf("%s", g.raw)
		}
		<-time.After(2 * time.Second)
		if g := sendTask(t, s, "tasks/get", id, ""); g.Result.Status != "working" ||
			len(g.Result.InputRequests) > 0 {
			t.Errorf("%s", g.raw)
		}
	})
}

func TestTaskIsItsOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := "ann"
		s := taskServer(t, spec.TaskRequired, &ServerOptions{Owner: func(context.Context) string {
			return who
		}}, sleepMinute)
		id := startModern(t, s, `{"name":"work"}`).Result.TaskID
		who = "bob"
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
			if r := sendTask(t, s, method, id, `,"inputResponses":{}`); r.text() != "error -32602" {
				t.Errorf("%s: %s", method, r.raw)
			}
		}
		who = "ann"
		if r := sendTask(t, s, "tasks/get", id, ""); r.Result.Status != "working" {
			t.Errorf("%s", r.raw)
		}
	})
}

func TestTaskBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, &ServerOptions{MaxTasks: 2, TaskTTL: 90 * time.Second},
			sleepMinute)
		first := startModern(t, s, `{"name":"work"}`).Result.TaskID
		<-time.After(40 * time.Second)
		second := startModern(t, s, `{"name":"work"}`).Result.TaskID
		if r := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`); r.Error == nil ||
			r.Error.Code != jsonrpc.Overloaded {
			t.Errorf("a third: %s", r.raw)
		}
		<-time.After(50*time.Second - time.Millisecond)
		if g := sendTask(t, s, "tasks/get", first, ""); g.Result.Status != "completed" {
			t.Errorf("before its time is over: %s", g.raw)
		}
		<-time.After(time.Millisecond)
		if g := sendTask(t, s, "tasks/get", first, ""); g.text() != "error -32602" {
			t.Errorf("when its time is over: %s", g.raw)
		}
		if g := sendTask(t, s, "tasks/get", second, ""); g.Result.Status != "working" {
			t.Errorf("the second: %s", g.raw)
		}
		synctest.Wait()
		startModern(t, s, `{"name":"work"}`)
		<-time.After(time.Hour)
		if n := keptTasks(s); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

func TestTaskExpiresWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		s := taskServer(t, spec.TaskRequired, &ServerOptions{TaskTTL: time.Second},
			func(ctx context.Context) (string, error) {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return "", ctx.Err()
			})
		startModern(t, s, `{"name":"work"}`)
		<-time.After(time.Second)
		if err := <-cause; !errors.Is(err, errTaskExpired) {
			t.Errorf("ended by %v", err)
		}
	})
}

func TestTaskEndsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		s := taskServer(t, spec.TaskRequired, nil, func(ctx context.Context) (string, error) {
			_, err := Roots(ctx)
			cause <- context.Cause(ctx)
			return "", err
		})
		startModern(t, s, `{"name":"work"}`)
		synctest.Wait()
		s.Close()
		if err := <-cause; !errors.Is(err, errTaskClosed) {
			t.Errorf("ended by %v", err)
		}
		if r := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`); r.Error == nil {
			t.Errorf("a task after Close: %s", r.raw)
		}
	})
}

func TestTaskNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, nil, func(ctx context.Context) (string, error) {
			if err := Log(ctx, "info", "", "not on the wire"); err != nil {
				return "", err
			}
			return sleepMinute(ctx)
		})
		id := startModern(t, s, `{"name":"work"}`).Result.TaskID
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			frame := fmt.Sprintf(
				`{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen",`+
					`"params":{"notifications":{"taskIds":[%q,"other"]},"_meta":{%q:%q,%q:%s}}}`,
				id, spec.MetaProtocolVersion, rev2026, spec.MetaClientCapabilities, canAll)
			farcall.NewResponder(s, nil).Respond(ctx, nil, []byte(frame), func(frame []byte) error {
				got = append(got, string(frame))
				return nil
			})
		}()
		<-time.After(2 * time.Minute)
		cancel()
		<-done
		if len(got) != 2 || !strings.Contains(got[0], id) || strings.Contains(got[0], "other") {
			t.Fatalf("told %q", got)
		}
		if !strings.Contains(got[1], `"notifications/tasks"`) ||
			!strings.Contains(got[1], `"completed"`) || !strings.Contains(got[1], "slept") {
			t.Errorf("told %s", got[1])
		}
	})
}

func TestTaskLogsWhatClientsMayNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := taskServer(t, spec.TaskRequired,
			&ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			func(context.Context) (string, error) {
				panic("secret")
			})
		startModern(t, s, `{"name":"work"}`)
		synctest.Wait()
		if !strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "task_test.go") {
			t.Errorf("logged %q", log.String())
		}
	})
}
