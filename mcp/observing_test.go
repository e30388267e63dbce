package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcptest"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// watcher is an observer that keeps what it has seen.
type watcher struct {
	mu       sync.Mutex
	begun    int
	calls    []string
	sessions []string
}

func (w *watcher) options() *farcall.Options {
	life := func(sign string) func(observe.Lifetime) {
		return func(l observe.Lifetime) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if l.Kind == observe.Session {
				w.sessions = append(w.sessions, sign+l.Revision)
			}
		}
	}
	return &farcall.Options{Observer: &observe.Observer{
		Start: func(ctx context.Context, _ *observe.Call) context.Context {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.begun++
			return ctx
		},
		End: func(_ context.Context, c *observe.Call) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.begun--
			method := c.Method
			if !c.Known {
				method = "?"
			}
			if strings.HasPrefix(method, "tools/call") || strings.HasPrefix(method, "prompts/get") ||
				method == "?" {
				w.calls = append(w.calls, fmt.Sprintf("%s %s%s %d error=%v mcp=%v %s", method, c.Tool, c.Prompt,
					int(c.Code), c.ToolError, c.MCP, c.Revision))
			}
		},
		Open: life("+"), Close: life("-"),
	}}
}

// In each revision and on each transport the observer has the tool, the prompt and the revision of
// a call, whether the tool failed, and each session from its beginning to its end. A name that the
// server does not offer is in no field that may be a label.
func TestObserver(t *testing.T) {
	t.Parallel()
	for _, rev := range era.Revisions() {
		for _, overHTTP := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http=%v", rev.Name, overHTTP), func(t *testing.T) {
				t.Parallel()
				var w watcher
				t.Run("talk", func(t *testing.T) { talkObserved(t, rev.Name, overHTTP, w.options()) })
				w.mu.Lock()
				defer w.mu.Unlock()
				want := []string{
					"prompts/get hello 0 error=false mcp=true " + rev.Name,
					"tools/call  -32602 error=false mcp=true " + rev.Name,
					"tools/call add 0 error=false mcp=true " + rev.Name,
					"tools/call fail 0 error=true mcp=true " + rev.Name,
					"tools/call loud 0 error=false mcp=true " + rev.Name,
				}
				slices.Sort(w.calls)
				if !slices.Equal(w.calls, want) || w.begun != 0 {
					t.Errorf("%d calls have begun and not ended; got\n\t%s\nwant\n\t%s", w.begun,
						strings.Join(w.calls, "\n\t"), strings.Join(want, "\n\t"))
				}
				sessions := ""
				if rev.Handshake {
					sessions = "+" + rev.Name + " -" + rev.Name
				}
				if got := strings.Join(w.sessions, " "); got != sessions {
					t.Errorf("sessions %q, want %q", got, sessions)
				}
			})
		}
	}
}

// eventNames are the events of a call.
type eventNames struct{ strings.Builder }

func (e *eventNames) Event(name string) { e.WriteString(" " + name) }

// What a server sends on a stream of subscriptions/listen is an event of the call, over HTTP and on
// a connection.
func TestObservedListen(t *testing.T) {
	t.Parallel()
	for _, overHTTP := range []bool{false, true} {
		ended := make(chan string, 1)
		s := mcp.NewServer("s", "1", &mcp.ServerOptions{RPC: &farcall.Options{Observer: &observe.Observer{
			Start: func(ctx context.Context, c *observe.Call) context.Context {
				c.Events = new(eventNames)
				return ctx
			},
			End: func(_ context.Context, c *observe.Call) {
				if c.Method == spec.MethodSubscriptionsListen && !c.Outgoing {
					ended <- c.Events.(*eventNames).String() //nolint:forcetypeassert // of Start
				}
			},
		}}})
		add := func(name string) {
			mcp.AddTool(s, mcp.Tool{Name: name}, func(context.Context, struct{}) (int, error) {
				return 1, nil
			})
		}
		add("first")
		listening, changed := make(chan struct{}, 1), make(chan struct{}, 9)
		o := &mcp.ClientOptions{
			Era: "modern", OnListening: func(spec.SubscriptionFilter) { listening <- struct{}{} },
			OnListChanged: func(string) { changed <- struct{}{} },
		}
		var c *mcp.Client
		if overHTTP {
			var err error
			if c, err = mcp.Dial(t.Context(), mcptest.Listen(t, s), o); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
		} else {
			c = mcptest.Client(t, s, o)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Listen(ctx, spec.SubscriptionFilter{ToolsListChanged: true}) }()
		<-listening
		add("second")
		<-changed
		cancel()
		<-done
		want := " " + spec.NotificationSubscriptionsAcknowledged + " " + spec.NotificationToolsListChanged
		if got := <-ended; got != want {
			t.Errorf("over HTTP %v: events%s, want%s", overHTTP, got, want)
		}
	}
}

func talkObserved(t *testing.T, revision string, overHTTP bool, rpc *farcall.Options) {
	t.Helper()
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{RPC: rpc})
	mcp.AddTool(s, mcp.Tool{Name: "add"}, func(context.Context, struct{}) (int, error) {
		return 1, nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "fail"}, func(context.Context, struct{}) (int, error) {
		return 0, errors.New("no")
	})
	mcp.AddTool(s, mcp.Tool{Name: "loud"}, func(context.Context, struct{}) (string, error) {
		return `"isError":true`, nil
	})
	s.AddPrompt(mcp.Prompt{Name: "hello"},
		func(context.Context, map[string]string) (*mcp.PromptResult, error) {
			return &mcp.PromptResult{}, nil
		})
	o := &mcp.ClientOptions{Era: revision}
	var c *mcp.Client
	if overHTTP {
		var err error
		if c, err = mcp.Dial(t.Context(), mcptest.Listen(t, s), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	} else {
		c = mcptest.Client(t, s, o)
	}
	for _, name := range []string{"add", "fail", "loud", "no-such-tool"} {
		_, _ = c.CallTool(t.Context(), name, nil)
	}
	if _, err := c.Prompt(t.Context(), "hello", nil); err != nil {
		t.Error(err)
	}
}
