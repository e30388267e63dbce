package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// asker is a legacy server with tools that ask.
func asker() *mcp.Server {
	s := mcp.NewServer("asker", "1", &mcp.ServerOptions{Eras: "legacy"})
	named := func(ctx context.Context, name string) (string, error) {
		f, err := mcp.Elicit[nameForm](relay.Named(ctx, name), name+"?")
		return f.Name, err
	}
	mcp.AddTool(s, mcp.Tool{Name: "twice"}, func(ctx context.Context, _ struct{}) (string, error) {
		one, err := named(ctx, "who")
		if err != nil {
			return "", err
		}
		two, err := named(ctx, "who")
		return one + two, err
	})
	mcp.AddTool(s, mcp.Tool{
		Name: "both", Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional},
	}, func(ctx context.Context, _ struct{}) (string, error) {
		var one, two string
		var err1, err2 error
		var asking sync.WaitGroup
		asking.Go(func() { one, err1 = named(ctx, "one") })
		asking.Go(func() { two, err2 = named(ctx, "two") })
		asking.Wait()
		return one + two, errors.Join(err1, err2)
	})
	return s
}

// asked is what a modern client gets back.
type asked struct {
	ResultType, RequestState, TaskID, Status string
	InputRequests                            map[string]json.RawMessage
	Content                                  []struct{ Text string }
	Result                                   *struct{ Content []struct{ Text string } }
}

func (a *asked) keys() string {
	return strings.Join(slices.Sorted(maps.Keys(a.InputRequests)), " ")
}

func (l *lab) asks(t *testing.T, method, name, params string) (a asked) {
	t.Helper()
	r, err := l.modern(t.Context(), method, name, params)
	if err != nil || r.err != nil || json.Unmarshal(r.result, &a) != nil {
		t.Fatalf("%v, %v", r, err)
	}
	return a
}

const bob = `{"action":"accept","content":{"name":"Bob"}}`

// A question keeps the name that a legacy server has given to it: clients know it
// by that, and may answer before they are asked.
func TestQuestionNames(t *testing.T) {
	l := newLab(t, nil, over(t, "a", asker()))
	a := l.asks(t, "tools/call", "twice", `"name":"twice","arguments":{}`)
	if a.keys() != "who" {
		t.Errorf("asked %q", a.keys())
	}
	a = l.asks(t, "tools/call", "twice",
		`"name":"twice","arguments":{},"requestState":"`+a.RequestState+`","inputResponses":{"who":`+bob+
			`}`)
	if a.keys() != "who-2" {
		t.Errorf("asked %q", a.keys())
	}
	a = l.asks(t, "tools/call", "twice",
		`"name":"twice","arguments":{},"requestState":"`+a.RequestState+
			`","inputResponses":{"who-2":{"action":"accept","content":{"name":"Ann"}}}`)
	if len(a.Content) != 1 || a.Content[0].Text != "BobAnn" {
		t.Errorf("%+v", a)
	}
	a = l.asks(t, "tools/call", "twice",
		`"name":"twice","arguments":{},"inputResponses":{"who":`+bob+`,"other":{},"who-2":`+bob+`}`)
	if len(a.Content) != 1 || a.Content[0].Text != "BobBob" {
		t.Errorf("%+v", a)
	}
}

// What a server asks at the same time is asked in one round.
func TestQuestionsTogether(t *testing.T) {
	l := newLab(t, nil, over(t, "a", asker()))
	var a asked
	for range 50 { // on a busy machine the second one may come later than the gateway waits
		if a = l.asks(t, "tools/call", "both", `"name":"both","arguments":{}`); a.keys() == "one two" {
			break
		}
	}
	if a.keys() != "one two" {
		t.Fatalf("asked %q", a.keys())
	}
	a = l.asks(t, "tools/call", "both",
		`"name":"both","arguments":{},"requestState":"`+a.RequestState+`","inputResponses":{"one":`+bob+
			`,"two":`+bob+`}`)
	if len(a.Content) != 1 || a.Content[0].Text != "BobBob" {
		t.Errorf("%+v", a)
	}
}

// The questions of a task are all there to be answered, and while they are not,
// no caller waits for the task when the gateway ends.
func TestQuestionsOfTask(t *testing.T) {
	l := newLab(t, nil, over(t, "a", asker()))
	c := l.client(t, mcp.ClientOptions{
		Era: modern, Tasks: true,
		Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{
				Action:  spec.ElicitAccept,
				Content: []byte(`{"name":"` + p.Message + `"}`),
			}, nil
		},
	})
	begin := func() (id string) {
		task, err := c.StartTask(t.Context(), "both", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "there are two questions", func() bool {
			now, err := c.Task(t.Context(), task.TaskID)
			return err == nil && now.Status == spec.TaskInputRequired && len(now.InputRequests) == 2
		})
		return task.TaskID
	}
	if r, err := c.WaitTask(t.Context(), begin()); err != nil || r.Content[0].Text != "one?two?" {
		t.Errorf("%+v, %v", r, err)
	}
	begin()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}
