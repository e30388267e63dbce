package mcp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// askThenStart asks, becomes a task, and takes a minute.
func askThenStart(ctx context.Context) (string, error) {
	p, err := Elicit[askForm](ctx, "Who?")
	if err != nil {
		return "", err
	}
	if err := StartTask(ctx); err != nil {
		return "", err
	}
	if _, err := sleepMinute(ctx); err != nil {
		return "", err
	}
	return "Hello " + p.Name, StartTask(ctx) // once is enough
}

func TestTaskAfterRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, nil, askThenStart)
		s.TaskLater("work")
		first := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`)
		if first.Result.ResultType != "input_required" || first.Result.TaskID != "" || keptTasks(s) != 0 {
			t.Fatalf("first round: %s", first.raw)
		}
		r, n := sendRounds(t, s, "tools/call", `{"name":"work"}`, humanAnswers)
		if r.Result.ResultType != "task" || n != 2 || r.Result.RequestState != "" ||
			r.Result.InputRequests != nil {
			t.Fatalf("last round: %s", r.raw)
		}
		<-time.After(2 * time.Minute)
		if g := sendTask(t, s, "tasks/get", r.Result.TaskID, ""); g.Result.Status != "completed" ||
			g.Result.Result.Content[0].Text != "Hello Ann" {
			t.Errorf("%s", g.raw)
		}
		p := asLegacy(t, s) // there, from the beginning
		l := sendLegacy(t, p, "tools/call", `{"name":"work","task":{}}`)
		if l.Result.Task == nil || l.Result.Task.Status != "working" {
			t.Errorf("legacy: %+v", l)
		}
	})
}

func TestTaskThatNeverStarts(t *testing.T) {
	for name, test := range map[string]struct {
		f    func(context.Context) (string, error)
		want string
	}{
		"result":     {func(context.Context) (string, error) { return "at once", nil }, "at once"},
		"tool error": {func(context.Context) (string, error) { return "", errors.New("no") }, "no"},
		"panic":      {func(context.Context) (string, error) { panic("secret") }, "error -32603"},
		"still asking": {func(ctx context.Context) (string, error) {
			_, _ = Roots(ctx)
			return "", StartTask(ctx)
		}, "input_required"},
	} {
		s := taskServer(t, spec.TaskOptional, nil, test.f)
		s.TaskLater("work")
		if r := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`); r.text() != test.want ||
			keptTasks(s) != 0 {
			t.Errorf("%s: %s", name, r.raw)
		}
	}
	for name, caps := range map[string]string{"without the extension": canNothing} {
		s := taskServer(t, spec.TaskOptional, nil, func(ctx context.Context) (string, error) {
			return "waited", StartTask(ctx)
		})
		s.TaskLater("work")
		if r := sendModern(t, s, caps, "tools/call", `{"name":"work"}`); r.text() != "waited" {
			t.Errorf("%s: %s", name, r.raw)
		}
	}
	if err := StartTask(t.Context()); err != nil {
		t.Errorf("outside of a handler: %v", err)
	}
}

func TestTaskLaterEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		s := taskServer(t, spec.TaskOptional, nil, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			cause <- ctx.Err()
			return "", ctx.Err()
		})
		s.TaskLater("work")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		frame := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"` +
			spec.MetaProtocolVersion + `":"` + rev2026 + `","` + spec.MetaClientCapabilities + `":` +
			canAll + `}}}`
		farcall.NewResponder(s, nil).Respond(ctx, nil, []byte(frame), nil)
		if err := <-cause; err == nil {
			t.Error("the handler goes on")
		}
	})
}

func TestTaskLaterWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskOptional, &ServerOptions{MaxTasks: 1},
			func(ctx context.Context) (string, error) {
				if err := StartTask(ctx); err != nil {
					return "", err
				}
				return sleepMinute(ctx)
			})
		s.TaskLater("work")
		startModern(t, s, `{"name":"work"}`)
		if r := sendModern(t, s, canAll, "tools/call", `{"name":"work"}`); r.text() != "error -32010" {
			t.Errorf("%s", r.raw)
		}
	})
}
