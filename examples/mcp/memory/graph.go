package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
)

// An Entity is a thing that a model knows of.
type Entity struct {
	Name         string   `json:"name" doc:"unique" pattern:"\\S"`
	Type         string   `json:"type" doc:"such as person, place or event"`
	Observations []string `json:"observations,omitempty" doc:"facts, one each"`
}

// A Relation leads from one entity to another one.
type Relation struct {
	From string `json:"from" doc:"name of an entity"`
	To   string `json:"to" doc:"name of an entity"`
	Type string `json:"type" doc:"a verb, such as knows"`
}

// An Observation is facts about one entity.
type Observation struct {
	Name  string   `json:"name" doc:"of the entity"`
	Facts []string `json:"facts"`
}

// A Graph is all that is known.
type Graph struct {
	Entities  []Entity   `json:"entities"`
	Relations []Relation `json:"relations"`
}

// A memory keeps a graph, and writes it to a file if it has one. Any number of goroutines may use
// it.
type memory struct {
	path  string
	mu    sync.RWMutex
	graph Graph // replaced, never changed
}

func openMemory(path string) (*memory, error) {
	m := &memory{path: path}
	if path == "" {
		return m, nil
	}
	text, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &m.graph)
	}
	return m, err
}

func (m *memory) read() Graph {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.graph
}

// change calls f with a copy of the graph, which is kept, and written to the file, if f succeeds.
func (m *memory) change(f func(*Graph) (int, error)) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := Graph{slices.Clone(m.graph.Entities), slices.Clone(m.graph.Relations)}
	n, err := f(&g)
	if err == nil && m.path != "" {
		err = save(m.path, g)
	}
	if err != nil {
		return 0, err
	}
	m.graph = g
	return n, nil
}

// save replaces the file as a whole: one that was written by half never has its name.
func save(path string, g Graph) error {
	text, err := json.MarshalIndent(g, "", "\t")
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600) //nolint:gosec // the user names the file
	}
	if err == nil {
		err = os.Rename(path+".new", path) //nolint:gosec // the user names the file
	}
	return err
}

func (g *Graph) index(name string) int {
	return slices.IndexFunc(g.Entities, func(e Entity) bool { return e.Name == name })
}

func (g *Graph) addEntities(entities []Entity) (n int) {
	for _, e := range entities {
		if g.index(e.Name) < 0 {
			g.Entities = append(g.Entities, e)
			n++
		}
	}
	return n
}

func (g *Graph) addRelations(relations []Relation) (n int, err error) {
	for _, r := range relations {
		for _, name := range []string{r.From, r.To} {
			if g.index(name) < 0 {
				return 0, fmt.Errorf("unknown entity %q; create it first", name)
			}
		}
		if !slices.Contains(g.Relations, r) {
			g.Relations = append(g.Relations, r)
			n++
		}
	}
	return n, nil
}

func (g *Graph) observe(observations []Observation) (n int, err error) {
	for _, o := range observations {
		i := g.index(o.Name)
		if i < 0 {
			return 0, fmt.Errorf("unknown entity %q; create it first", o.Name)
		}
		known := slices.Clone(g.Entities[i].Observations)
		for _, fact := range o.Facts {
			if !slices.Contains(known, fact) {
				known = append(known, fact)
				n++
			}
		}
		g.Entities[i].Observations = known
	}
	return n, nil
}

func (g *Graph) forget(observations []Observation) (n int) {
	for _, o := range observations {
		if i := g.index(o.Name); i >= 0 {
			known := g.Entities[i].Observations
			g.Entities[i].Observations = slices.DeleteFunc(slices.Clone(known), func(f string) bool {
				return slices.Contains(o.Facts, f)
			})
			n += len(known) - len(g.Entities[i].Observations)
		}
	}
	return n
}

func (g *Graph) deleteEntities(names []string) int {
	before := len(g.Entities)
	g.Entities = slices.DeleteFunc(g.Entities, func(e Entity) bool {
		return slices.Contains(names, e.Name)
	})
	g.Relations = slices.DeleteFunc(g.Relations, func(r Relation) bool {
		return slices.Contains(names, r.From) || slices.Contains(names, r.To)
	})
	return before - len(g.Entities)
}

func (g *Graph) deleteRelations(relations []Relation) int {
	before := len(g.Relations)
	g.Relations = slices.DeleteFunc(g.Relations, func(r Relation) bool {
		return slices.Contains(relations, r)
	})
	return before - len(g.Relations)
}

func (g *Graph) search(query string) Graph {
	query = strings.ToLower(query)
	return g.part(func(e Entity) bool {
		return slices.ContainsFunc(append([]string{e.Name, e.Type}, e.Observations...),
			func(text string) bool {
				return strings.Contains(strings.ToLower(text), query)
			})
	})
}

func (g *Graph) open(names []string) Graph {
	return g.part(func(e Entity) bool { return slices.Contains(names, e.Name) })
}

// part returns some entities, and the relations between them.
func (g *Graph) part(has func(Entity) bool) (p Graph) {
	for _, e := range g.Entities {
		if has(e) {
			p.Entities = append(p.Entities, e)
		}
	}
	for _, r := range g.Relations {
		if p.index(r.From) >= 0 && p.index(r.To) >= 0 {
			p.Relations = append(p.Relations, r)
		}
	}
	return p
}
