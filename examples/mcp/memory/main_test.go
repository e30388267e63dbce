package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
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

func newClient(t *testing.T, path string, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	m, err := openMemory(path)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, newServer(m), o)
}

// Each step is one call, and how many changes it must make.
func TestMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "graph.json")
	c := newClient(t, path, nil)
	ada := Entity{Name: "Ada", Type: "person", Observations: []string{"writes programs"}}
	knows := Relation{From: "Ada", To: "Charles", Type: "knows"}
	for _, step := range []struct {
		tool string
		args any
		want int
	}{
		{
			"create_entities",
			entities{[]Entity{ada, {Name: "Charles", Type: "person"}, {Name: "Bob", Type: "cat"}}},
			3,
		},
		{"create_entities", entities{[]Entity{ada}}, 0},
		{"create_relations", relations{[]Relation{knows, knows}}, 1},
		{
			"add_observations",
			additions{[]Observation{{"Charles", []string{"builds engines", "is late", "is late"}}}},
			2,
		},
		{
			"delete_observations",
			additions{[]Observation{{"Charles", []string{"is late"}}, {"Zoe", []string{"x"}}}},
			1,
		},
		{"create_relations", relations{[]Relation{{From: "Bob", To: "Ada", Type: "likes"}}}, 1},
		{"delete_relations", relations{[]Relation{{From: "Bob", To: "Ada", Type: "hates"}}}, 0},
		{"delete_entities", names{[]string{"Bob", "Zoe"}}, 1},
	} {
		if got, err := mcp.CallTool[changed](t.Context(), c, step.tool, step.args); err != nil ||
			got.Changed != step.want {
			t.Errorf("%s: %+v, %v; want %d changes", step.tool, got, err, step.want)
		}
	}

	again := newClient(t, path, &mcp.ClientOptions{Era: "legacy"}) // reads the file
	g, err := mcp.CallTool[Graph](t.Context(), again, "read_graph", nil)
	if err != nil || len(g.Entities) != 2 || len(g.Relations) != 1 || g.Relations[0] != knows {
		t.Errorf("read_graph: %+v, %v", g, err)
	}
	g, err = mcp.CallTool[Graph](t.Context(), again, "search_nodes", query{"ENGINES"})
	if err != nil || len(g.Entities) != 1 || g.Entities[0].Name != "Charles" || len(g.Relations) != 0 {
		t.Errorf("search_nodes: %+v, %v", g, err)
	}
	g, err = mcp.CallTool[Graph](t.Context(), again, "open_nodes", names{[]string{"Ada", "Charles"}})
	if err != nil || len(g.Entities) != 2 || len(g.Relations) != 1 {
		t.Errorf("open_nodes: %+v, %v", g, err)
	}
	read, err := again.Read(t.Context(), graphURI)
	if err != nil || !strings.Contains(read.Contents[0].Text, "builds engines") {
		t.Errorf("the resource: %v, %v", read, err)
	}
}

// A call that fails changes nothing, even if a part of it could be done.
func TestUnknownEntity(t *testing.T) {
	c := newClient(t, "", nil)
	for tool, args := range map[string]any{
		"create_relations": relations{[]Relation{{From: "Ada", To: "Zoe", Type: "knows"}}},
		"add_observations": additions{[]Observation{{"Ada", []string{"x"}}, {"Zoe", []string{"x"}}}},
	} {
		if _, err := mcp.CallTool[changed](t.Context(), c, "create_entities",
			entities{[]Entity{{Name: "Ada", Type: "person"}}}); err != nil {
			t.Fatal(err)
		}
		_, err := mcp.CallTool[changed](t.Context(), c, tool, args)
		var failure *mcp.ToolError
		if !errors.As(err, &failure) || !strings.Contains(err.Error(), `"Zoe"`) {
			t.Errorf("%s: %v", tool, err)
		}
	}
	if g, err := mcp.CallTool[Graph](t.Context(), c, "read_graph", nil); err != nil ||
		len(g.Relations) != 0 || g.Entities[0].Observations != nil {
		t.Errorf("afterwards: %+v, %v", g, err)
	}
}

// A client that follows the graph hears of a change.
func TestFollow(t *testing.T) {
	listening, updated := make(chan bool, 1), make(chan string, 1)
	c := newClient(t, "", &mcp.ClientOptions{
		OnListening:       func(spec.SubscriptionFilter) { listening <- true },
		OnResourceUpdated: func(uri string) { updated <- uri },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Listen(ctx, spec.SubscriptionFilter{ResourceSubscriptions: []string{graphURI}})
	}()
	<-listening
	if _, err := c.CallTool(t.Context(), "create_entities",
		entities{[]Entity{{Name: "Ada", Type: "person"}}}); err != nil {
		t.Fatal(err)
	}
	if uri := <-updated; uri != graphURI {
		t.Errorf("updated: %q", uri)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "graph.json")
	if err := os.WriteFile(path, []byte(`{"entities":[`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openMemory(path); err == nil {
		t.Error("a damaged file was opened")
	}
}
