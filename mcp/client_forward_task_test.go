package mcp

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// taskForwarder is a client of a server with tasks of one generation, and what a
// Forward of its tool "work" has.
func taskForwarder(
	t *testing.T, rev, over, support string, o *ClientOptions,
	work func(ctx context.Context) (string, error),
) (*Client, *spy, *Server, func() *relay.Forward) {
	t.Helper()
	s := taskServer(t, support, &ServerOptions{TaskPoll: 20 * time.Millisecond}, work)
	c, seen := forwarder(t, s, rev, over, o)
	return c, seen, s, func() *relay.Forward {
		return &relay.Forward{
			Method: "tools/call", Params: jsonrpc.Raw(`{"name":"work","arguments":{}}`),
			Revision:     era.Lookup("2025-06-18"),
			Info:         jsonrpc.Raw(`{"name":"x","version":"1"}`),
			Capabilities: jsonrpc.Raw(`{"elicitation":{"form":{}}}`),
		}
	}
}

func eachTaskForwarder(t *testing.T, f func(t *testing.T, rev, over string)) {
	t.Helper()
	for _, rev := range []string{revLegacy, revModern} {
		for _, over := range []string{"stream", "http"} {
			t.Run(rev+" over "+over, func(t *testing.T) { f(t, rev, over) })
		}
	}
}

// onTask is a relay.TaskObserver that leaves no task.
type onTask func(id, created string) error

func (f onTask) TaskStarted(id, created string) error { return f(id, created) }
func (onTask) LeavesTask() bool                       { return false }

// leaving leaves each task.
type leaving struct{ onTask }

func (leaving) LeavesTask() bool { return true }

// What a tool that runs as a task comes to is the result, as the server's
// revision has it.
func TestForwardTask(t *testing.T) {
	eachTaskForwarder(t, func(t *testing.T, rev, over string) {
		for _, test := range []struct {
			support string
			want    bool // a task
			ask     bool
		}{
			{spec.TaskRequired, true, false},
			{spec.TaskOptional, true, true},
			{spec.TaskOptional, rev == revModern, false},
			{spec.TaskForbidden, false, true},
		} {
			c, seen, _, forward := taskForwarder(t, rev, over, test.support, nil,
				func(context.Context) (string, error) {
					return "worked", nil
				})
			tasks := 0
			f := forward()
			f.Task, f.Tasks = test.ask, onTask(func(string, string) error {
				tasks++
				return nil
			})
			raw, in, err := c.Forward(t.Context(), f)
			if err != nil || in.Name != rev || !strings.Contains(string(raw), `"worked"`) ||
				strings.Contains(string(raw), "related-task") {
				t.Errorf("%s: %s, %v, %v", test.support, raw, in, err)
			}
			if tasks == 1 != test.want || seen.contains("tasks/get") != test.want {
				t.Errorf("%s, Task %t: told of %d tasks", test.support, test.ask, tasks)
			}
		}
	})
}

func TestForwardTaskFails(t *testing.T) {
	eachTaskForwarder(t, func(t *testing.T, rev, over string) {
		c, _, _, forward := taskForwarder(t, rev, over, spec.TaskRequired, nil,
			func(context.Context) (string, error) {
				return "", jsonrpc.Errorf(-5, "broken")
			})
		if raw, _, err := c.Forward(t.Context(), forward()); !errors.Is(err, jsonrpc.Code(-5)) {
			t.Errorf("%s, %v", raw, err)
		}
	})
}

// A task without a waiting caller is cancelled.
func TestForwardTaskCancelled(t *testing.T) {
	eachTaskForwarder(t, func(t *testing.T, rev, over string) {
		ended := make(chan error, 10)
		c, _, _, forward := taskForwarder(t, rev, over, spec.TaskRequired, nil,
			func(ctx context.Context) (string, error) {
				<-ctx.Done()
				ended <- ctx.Err()
				return "", ctx.Err()
			})
		ctx, cancel := context.WithCancel(t.Context())
		f := forward()
		f.Tasks = onTask(func(string, string) error {
			cancel()
			return nil
		})
		if _, _, err := c.Forward(ctx, f); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-ended
		refused := errors.New("no room for it")
		f.Tasks = onTask(func(string, string) error { return refused })
		f.Info, f.Capabilities = bytes.Clone(f.Info), bytes.Clone(f.Capabilities)
		if _, _, err := c.Forward(t.Context(), f); !errors.Is(err, refused) {
			t.Error(err)
		}
		clear(f.Info) // the request that they are from has ended, and its buffer has another one
		clear(f.Capabilities)
		<-ended
	})
}

// A task that was left is followed by a later call; one that the server does not know is an error.
func TestForwardResumesTask(t *testing.T) {
	eachTaskForwarder(t, func(t *testing.T, rev, over string) {
		goOn := make(chan struct{})
		c, seen, _, forward := taskForwarder(t, rev, over, spec.TaskRequired, nil,
			func(ctx context.Context) (string, error) {
				select {
				case <-goOn:
					return "worked", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})
		ctx, cancel := context.WithCancel(t.Context())
		f, id, created := forward(), "", ""
		f.Tasks = leaving{onTask(func(made, at string) error {
			id, created = made, at
			cancel()
			return nil
		})}
		if _, _, err := c.Forward(ctx, f); !errors.Is(err, context.Canceled) || id == "" {
			t.Errorf("%q, %v", id, err)
		}
		known := ""
		resumed := func(id, created string) *relay.Forward {
			return &relay.Forward{
				Method: spec.MethodToolsCall, TaskID: id, TaskCreated: created,
				Info: f.Info, Capabilities: f.Capabilities, Tasks: onTask(func(id, _ string) error {
					known = id
					close(goOn)
					return nil
				}),
			}
		}
		for _, other := range []*relay.Forward{
			resumed("none", created), resumed(id, ""),
			resumed(id, "2000-01-02T03:04:05Z"),
		} {
			if raw, in, err := c.Forward(t.Context(), other); !errors.Is(err, jsonrpc.InvalidParams) ||
				known != "" {
				t.Errorf("an unknown task: %s, %v, %v", raw, in, err)
			}
		}
		raw, in, err := c.Forward(t.Context(), resumed(id, created))
		if err != nil || in.Name != rev || known != id || !strings.Contains(string(raw), `"worked"`) {
			t.Errorf("%s, %v, %v", raw, in, err)
		}
		if seen.contains("tasks/cancel") {
			t.Error("the task was cancelled")
		}
	})
}

// What a task asks goes to Ask; when that has no answer, there is no use in the
// task.
func TestForwardTaskAsks(t *testing.T) {
	eachTaskForwarder(t, func(t *testing.T, rev, over string) {
		var silent atomic.Bool
		tags, ended := make(chan string, 10), make(chan error, 10)
		o := &ClientOptions{
			Capabilities: &spec.ClientCapabilities{
				Elicitation: &spec.ElicitationCapability{Form: spec.JSONObject{}},
			},
			Ask: func(ctx context.Context, _ string, _ jsonrpc.Raw) (jsonrpc.Raw, error) {
				tags <- tagOf(ctx)
				if silent.Load() {
					return nil, errors.New("no user is there")
				}
				return jsonrpc.Raw(`{"action":"accept","content":{"name":"Bob"}}`), nil
			},
		}
		c, _, _, forward := taskForwarder(t, rev, over, spec.TaskRequired, o,
			func(ctx context.Context) (string, error) {
				who, err := Elicit[askForm](ctx, "Who?")
				ended <- err
				return "hello " + who.Name, err
			})
		raw, _, err := c.Forward(tagged(t.Context(), "A"), forward())
		want := "A"
		if rev == revLegacy && over == "stream" {
			want = ""
		}
		if tag := <-tags; err != nil || <-ended != nil || !strings.Contains(string(raw), "hello Bob") ||
			tag != want {
			t.Errorf("%s, %v, asked with %q", raw, err, tag)
		}
		silent.Store(true)
		raw, _, err = c.Forward(t.Context(), forward())
		if err == nil && !strings.Contains(string(raw), `"isError":true`) {
			t.Errorf("%s, %v", raw, err)
		}
		if rev == revModern && !strings.Contains(err.Error(), "no user is there") {
			t.Error(err)
		}
		if <-ended == nil {
			t.Error("the task goes on")
		}
	})
}

// A caller that knows tasks itself has a task made in its name.
func TestForwardModernTask(t *testing.T) {
	c, seen, s, forward := taskForwarder(t, revModern, "stream", spec.TaskOptional,
		&ClientOptions{Name: "me"}, func(context.Context) (string, error) { return "worked", nil })
	f := forward()
	f.Revision = era.Latest()
	f.Params = jsonrpc.Raw(
		`{"name":"work","_meta":{"progressToken":"callers","io.modelcontextprotocol/protocolVersion":"2026-07-28",
		"io.modelcontextprotocol/clientInfo":{"name":"caller","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}`)
	before := len(seen.sent)
	raw, _, err := c.Forward(t.Context(), f)
	if err != nil || !strings.Contains(string(raw), "worked") || keptTasks(s) != 1 {
		t.Errorf("%s, %v", raw, err)
	}
	for _, frame := range seen.sent[before:] {
		if !strings.Contains(frame, `{"name":"caller","version":"1"}`) ||
			strings.Contains(frame, "callers") {
			t.Errorf("sent %s", frame)
		}
	}
}
