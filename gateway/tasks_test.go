package gateway

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// The directory of tasks belongs to one gateway, with all of its addresses, and cannot change while
// it runs.
func TestTasksDirectory(t *testing.T) {
	c := &Config{Upstreams: []*Upstream{
		{Name: "a", URL: "http://127.0.0.1:1/mcp"},
		{Name: "raw", URL: "http://127.0.0.1:1/", Profile: "raw"},
	}}
	c.Tasks.Dir = filepath.Join(t.TempDir(), "tasks")
	g, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(c, nil); err == nil || !strings.Contains(err.Error(), "another process uses") {
		t.Errorf("a second gateway: %v", err)
	}
	more := *c
	more.Upstreams = append([]*Upstream{{Name: "b", URL: "http://127.0.0.1:1/mcp"}}, c.Upstreams...)
	if err := g.Reload(&more); err != nil {
		t.Error(err)
	}
	dirs, err := filepath.Glob(filepath.Join(c.Tasks.Dir, "*"))
	for i, d := range dirs {
		dirs[i] = filepath.Base(d)
	}
	if got := strings.Join(dirs, " "); err != nil || got != "ledger mcp mcp-a mcp-b" {
		t.Errorf("%s, %v", got, err)
	}
	other := more
	other.Tasks.Dir = ""
	if err := g.Reload(&other); !errors.Is(err, errTasksFixed) {
		t.Errorf("reloaded with other tasks: %v", err)
	}
	shutdownNow(g.Shutdown)
	if g, err = New(&more, nil); err != nil {
		t.Fatal(err)
	}
	shutdownNow(g.Shutdown)
}
