package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/store"
)

// The defaults of Config.Tasks.
const (
	taskTTL  = time.Hour
	taskSize = 1 << 30
)

var errTasksFixed = errors.New("gateway: tasks cannot change while the gateway runs: this needs a restart")

// taskStores are the directories in which the tasks of each address are stored. One that is open
// stays open when its upstream leaves: its tasks are known until their time is over.
type taskStores struct {
	dir  string // "": tasks are in memory
	opts store.Options

	mu   sync.Mutex
	open map[string]*store.Local // by the name of the endpoint
}

// endpointDir returns the directory of an endpoint. The names of upstreams differ in more than
// case.
func (t *taskStores) endpointDir(name string) string {
	if name == "" {
		return filepath.Join(t.dir, "mcp")
	}
	return filepath.Join(t.dir, "mcp-"+name)
}

// prepare opens the directory of an endpoint, unless it is open.
func (t *taskStores) prepare(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dir == "" || t.open[name] != nil {
		return nil
	}
	dir := t.endpointDir(name)
	l, err := store.Open(dir, &t.opts)
	switch {
	case errors.Is(err, store.ErrInUse):
		return fmt.Errorf("gateway: tasks: another process uses %s; give each gateway a directory", dir)
	case err != nil:
		return fmt.Errorf("gateway: tasks: %w", err)
	}
	if t.open == nil {
		t.open = map[string]*store.Local{}
	}
	t.open[name] = l
	return nil
}

// of returns the store of an endpoint, nil: its tasks are in memory.
func (t *taskStores) of(name string) store.Records {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.open[name]; l != nil {
		return l
	}
	return nil
}

// used returns the endpoints that have stored tasks.
func (t *taskStores) used() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, l := range t.open {
		if _, records := l.Used(); records > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (t *taskStores) close() (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.open {
		err = errors.Join(err, l.Close())
	}
	return err
}

// tasks reads where tasks are stored: a directory, or a map with it.
func (r *reader) tasks(c *Config, n *node, path string) {
	t := &c.Tasks
	if n.kind == scalarNode {
		r.directory(&t.Dir)(n, path)
		return
	}
	r.fields(n, path, map[string]take{
		"dir": r.directory(&t.Dir), "ttl": r.duration(&t.TTL), "max_size": r.sizeTo(&t.MaxBytes, 1<<40, "1TiB"),
	})
}

// directory reads a path that is relative to the file, and of a directory, if there is something.
func (r *reader) directory(dst *string) take {
	read := r.path(dst)
	return func(n *node, path string) {
		read(n, path)
		if info, err := os.Stat(*dst); *dst != "" && err == nil && !info.IsDir() {
			r.problemAt(n.at, path, "it is not a directory", "name one for tasks alone, which is made if it is not there")
		}
	}
}

// tasks checks where tasks are stored.
func (c *checker) tasks(conf *Config) {
	t := conf.Tasks
	if t.Dir == "" && (t.TTL != 0 || t.MaxBytes != 0) {
		c.problem("tasks", "it has no dir", "name a directory, such as dir: tasks")
	}
	c.notBefore("tasks.ttl", t.TTL)
	if t.MaxBytes < 0 {
		c.problem("tasks.max_size", "it is negative", "give a size, or 0 for the default")
	}
}

// sharedTasks returns where the nodes share their tasks. Nil: each node has its own.
func (g *Gateway) sharedTasks() store.Store {
	if g.node == nil || g.tasks.dir != "" {
		return nil
	}
	return g.opts.Shared
}

// taskStores returns what stores the tasks. Nothing is open yet.
func (g *Gateway) taskStores(c *Config) *taskStores {
	return &taskStores{
		dir:  c.Tasks.Dir,
		opts: store.Options{MaxBytes: int(min(cmp.Or(c.Tasks.MaxBytes, taskSize), math.MaxInt)), Logger: g.log},
	}
}
