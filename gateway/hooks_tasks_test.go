package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
)

// The result of a task is examined when the task ends, also by a gateway that has not started it.
func TestHooksOfTasks(t *testing.T) {
	t.Parallel()
	for _, behind := range []string{"legacy", "modern"} {
		for _, resumed := range []bool{false, true} {
			t.Run(behind, func(t *testing.T) { testHookedTask(t, behind, resumed) })
		}
	}
}

func testHookedTask(t *testing.T, behind string, resumed bool) {
	release := make(chan struct{})
	web := httptest.NewServer(taskBackend(t, behind, release))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	scanner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, result, _ := strings.Cut(strings.TrimSuffix(string(b), "}"), `"result":`)
		if !strings.Contains(string(b), `"tool":"work"`) || !strings.Contains(result, "worked") {
			t.Errorf("the hook gets %s", b)
		}
		_, _ = io.WriteString(w,
			`{"decision":"allow","result":`+strings.Replace(result, "worked", "***", 1)+`}`)
	}))
	t.Cleanup(func() { scanner.CloseClientConnections(); scanner.Close() })
	c := &Config{
		Upstreams: []*Upstream{{Name: "u", URL: web.URL + "/mcp", Breaker: Breaker{After: 1000}}},
		Hooks:     []Hook{{On: hookAfter, Tools: []string{"u/work"}, URL: scanner.URL}},
	}
	c.Tasks.Dir = filepath.Join(t.TempDir(), "tasks")
	open := func() (client *mcp.Client, end func()) {
		g, err := New(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		front := httptest.NewServer(g)
		if client, err = mcp.Dial(t.Context(), front.URL+"/mcp",
			&mcp.ClientOptions{Era: "modern", Tasks: true}); err != nil {
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
	made, err := client.StartTask(t.Context(), "u__work", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if resumed {
		end()
		client, end = open()
	}
	defer end()
	close(release)
	if r, err := client.WaitTask(t.Context(), made.TaskID); err != nil || r.Content[0].Text != "***" {
		t.Errorf("resumed %v: %+v, %v", resumed, r, err)
	}
}

// A task of a tool that call_tool calls is one of that tool: its hooks and its result are the same.
func TestSearchAndTasks(t *testing.T) {
	t.Parallel()
	for _, behind := range []string{"legacy", "modern"} {
		release := make(chan struct{})
		close(release)
		web := httptest.NewServer(taskBackend(t, behind, release))
		g, err := New(&Config{
			Upstreams: []*Upstream{{Name: "u", URL: web.URL + "/mcp"}}, Search: &Search{},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		front := httptest.NewServer(g)
		client, err := mcp.Dial(t.Context(), front.URL+"/mcp",
			&mcp.ClientOptions{Era: "modern", Tasks: true})
		if err != nil {
			t.Fatal(err)
		}
		made, err := client.StartTask(t.Context(), callTool, map[string]string{"name": "u__work"}, 0)
		if err != nil || made.TaskID == "" {
			t.Fatal(behind, made, err)
		}
		r, err := client.WaitTask(t.Context(), made.TaskID)
		if err != nil || r.Content[0].Text != "worked" {
			t.Errorf("%s: %+v, %v", behind, r, err)
		}
		_ = client.Close()
		shutdownNow(g.Shutdown)
		front.CloseClientConnections()
		front.Close()
		web.CloseClientConnections()
		web.Close()
	}
}
