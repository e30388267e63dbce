package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// taskRelay runs f, and has tasks.
func taskRelay(support string, f func(ctx context.Context) (string, error)) *fakeRelay {
	r := askingRelay(f)
	r.support = support
	return r
}

// A call of the modern era becomes a task when the relay says so.
func TestRelayTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := taskRelay(spec.TaskOptional, func(ctx context.Context) (string, error) {
			if ClientFrom(ctx).ProgressWanted {
				t.Error("a task has progress")
			}
			roots, err := Roots(ctx) // in a round
			if err == nil {
				err = StartTask(ctx)
			}
			if err != nil {
				return "", err
			}
			if err := relay.Notify(ctx, "notifications/progress",
				jsonrpc.Raw(`{"progress":1}`)); err != nil {
				t.Error(err)
			}
			p, err := Elicit[askForm](ctx, "Who?") // of the task
			if err != nil {
				return "", err
			}
			text, err := sleepMinute(ctx)
			return fmt.Sprint(roots[0].URI, p.Name, text), err
		})
		s := relayServer(t, f, nil)
		r, n := sendRounds(t, s, "tools/call", `{"name":"work"}`, humanAnswers)
		if n != 2 || r.Result.ResultType != spec.ResultTask || r.Result.Meta[spec.MetaServerInfo] == nil {
			t.Fatalf("%d rounds: %s", n, r.raw)
		}
		id := r.Result.TaskID
		synctest.Wait()
		g := sendTask(t, s, "tasks/get", id, "")
		if g.Result.Status != "input_required" || len(g.Result.InputRequests) != 1 {
			t.Fatalf("%s", g.raw)
		}
		for key := range g.Result.InputRequests {
			sendTask(t, s, "tasks/update", id,
				fmt.Sprintf(`,"inputResponses":{%q:%s}`, key, humanAnswers(spec.MethodElicitationCreate, nil)))
		}
		<-time.After(2 * time.Minute)
		if g := sendTask(t, s, "tasks/get", id, ""); g.Result.Status != "completed" ||
			g.Result.Result.Content[0].Text != "file:///rAnnslept" {
			t.Errorf("%s", g.raw)
		}

		r, _ = sendRounds(t, s, "tools/call", `{"name":"work"}`, humanAnswers)
		synctest.Wait()
		sendTask(t, s, "tasks/cancel", r.Result.TaskID, "")
		if g := sendTask(t, s, "tasks/get", r.Result.TaskID, ""); g.Result.Status != "cancelled" {
			t.Errorf("%s", g.raw)
		}
	})
}

// A tool that might have become a task, and did not, is answered as any other.
func TestRelayNoTask(t *testing.T) {
	const odd = `{ "resultType":"complete", "content":[] }`
	started := make(chan error, 1)
	f := &fakeRelay{support: spec.TaskOptional, forward: always(odd, rev2026)}
	s := relayServer(t, f, nil)
	if r := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`); !strings.Contains(r.raw,
		`"result":`+odd) {
		t.Errorf("%s", r.raw)
	}
	f.forward = always(`{"content":[]}`, rev2511)
	if r := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`); r.Result.ResultType !=
		"complete" || r.Result.Meta[spec.MetaServerInfo] == nil {
		t.Errorf("%s", r.raw)
	}
	f.forward = always(`{"resultType":"input_required","requestState":"theirs"}`, rev2026)
	if r := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`); r.Result.ResultType !=
		"input_required" || r.Result.RequestState != "theirs" {
		t.Errorf("%s", r.raw)
	}
	f.forward = failing(&jsonrpc.Error{Code: 5, Message: "no"})
	if r := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`); r.text() != "error 5" {
		t.Errorf("%s", r.raw)
	}
	for _, f.support = range []string{"", spec.TaskForbidden} {
		f.forward = func(
			ctx context.Context, _ *era.Revision, _ string, _ jsonrpc.Raw,
		) (jsonrpc.Raw, *era.Revision, error) {
			started <- StartTask(ctx)
			return jsonrpc.Raw(odd), era.Latest(), nil
		}
		if r := sendModern(t, s, canAll, "tools/call",
			`{"name":"work"}`); !strings.Contains(r.raw, `"result":`+odd) || <-started != nil {
			t.Errorf("%s", r.raw)
		}
	}
	f.support = spec.TaskRequired
	if r := sendModern(t, s, `{}`, "tools/call", `{"name":"work"}`); r.text() != "error -32021" {
		t.Errorf("%s", r.raw)
	}
	if keptTasks(s) != 0 {
		t.Error("tasks are left")
	}
}

func TestRelayLegacyTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := taskRelay(spec.TaskOptional, func(ctx context.Context) (string, error) {
			err := errors.Join(StartTask(ctx),
				relay.Notify(ctx, "notifications/message", jsonrpc.Raw(`{"level":"error","data":1}`)))
			roots, askErr := Roots(ctx)
			if err = errors.Join(err, askErr); err != nil {
				return "", err
			}
			text, err := sleepMinute(ctx)
			return roots[0].URI + text, err
		})
		s := relayServer(t, f, nil)
		told := make(chan string, 10)
		p := dialLegacy(t, s, rev2511, canAll,
			func(_ context.Context, req *farcall.Request) (any, error) {
				if req.IsNotification() {
					told <- string(req.Params)
					return nil, nil
				}
				return jsonrpc.Raw(humanAnswers(req.Method, req.Params)), nil
			})
		task := startLegacy(t, p, `{"name":"work","task":{"ttl":120000},"arguments":{"a":1.0}}`)
		if *task.TTL != 120_000 {
			t.Error(*task.TTL)
		}
		r := sendLegacy(t, p, "tasks/result", fmt.Sprintf(`{"taskId":%q}`, task.TaskID))
		if r.text() != "file:///rslept" || r.Result.ResultType != "" ||
			relatedTask(r.Result.Meta) != task.TaskID {
			t.Errorf("%+v", r)
		}
		if got := <-told; !strings.Contains(got, task.TaskID) ||
			!strings.Contains(got, `"level":"error"`) {
			t.Error(got)
		}
		if want := []string{
			rev2511 + ` tools/call {"name":"work","arguments":{"a":1.0}}`,
		}; !slices.Equal(f.take(&f.got), want) {
			t.Error(f.got)
		}

		f.forward = failing(
			&jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "no", Data: jsonrpc.Raw(`{"uri":"a:b"}`)})
		task = startLegacy(t, p, `{"name":"work","task":{}}`)
		if r := sendLegacy(t, p, "tasks/result", fmt.Sprintf(`{"taskId":%q}`, task.TaskID)); r.text() !=
			"error -32002" {
			t.Errorf("%+v", r)
		}
		f.forward = always(`{"content":[{"type":"text","text":"old"}],"isError":true}`, "2025-03-26")
		task = startLegacy(t, p, `{"name":"work","task":{}}`)
		if r := sendLegacy(t, p, "tasks/result",
			fmt.Sprintf(`{"taskId":%q}`, task.TaskID)); r.text() != "old" || !r.Result.IsError {
			t.Errorf("%+v", r)
		}
		if r := sendLegacy(t, p, "tasks/get",
			fmt.Sprintf(`{"taskId":%q}`, task.TaskID)); r.Result.Status != "failed" {
			t.Errorf("%+v", r)
		}

		// Without being asked for there is none, unless it must be one.
		if r := sendLegacy(t, p, "tools/call", `{"name":"work"}`); r.text() != "old" {
			t.Errorf("%+v", r)
		}
		f.support = spec.TaskRequired
		if r := sendLegacy(t, p, "tools/call", `{"name":"work"}`); r.text() != "error -32601" {
			t.Errorf("%+v", r)
		}
		f.support = ""
		if r := sendLegacy(t, p, "tools/call", `{"name":"work","task":{}}`); r.text() != "error -32601" {
			t.Errorf("%+v", r)
		}
	})
}

// Where no tasks are declared, a request for one is a call like any other, and
// asks no other server for one.
func TestRelayLegacyTaskUndeclared(t *testing.T) {
	for _, rev := range []string{rev2511, rev2506} {
		f := &fakeRelay{support: spec.TaskRequired, forward: always(`{"content":[]}`, rev)}
		if rev == rev2511 { // the other one knows none
			f.describe = func(context.Context) *relay.Description { return nil }
		}
		s := relayServer(t, f, nil)
		if got := relayExchange(t, s, rev, "tools/call",
			`{"name":"x","task":{"ttl":1},"arguments":{}}`); !strings.Contains(got,
			`"result":{"content":[]}`) {
			t.Errorf("%s: %s", rev, got)
		}
		if want := []string{rev + ` tools/call {"name":"x","arguments":{}}`}; !slices.Equal(f.got, want) {
			t.Errorf("%q", f.got)
		}
		if got := relayExchange(t, s, rev, "tasks/list", `{}`); !strings.Contains(got, "-32601") {
			t.Errorf("%s: %s", rev, got)
		}
	}
}

// The relay learns that a session has ended when its tasks have ended, too.
func TestRelayClosedAfterTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := make(chan struct{})
		f := taskRelay(spec.TaskOptional, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			<-stopped
			return "", ctx.Err()
		})
		w := serve(t, relayServer(t, f, nil))
		w.open(rev2511)
		if got := w.ask(legacyFrame("1", "tools/call", `{"name":"work","task":{}}`)); !strings.Contains(
			got, "taskId") {
			t.Fatal(got)
		}
		w.close()
		if got := f.take(&f.closed); len(got) != 0 {
			t.Error("before the task has ended:", got)
		}
		close(stopped)
		synctest.Wait()
		if got := f.take(&f.closed); len(got) != 1 {
			t.Error("closed:", got)
		}
	})
}
