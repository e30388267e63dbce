package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// connect connects a client with a server in memory, until the end of the test.
func connect(t *testing.T, s *mcp.Server, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	near, far := farcall.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), far) }()
	c, err := mcp.Connect(t.Context(), near, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return c
}

// logged takes what the servers log.
type logged chan *spec.LoggingMessageNotificationParams

// host answers what servers ask.
func host(era string, log logged) *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Era: era,
		Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			if p.URL != "" {
				return &spec.ElicitResult{Action: "accept"}, nil
			}
			return &spec.ElicitResult{Action: "accept", Content: []byte(`{"seats":4}`)}, nil
		},
		Sample: func(
			context.Context, *spec.CreateMessageRequestParams,
		) (*spec.CreateMessageResult, error) {
			return &spec.CreateMessageResult{
				Role: "assistant", Model: "m",
				Content: []mcp.Content{mcp.Text("See you")},
			}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///home/ada"}}, nil
		},
		OnLog:    func(p *spec.LoggingMessageNotificationParams) { log <- p },
		LogLevel: "info",
	}
}

func TestEverything(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			log := make(logged, 10)
			c := connect(t, newServer(), host(era, log))
			for tool, want := range map[string]string{
				"book":    "a table for 4, inside: See you",
				"sign_in": "Signed in",
				"where":   "file:///home/ada",
			} {
				if got, err := mcp.CallTool[string](t.Context(), c, tool, nil); got != want || err != nil {
					t.Errorf("%s: %q, %v; want %q", tool, got, err, want)
				}
			}
			if got, err := mcp.CallTool[area](t.Context(), c, "area", square{3}); got.Area != 9 ||
				err != nil {
				t.Errorf("area: %v, %v", got, err)
			}
			drawn, err := c.CallTool(t.Context(), "draw", nil)
			if err != nil || len(drawn.Content) != 4 || string(drawn.Content[1].Data) != dot {
				t.Errorf("draw: %+v, %v", drawn, err)
			}
			if failed, err := c.CallTool(t.Context(), "fail", nil); err != nil || !failed.IsError {
				t.Errorf("fail: %+v, %v", failed, err)
			}

			var reports []float64
			ctx := mcp.OnProgress(t.Context(), func(p spec.ProgressNotificationParams) {
				reports = append(reports, p.Progress)
			})
			said, err := mcp.CallTool[string](ctx, c, "count", limit{3})
			if said != "Counted to 3" || err != nil || !slices.Equal(reports, []float64{1, 2, 3}) {
				t.Errorf("count: %q, %v, progress %v", said, err, reports)
			}
			for n := range 3 {
				if p := <-log; p.Level != "info" || p.Logger != "count" {
					t.Errorf("message %d of the log: %+v", n, p)
				}
			}

			if read, err := c.Read(t.Context(), "greeting:///Ada"); err != nil ||
				read.Contents[0].Text != "Hello, Ada!" {
				t.Errorf("read: %+v, %v", read, err)
			}
			prompt, err := c.Prompt(t.Context(), "greet", map[string]string{"style": "short", "words": "7"})
			if err != nil || prompt.Messages[0].Content.Text != "Write a short greeting of at most 7 words" {
				t.Errorf("prompt: %+v, %v", prompt, err)
			}
			if _, err = c.Prompt(t.Context(), "greet",
				map[string]string{"style": "short", "words": "few"}); err == nil {
				t.Error("a number of words that is no number is taken")
			}
			completed, err := c.Complete(t.Context(), &spec.CompleteRequestParams{
				Ref:      spec.CompleteReference{Type: "ref/prompt", Name: "greet"},
				Argument: spec.CompleteArgument{Name: "style", Value: "f"},
			})
			if err != nil || !slices.Equal(completed.Completion.Values, []string{"formal", "friendly"}) {
				t.Errorf("complete: %+v, %v", completed, err)
			}
		})
	}
}

func TestDeclined(t *testing.T) {
	o := host("modern", nil)
	o.Elicit = func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
		return &spec.ElicitResult{Action: "decline"}, nil
	}
	c := connect(t, newServer(), o)
	if got, err := mcp.CallTool[string](t.Context(), c, "book", nil); got != "No table was booked" ||
		err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
