package gateway

import (
	"errors"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// TestTaskStateIncomplete resumes and cancels tasks with stored states that lack what identifies
// the task, as those of earlier versions do, or belong to another home: the upstream gets no
// request about them, or none but tasks/get.
func TestTaskStateIncomplete(t *testing.T) {
	s := newNumbering(t)
	s.tasks = []jsonrpc.Raw{jsonrpc.Raw(`{"of":"bob"}`)}
	u := &Upstream{Name: "u", URL: s.url}
	g, err := New(&Config{Upstreams: []*Upstream{u}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shutdownNow(g.Shutdown)
	e := &endpoint{g: g}
	home := g.plan.Load().byName["u"].cfg.taskHome(t.Context())
	created := "2026-01-02T03:00:01Z"
	for _, of := range []taskState{
		{Upstream: "u", Task: "1"},
		{Upstream: "u", Task: "1", Home: home},
		{Upstream: "u", Task: "1", Created: created},
		{Upstream: "u", Task: "1", Home: "00" + home[2:] + "0", Created: created},
	} {
		state, err := jsonv2.Append(nil, of)
		if err != nil {
			t.Fatal(err)
		}
		if raw, _, err := e.ResumeTask(t.Context(), era.Latest(), state); err == nil ||
			!strings.Contains(err.Error(), "does not know the task any more") {
			t.Errorf("%+v: %s, %v", of, raw, err)
		}
		e.cancelTask(g.newCalling(t.Context()), of)
	}
	if n := s.requests("tasks/"); n > 0 {
		t.Errorf("the upstream got %d requests about tasks", n)
	}
	e.cancelTask(g.newCalling(t.Context()),
		taskState{Upstream: "u", Task: "1", Home: home, Created: "2026-01-02T02:00:00Z"})
	if n := s.requests(spec.MethodTasksCancel); n > 0 {
		t.Error("the task of another caller was cancelled")
	}
	e.cancelTask(g.newCalling(t.Context()),
		taskState{Upstream: "u", Task: "1", Home: home, Created: created})
	if n := s.requests(spec.MethodTasksCancel); n != 1 {
		t.Errorf("the upstream got %d cancellations of the task itself", n)
	}
}

// TestResumedTaskGivenUp gives a task up after it was found at the upstream: it is cancelled,
// unless the upstream has restarted in between and its id names another task.
func TestResumedTaskGivenUp(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		s := newNumbering(t)
		s.tasks = []jsonrpc.Raw{jsonrpc.Raw(`{"of":"alice"}`)}
		outcome := make(chan string, 10)
		s.cancels = func() { outcome <- "cancelled" }
		client, err := mcp.Dial(t.Context(), s.url, &mcp.ClientOptions{OnWarning: func(error) {
			outcome <- "left alone"
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		refused := errors.New("no room for it")
		_, _, err = client.Forward(t.Context(), &relay.Forward{
			Method: spec.MethodToolsCall, TaskID: "1", TaskCreated: "2026-01-02T03:00:01Z",
			Tasks: onTask(func(string, string) error {
				if restarts {
					s.restart()
					s.answer(spec.MethodToolsCall, "", jsonrpc.Raw(`{"of":"bob"}`))
				}
				return refused
			}),
		})
		want := "cancelled"
		if restarts {
			want = "left alone"
		}
		if got := <-outcome; got != want || !errors.Is(err, refused) {
			t.Errorf("restarts: %t: the task is %s, %v", restarts, got, err)
		}
	}
}

// onTask is a relay.TaskObserver that leaves no task.
type onTask func(id, created string) error

func (f onTask) TaskStarted(id, created string) error { return f(id, created) }
func (onTask) LeavesTask() bool                       { return false }
