package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// steps takes four steps of a time each, and reports and logs each of them.
func steps(each time.Duration) func(ctx context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		for i := range 4 {
			select {
			case <-time.After(each):
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
			if err := Progress(ctx, float64(i+1), 4, fmt.Sprint("step ", i+1)); err != nil {
				return "", err
			}
			if err := Log(ctx, "info", "", i); err != nil {
				return "", err
			}
		}
		return "done", nil
	}
}

// A call that ends within TaskAfter is answered as without tasks: at once, with its
// progress and its logs. One that takes longer is a task, and its end is noticed
// within twice the time of a poll.
func TestTaskAfter(t *testing.T) {
	for _, test := range []struct {
		each, least, most time.Duration
		reports           int
	}{
		{0, 0, 0, 4},
		{60 * time.Millisecond, 240 * time.Millisecond, 240 * time.Millisecond, 4},
		{300 * time.Millisecond, 1200 * time.Millisecond, 1400 * time.Millisecond, 3}, // 300, 600, 900
	} {
		synctest.Test(t, func(t *testing.T) {
			s := taskServer(t, spec.TaskOptional, &ServerOptions{TaskAfter: time.Second}, steps(test.each))
			var logs, reports counted
			mine, theirs := farcall.Pipe()
			served := make(chan error, 1)
			go func() { served <- s.Serve(t.Context(), theirs) }()
			c, err := Connect(t.Context(), mine,
				&ClientOptions{
					Tasks: true, LogLevel: "debug",
					OnLog: func(p *spec.LoggingMessageNotificationParams) {
						logs.add(string(p.Data))
					},
				})
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			got, err := CallTool[string](OnProgress(t.Context(), func(p spec.ProgressNotificationParams) {
				reports.add(p.Message)
			}), c, "work", nil)
			took := time.Since(begun)
			if err != nil || got != "done" || took < test.least || took > test.most {
				t.Errorf("steps of %v: %q, %v after %v", test.each, got, err, took)
			}
			if reports.count("step") != test.reports || logs.count("") != test.reports {
				t.Errorf("steps of %v: %d reports, %d logs", test.each, reports.count("step"), logs.count(""))
			}
			c.Close()
			<-served
		})
	}
}

// The progress of a task is its status, for those who ask and for those who listen.
func TestTaskProgressIsItsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskOptional, nil, steps(time.Second))
		id := startModern(t, s, `{"name":"work"}`).Result.TaskID
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			frame := fmt.Sprintf(
				`{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen",`+
					`"params":{"notifications":{"taskIds":[%q]},"_meta":{%q:%q,%q:%s}}}`,
				id, spec.MetaProtocolVersion, rev2026, spec.MetaClientCapabilities, canAll)
			farcall.NewResponder(s, nil).Respond(ctx, nil, []byte(frame), func(frame []byte) error {
				got = append(got, string(frame))
				return nil
			})
		}()
		var seen []string
		for range 3 {
			<-time.After(time.Second)
			synctest.Wait()
			g := sendTask(t, s, "tasks/get", id, "")
			seen = append(seen, g.Result.StatusMessage)
			if g.Result.Status != "working" || g.Result.LastUpdatedAt == g.Result.CreatedAt {
				t.Errorf("%s", g.raw)
			}
		}
		if want := []string{"step 1", "step 2", "step 3"}; !slices.Equal(seen, want) {
			t.Errorf("seen %q", seen)
		}
		<-time.After(2 * time.Second)
		if g := sendTask(t, s, "tasks/get", id, ""); g.Result.Status != "completed" ||
			g.Result.StatusMessage != "" {
			t.Errorf("%s", g.raw)
		}
		cancel()
		<-done
		told := strings.Join(got, "\n")
		for i := range 3 {
			if !strings.Contains(told, fmt.Sprintf(`"statusMessage":"step %d"`, i+1)) {
				t.Errorf("told %s", told)
			}
		}
	})
}

// The progressToken of a call lives as long as its task (2025-11-25).
func TestLegacyTaskProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskOptional, nil, steps(time.Second))
		var told counted
		p := dialLegacy(t, s, era.LatestLegacy().Name, canAll,
			farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
				told.add(r.Method + string(r.Params))
				return nil, nil
			}))
		r := sendLegacy(t, p, "tools/call", `{"name":"work","task":{},"_meta":{"progressToken":"tok"}}`)
		<-time.After(5 * time.Second)
		if n := told.count(`"progressToken":"tok"`); n != 4 {
			t.Errorf("%d reports: %q", n, told.all)
		}
		if n := told.count(r.Result.Task.TaskID); n < 4 {
			t.Errorf("%d notifications name the task", n)
		}
	})
}

// A call that asks becomes a task with its first question, and its handler runs once.
func TestTaskAfterAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		s := taskServer(t, spec.TaskOptional, &ServerOptions{TaskAfter: time.Second},
			func(ctx context.Context) (string, error) {
				runs++
				p, err := Elicit[askForm](relay.Named(ctx, "who"), "Who?")
				return p.Name, err
			})
		r := startModern(t, s, `{"name":"work"}`)
		if r.Result.Status != "working" {
			t.Errorf("created: %s", r.raw)
		}
		synctest.Wait() // until it asks
		sendTask(t, s, "tasks/update", r.Result.TaskID,
			`,"inputResponses":{"who":{"action":"accept","content":{"name":"A"}}}`)
		synctest.Wait()
		if g := sendTask(t, s, "tasks/get", r.Result.TaskID, ""); g.Result.Status != "completed" ||
			runs != 1 {
			t.Errorf("%d runs: %s", runs, g.raw)
		}
	})
}

// Without room for a task a call stays a call.
func TestTaskAfterWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskOptional, &ServerOptions{TaskAfter: time.Second, MaxTasks: 1},
			sleepMinute)
		startModern(t, s, `{"name":"work"}`)
		begun := time.Now()
		if r := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`); r.text() != "slept" ||
			time.Since(begun) != time.Minute {
			t.Errorf("after %v: %s", time.Since(begun), r.raw)
		}
	})
}

// The end of the handler and the end of TaskAfter at the same time: the call is
// answered, or is a task that ends.
func TestTaskAfterRace(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			s := taskServer(t, spec.TaskOptional, &ServerOptions{TaskAfter: time.Second},
				func(context.Context) (string, error) {
					<-time.After(time.Second)
					return "done", nil
				})
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					r := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`)
					if r.text() == "done" {
						return
					}
					<-time.After(time.Millisecond)
					if g := sendTask(t, s, "tasks/get", r.Result.TaskID, ""); g.Result.Status != "completed" {
						t.Errorf("%s then %s", r.raw, g.raw)
					}
				})
			}
			all.Wait()
		})
	}
}

// A client that is notified of a task does not wait for the next poll.
func TestTaskNotificationWakesClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := `"taskId":"7","createdAt":"","lastUpdatedAt":"","ttlMs":null,"pollIntervalMs":60000,`
		c, f := mustPipe(t, modernFake(replies{
			"tools/call": `{"resultType":"task",` + task + `"status":"working"}`,
			"tasks/get":  `{` + task + `"status":"working"}`,
		}), &ClientOptions{Tasks: true})
		go func() {
			<-time.After(10 * time.Second) // the polls are at 6.35 s and 12.75 s
			f.set("tasks/get",
				`{`+task+`"status":"completed","result":{"content":[{"type":"text","text":"done"}]}}`)
			_ = f.peer.Notify(t.Context(), spec.NotificationTasks,
				jsonrpc.Raw(`{`+task+`"status":"completed"}`))
		}()
		begun := time.Now()
		if got, err := CallTool[string](t.Context(), c, "x", nil); err != nil || got != "done" ||
			time.Since(begun) != 10*time.Second {
			t.Error(got, err, time.Since(begun))
		}
	})
}
