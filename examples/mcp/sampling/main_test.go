package main

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/jsonrpc"
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

// model is a client with a model that uses tools as often as it has uses, and then says what the last result was.
func model(era string, turns *int, uses ...mcp.Content) *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Era:          era,
		Capabilities: &spec.ClientCapabilities{Sampling: &spec.SamplingCapability{Tools: spec.JSONObject{}}},
		Sample: func(_ context.Context, p *spec.CreateMessageRequestParams) (*spec.CreateMessageResult, error) {
			*turns++
			done := len(p.Messages) / 2
			if len(p.Tools) > 0 && done < len(uses) {
				return &spec.CreateMessageResult{Role: "assistant", Model: "m", StopReason: "toolUse", Content: []mcp.Content{uses[done]}}, nil
			}
			last := p.Messages[len(p.Messages)-1].Content[0]
			return &spec.CreateMessageResult{Role: "assistant", Model: "m", Content: []mcp.Content{mcp.Text("It is " + last.Content[0].Text)}}, nil
		},
	}
}

func use(id, name, input string) mcp.Content {
	return mcp.Content{Type: spec.TypeToolUse, ID: id, Name: name, Input: jsonrpc.Raw(input)}
}

// The model uses two tools, the first one wrongly, and is asked three times, in every revision.
func TestSolve(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		turns := 0
		o := model(era, &turns, use("1", "subtract", `{}`), use("2", "add", `{"numbers":[2,3]}`))
		got, err := mcp.CallTool[string](t.Context(), connect(t, newServer(), o), "solve", question{"What is 2+3?"})
		if got != "It is 5" || err != nil || turns != 3 {
			t.Errorf("%s: %q, %v after %d turns", era, got, err, turns)
		}
	}
}

// A model that goes on for ever is asked a bounded number of times.
func TestNoEnd(t *testing.T) {
	turns := 0
	o := model("modern", &turns)
	o.MaxRounds = 2 * maxTurns
	o.Sample = func(context.Context, *spec.CreateMessageRequestParams) (*spec.CreateMessageResult, error) {
		turns++
		return &spec.CreateMessageResult{Role: "assistant", Model: "m", StopReason: "toolUse", Content: []mcp.Content{use("1", "add", `{"numbers":[1]}`)}}, nil
	}
	_, err := mcp.CallTool[string](t.Context(), connect(t, newServer(), o), "solve", question{"?"})
	var failure *mcp.ToolError
	if !errors.As(err, &failure) || turns != maxTurns {
		t.Errorf("%v after %d turns", err, turns)
	}
}
