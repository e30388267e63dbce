package mcptest_test

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcptest"
)

// This is the code of docs/mcp.md: TestDocuments of package mcp compares them.

type Pair struct {
	A int `json:"a"`
	B int `json:"b"`
}

func newServer() *mcp.Server {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, mcp.Tool{Name: "add", Description: "Add two numbers"},
		func(_ context.Context, in Pair) (int, error) {
			return in.A + in.B, nil
		})
	return s
}

func TestAdd(t *testing.T) {
	c := mcptest.Client(t, newServer(), nil)
	sum, err := mcp.CallTool[int](t.Context(), c, "add", Pair{2, 3})
	if err != nil || sum != 5 {
		t.Errorf("got %d, %v; want 5", sum, err)
	}
}

func TestOverHTTP(t *testing.T) {
	url := mcptest.Listen(t, newServer())
	c, err := mcp.Dial(t.Context(), url, &mcp.ClientOptions{Era: "legacy"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := mcp.CallTool[int](t.Context(), c, "add", Pair{2, 3}); err != nil {
		t.Error(err)
	}
}

func TestTranscripts(t *testing.T) {
	mcptest.Golden(t, newServer(), "testdata/calc", nil, func(t *testing.T, c *mcp.Client) {
		if _, err := mcp.CallTool[int](t.Context(), c, "add", Pair{2, 3}); err != nil {
			t.Error(err)
		}
	})
}

func TestAsk(t *testing.T) {
	user := mcptest.NewUser(t, mcptest.Accepts(map[string]any{"topic": "tea"}))
	model := mcptest.NewModel(t, mcptest.Says("Tea is a drink."))
	c := mcptest.Client(t, asker(), &mcp.ClientOptions{Elicit: user.Elicit, Sample: model.Sample})
	if got, err := mcp.CallTool[string](t.Context(), c, "ask", nil); got != "Tea is a drink." ||
		err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
