package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// taskBackend is a server with the tool "work", which is a task until release is closed.
func taskBackend(t *testing.T, eras string, release chan struct{}) http.Handler {
	t.Helper()
	s := mcp.NewServer("behind", "1",
		&mcp.ServerOptions{Eras: eras, TaskAfter: -1, Owner: func(context.Context) string {
			return "the gateway"
		}})
	tool := mcp.Tool{
		Name: "work", InputSchema: jsonrpc.Raw(`{"type":"object"}`),
		Execution: &spec.ToolExecution{TaskSupport: spec.TaskRequired},
	}
	s.AddTool(tool, func(ctx context.Context, _ jsonrpc.Raw) (*mcp.ToolResult, error) {
		select {
		case <-release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return &mcp.ToolResult{Content: []mcp.Content{mcp.Text("worked")}}, nil
	})
	h := mcphttp.NewHandler(s, nil)
	t.Cleanup(func() { s.Close(); shutdownNow(h.Shutdown) })
	return h
}

// TestTaskWhoseUpstreamIsAway starts tasks by a gateway, and looks for them by the next one while
// the upstream cannot be reached, when it is back, and when it has forgotten them. The clients are
// of both generations of tasks, and can be asked or not.
func TestTaskWhoseUpstreamIsAway(t *testing.T) {
	t.Parallel()
	for _, behind := range []string{"legacy", "modern"} {
		for _, asked := range []bool{false, true} {
			t.Run(behind, func(t *testing.T) { testUpstreamAway(t, behind, asked) })
		}
	}
}

func testUpstreamAway(t *testing.T, behind string, asked bool) {
	release := make(chan struct{})
	var backend atomic.Pointer[http.Handler]
	set := func(h http.Handler) { backend.Store(&h) }
	there := taskBackend(t, behind, release)
	set(there)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*backend.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	other := mcp.NewServer("other", "1", nil) // clients begin while u is away
	t.Cleanup(other.Close)
	c := &Config{Upstreams: []*Upstream{
		{Name: "u", URL: web.URL + "/mcp", Breaker: Breaker{After: 1000}}, {Name: "other", Server: other},
	}}
	c.Tasks.Dir = filepath.Join(t.TempDir(), "tasks")
	open := func() (client *mcp.Client, end func()) {
		g, err := New(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		front := httptest.NewServer(g)
		o := &mcp.ClientOptions{Era: "modern", Tasks: true}
		if asked {
			o.Roots = func(context.Context) ([]mcp.Root, error) { return nil, nil }
		}
		client, err = mcp.Dial(t.Context(), front.URL+"/mcp", o)
		if err != nil {
			t.Fatal(err)
		}
		return client, func() {
			_ = client.Close()
			shutdownNow(g.Shutdown)
			front.CloseClientConnections()
			front.Close()
		}
	}
	client, end := open()
	var ids [2]string
	for i := range ids {
		made, err := client.StartTask(t.Context(), "work", nil, 0)
		if err != nil || made.TaskID == "" {
			t.Fatalf("%+v, %v", made, err)
		}
		ids[i] = made.TaskID
	}
	end()

	set(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	client, end = open()
	for range 3 {
		if got, err := client.Task(t.Context(), ids[0]); err != nil || got.Status != spec.TaskWorking {
			t.Errorf("while the upstream is away: %+v, %v", got, err)
		}
	}
	close(release)
	set(there)
	if r, err := client.WaitTask(t.Context(), ids[0]); err != nil || r.Content[0].Text != "worked" {
		t.Errorf("when the upstream is back: %+v, %v", r, err)
	}
	end()

	set(taskBackend(t, behind, release))
	client, end = open()
	defer end()
	if _, err := client.WaitTask(t.Context(), ids[1]); err == nil ||
		!strings.Contains(err.Error(), "does not know the task any more") {
		t.Errorf("when the upstream has forgotten it: %v", err)
	}
	if r, err := client.WaitTask(t.Context(), ids[0]); err != nil || r.Content[0].Text != "worked" {
		t.Errorf("what has ended: %+v, %v", r, err)
	}
}
