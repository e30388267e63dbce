// Command memory is an MCP server that remembers what a model tells it: a graph of entities and
// relations, kept in memory, or in a file. Clients that subscribe to the resource memory:///graph
// hear of each change.
//
//	go run ./examples/mcp/memory graph.json
//	farcall mcp call localhost:8080 create_entities 'entities:=[{"name":"Ada","type":"person","observations":["writes programs"]}]'
//	farcall mcp call localhost:8080 search_nodes query=programs
//	farcall mcp listen localhost:8080 --resource memory:///graph
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const graphURI = "memory:///graph"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	path := ""
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := run(ctx, path); err != nil {
		fmt.Fprintln(os.Stderr, "memory:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string) error {
	m, err := openMemory(path)
	if err != nil {
		return err
	}
	return newServer(m).ListenAndServe(ctx, "localhost:8080")
}

type (
	entities struct {
		Entities []Entity `json:"entities"`
	}
	relations struct {
		Relations []Relation `json:"relations"`
	}
	additions struct {
		Observations []Observation `json:"observations"`
	}
	names struct {
		Names []string `json:"names" doc:"of entities"`
	}
	query struct {
		Query string `json:"query" doc:"part of a name, a type or an observation" pattern:"\\S"`
	}
	changed struct {
		Changed int `json:"changed" doc:"how many were added or deleted"`
	}
	noArgument struct{}
)

func newServer(m *memory) *mcp.Server {
	s := mcp.NewServer("memory", "1.0.0", &mcp.ServerOptions{
		Instructions: "Search before you create. Observations are short facts about one entity.",
	})
	change(s, m, "create_entities",
		"Add entities; those with a name that is known are left as they are",
		func(g *Graph, in entities) (int, error) { return g.addEntities(in.Entities), nil })
	change(s, m, "create_relations", "Add relations between entities that are known",
		func(g *Graph, in relations) (int, error) { return g.addRelations(in.Relations) })
	change(s, m, "add_observations", "Add facts to entities that are known",
		func(g *Graph, in additions) (int, error) { return g.observe(in.Observations) })
	change(s, m, "delete_entities", "Delete entities and their relations",
		func(g *Graph, in names) (int, error) { return g.deleteEntities(in.Names), nil })
	change(s, m, "delete_observations", "Delete facts about entities",
		func(g *Graph, in additions) (int, error) { return g.forget(in.Observations), nil })
	change(s, m, "delete_relations", "Delete relations",
		func(g *Graph, in relations) (int, error) { return g.deleteRelations(in.Relations), nil })
	look(s, m, "read_graph", "Return all that is known", func(g Graph, _ noArgument) Graph {
		return g
	})
	look(s, m, "search_nodes", "Find entities, with the relations between them",
		func(g Graph, in query) Graph { return g.search(in.Query) })
	look(s, m, "open_nodes", "Return entities by name, with the relations between them",
		func(g Graph, in names) Graph { return g.open(in.Names) })
	s.AddResource(mcp.Resource{URI: graphURI, Name: "graph", MIMEType: "application/json"},
		func(context.Context, string) ([]mcp.ResourceContents, error) {
			text, err := json.Marshal(m.read())
			return []mcp.ResourceContents{{Text: string(text)}}, err
		})
	return s
}

// change adds a tool that changes the graph and returns how many changes it made.
func change[In any](
	s *mcp.Server, m *memory, name, description string, f func(*Graph, In) (int, error),
) {
	mcp.AddTool(s, mcp.Tool{Name: name, Description: description},
		func(_ context.Context, in In) (changed, error) {
			n, err := m.change(func(g *Graph) (int, error) { return f(g, in) })
			if n > 0 && err == nil {
				s.ResourceUpdated(graphURI)
			}
			return changed{n}, err
		})
}

// look adds a tool that only reads.
func look[In any](s *mcp.Server, m *memory, name, description string, f func(Graph, In) Graph) {
	mcp.AddTool(s, mcp.Tool{
		Name: name, Description: description, Annotations: &spec.ToolAnnotations{ReadOnlyHint: true},
	}, func(_ context.Context, in In) (Graph, error) { return f(m.read(), in), nil })
}
