package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcptest"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// ask calls the tool with a client of an era that has a model.
func ask(t *testing.T, era string, model *mcptest.Model) (string, error) {
	t.Helper()
	c := mcptest.Client(t, newServer(), &mcp.ClientOptions{
		Era: era, Sample: model.Sample, MaxRounds: 2 * maxTurns,
		Capabilities: &spec.ClientCapabilities{
			Sampling: &spec.SamplingCapability{Tools: spec.JSONObject{}},
		},
	})
	return mcp.CallTool[string](t.Context(), c, "solve", question{"What is 2+3?"})
}

// The model uses two tools, the first one wrongly, and is asked three times, in every revision.
func TestSolve(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		model := mcptest.NewModel(t, mcptest.UsesTool("1", "subtract", struct{}{}),
			mcptest.UsesTool("2", "add", map[string]any{"numbers": []int{2, 3}}), mcptest.Says("It is 5"))
		if got, err := ask(t, era, model); got != "It is 5" || err != nil {
			t.Errorf("%s: %q, %v", era, got, err)
		}
		messages := model.Asked()[2].Messages
		first, second := messages[2].Content[0], messages[4].Content[0]
		if !first.IsError || !strings.Contains(first.Content[0].Text, "call the tool add") ||
			second.IsError || second.Content[0].Text != "5" {
			t.Errorf("%s: the tools returned %+v and %+v", era, first, second)
		}
	}
}

// A model that goes on for ever is asked a bounded number of times.
func TestNoEnd(t *testing.T) {
	model := mcptest.NewModel(t,
		slices.Repeat([]*spec.CreateMessageResult{
			mcptest.UsesTool("1", "add", map[string]any{"numbers": []int{1}}),
		}, maxTurns)...)
	_, err := ask(t, "modern", model)
	if _, failed := errors.AsType[*mcp.ToolError](err); !failed {
		t.Error(err)
	}
}
