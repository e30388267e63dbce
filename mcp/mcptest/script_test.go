package mcptest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcptest"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// asker is a server with a tool that asks the user for a topic and the model about it.
func asker() *mcp.Server {
	s := mcp.NewServer("asker", "1.0.0", nil)
	mcp.AddTool(s, mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		form, err := mcp.Elicit[struct {
			Topic string `json:"topic"`
		}](ctx, "About what?")
		if err != nil {
			return "", err
		}
		r, err := mcp.Sample(ctx, &spec.CreateMessageRequestParams{
			Messages: []spec.SamplingMessage{
				{Role: spec.RoleUser, Content: []mcp.Content{mcp.Text("Explain " + form.Topic)}},
			}, MaxTokens: 10,
		})
		if err != nil {
			return "", err
		}
		return r.Content[0].Text, nil
	})
	return s
}

func TestModelAndUser(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			model := mcptest.NewModel(t, mcptest.Says("Tea is a drink."), mcptest.Says("Rain is water."))
			user := mcptest.NewUser(t, mcptest.Accepts(map[string]any{"topic": "tea"}),
				mcptest.Accepts(map[string]any{"topic": "rain"}),
				&spec.ElicitResult{Action: spec.ElicitDecline})
			c := mcptest.Client(t, asker(),
				&mcp.ClientOptions{Era: revision, Sample: model.Sample, Elicit: user.Elicit})
			for _, want := range []string{"Tea is a drink.", "Rain is water."} {
				if got, err := mcp.CallTool[string](t.Context(), c, "ask", nil); got != want || err != nil {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
			}
			if _, err := mcp.CallTool[string](t.Context(), c, "ask", nil); err == nil {
				t.Error("the user has declined")
			}
			var asked []string
			for _, p := range model.Asked() {
				asked = append(asked, p.Messages[0].Content[0].Text)
			}
			if got := strings.Join(asked, ", "); got != "Explain tea, Explain rain" {
				t.Errorf("the model was asked %q", got)
			}
			if got := user.Asked(); len(got) != 3 || got[0].Message != "About what?" {
				t.Errorf("the user was asked %+v", got)
			}
		})
	}
}

// A recorder is a test with failures that are looked at.
type recorder struct {
	testing.TB

	cleanup []func()
	failed  []string
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Errorf(f string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(f, args...))
}
func (r *recorder) Failed() bool  { return len(r.failed) > 0 }
func (r *recorder) Skipped() bool { return false }
func (r *recorder) end() string {
	for _, f := range r.cleanup {
		f()
	}
	return strings.Join(r.failed, "\n")
}

func TestScriptFails(t *testing.T) {
	left := &recorder{}
	mcptest.NewUser(left, mcptest.Accepts(nil))
	if got := left.end(); got != "mcptest: the user was asked 0 times; answers left: 1" {
		t.Errorf("an answer is left: %q", got)
	}
	short := &recorder{}
	m := mcptest.NewModel(short, mcptest.UsesTool("1", "add", map[string]any{"a": 1}))
	first, err := m.Sample(t.Context(), &spec.CreateMessageRequestParams{})
	if err != nil || first.StopReason != spec.StopToolUse ||
		string(first.Content[0].Input) != `{"a":1}` {
		t.Errorf("%+v, %v", first, err)
	}
	_, err = m.Sample(t.Context(), &spec.CreateMessageRequestParams{SystemPrompt: "the second"})
	if got := short.end(); err == nil || !strings.Contains(got, "no answer left for request 2") ||
		!strings.Contains(got, "the second") {
		t.Errorf("a request too many: %v, %q", err, got)
	}
	defer func() {
		if recover() == nil {
			t.Error(errors.New("a form of a number was accepted"))
		}
	}()
	mcptest.Accepts(1)
}
