package interop

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store/valkeystore"
)

// Two servers share their tasks over a Valkey: each answers for those of the other, and ends them.
func TestValkeyTasks(t *testing.T) {
	url, _ := valkey(t)
	release, ended := make(chan struct{}), make(chan error, 2)
	var clients [2]*mcp.Client
	for i := range clients {
		s := mcp.NewServer("s", "1", &mcp.ServerOptions{
			Shared: shared(t, url, valkeystore.Options{Skew: time.Nanosecond}), TaskAfter: -1,
			TaskPoll: 10 * time.Millisecond,
		})
		t.Cleanup(s.Close)
		tool := mcp.Tool{Name: "work", Execution: &spec.ToolExecution{TaskSupport: spec.TaskRequired}}
		mcp.AddTool(s, tool, func(ctx context.Context, _ struct{}) (string, error) {
			select {
			case <-release:
				return "worked", nil
			case <-ctx.Done():
				ended <- context.Cause(ctx)
				return "", ctx.Err()
			}
		})
		web := httptest.NewServer(
			mcphttp.NewHandler(s, &mcphttp.Options{Owner: func(*http.Request) string {
				return "ann"
			}}))
		t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
		c, err := mcp.Dial(t.Context(), web.URL+"/mcp", &mcp.ClientOptions{Era: "modern", Tasks: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients[i] = c
	}
	var ids [2]string
	for i := range ids {
		made, err := clients[0].StartTask(t.Context(), "work", nil, 0)
		if err != nil || made.TaskID == "" {
			t.Fatalf("%+v, %v", made, err)
		}
		ids[i] = made.TaskID
		if got, err := clients[1].Task(t.Context(), ids[i]); err != nil ||
			got.Status != spec.TaskWorking {
			t.Errorf("at the other server: %+v, %v", got, err)
		}
	}
	if err := clients[1].CancelTask(t.Context(), ids[0]); err != nil {
		t.Error(err)
	}
	<-ended // the server that runs it has noticed
	close(release)
	for _, c := range clients {
		if got, err := c.Task(t.Context(), ids[0]); err != nil || got.Status != spec.TaskCancelled {
			t.Errorf("what was cancelled: %+v, %v", got, err)
		}
		if r, err := c.WaitTask(t.Context(), ids[1]); err != nil || r.Content[0].Text != "worked" {
			t.Errorf("the result: %+v, %v", r, err)
		}
	}
}
