package interop

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// npm returns the command of one of the MCP packages in node/.
func npm(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	script := filepath.Join("node_modules", "@modelcontextprotocol", name, "dist", "index.js")
	return nodeCommand(t, context.WithoutCancel(t.Context()), append([]string{script}, args...)...)
}

// everything starts the reference server for one of its transports.
func everything(t *testing.T, way string) *place {
	t.Helper()
	web := func(transport, path string) string {
		cmd := npm(t, "server-everything", transport)
		port := listening(t, cmd, func(port string) { cmd.Env = append(cmd.Env, "PORT="+port) })
		return "http://localhost:" + port + path
	}
	switch way {
	case "http":
		return &place{http: web("streamableHttp", "/mcp")}
	case "sse":
		return &place{sse: web("sse", "/sse")}
	default:
		return &place{stdio: func() *exec.Cmd { return npm(t, "server-everything", "stdio") }}
	}
}

func TestMCPServerEverything(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"stdio", "http", "sse"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			u := useAs(t, everything(t, way), way, "auto")
			if got := u.revision(); got != "2025-11-25" {
				t.Errorf("the revision is %s", got)
			}
			t.Run("tools", func(t *testing.T) { everythingTools(t, u) })
			t.Run("asks", func(t *testing.T) { everythingAsks(t, u) })
			t.Run("data", func(t *testing.T) { everythingData(t, u) })
			t.Run("prompts", func(t *testing.T) { everythingPrompts(t, u) })
			t.Run("progress", func(t *testing.T) { everythingProgress(t, u) })
			t.Run("events", func(t *testing.T) { everythingEvents(t, u) })
			t.Run("task", func(t *testing.T) { everythingTask(t, u) })
		})
	}
}

func everythingTools(t *testing.T, u *our) {
	names(t, u.client, "echo", "get-sum", "get-structured-content", "trigger-sampling-request",
		"get-roots-list", "trigger-url-elicitation")
	says(t, u.client, "Echo: hello", "echo", map[string]string{"message": "hello"})
	says(t, u.client, "5", "get-sum", map[string]int{"a": 2, "b": 3})
	type weather struct {
		Temperature float64 `json:"temperature"`
		Conditions  string  `json:"conditions"`
	}
	got, err := mcp.CallTool[weather](within(t), u.client, "get-structured-content",
		map[string]string{"location": "Chicago"})
	if err != nil || got != (weather{36, "Light rain / drizzle"}) {
		t.Errorf("get-structured-content: %+v, %v", got, err)
	}
	r, err := u.client.CallTool(within(t), "get-tiny-image", nil)
	if err != nil || !slices.ContainsFunc(r.Content, func(c mcp.Content) bool {
		return c.Type == "image" && len(c.Data) > 100
	}) {
		t.Errorf("get-tiny-image: %v", err)
	}
	r, err = u.client.CallTool(within(t), "get-resource-links", map[string]int{"count": 2})
	if err != nil || len(r.Content) != 3 || r.Content[2].URI == "" {
		t.Errorf("get-resource-links: %+v, %v", r, err)
	}
	var failure *mcp.ToolError
	if _, err := mcp.CallTool[string](within(t), u.client, "get-sum",
		map[string]string{"a": "two"}); !errors.As(err, &failure) {
		t.Errorf("get-sum with wrong arguments: %v", err)
	}
}

func everythingAsks(t *testing.T, u *our) {
	says(t, u.client, "Name: Ada", "trigger-elicitation-request", nil)
	says(t, u.client, "Paris", "trigger-sampling-request",
		map[string]string{"prompt": "The capital of France?"})
	says(t, u.client, root, "get-roots-list", nil)
	page := map[string]any{"url": "https://example.com/"}
	says(t, u.client, "User completed", "trigger-url-elicitation", page)
	page["errorPath"] = true
	var wire *jsonrpc.Error
	switch r, err := u.client.CallTool(within(t), "trigger-url-elicitation", page); {
	case err == nil && strings.Contains(string(r.AppendJSON(nil)), "User completed"):
	// asked, and called again
	case errors.As(err, &wire) && strings.Contains(string(wire.Data), "elicitationId"):
	// left to the caller
	default:
		t.Errorf("trigger-url-elicitation by an error: %+v, %v", r, err)
	}
}

func everythingData(t *testing.T, u *our) {
	resources, err := u.client.Resources(within(t))
	if err != nil || len(resources) == 0 {
		t.Fatalf("Resources: %v, %v", resources, err)
	}
	for uri, want := range map[string]string{
		resources[0].URI:                 "",
		"demo://resource/dynamic/text/3": "Resource 3: This is a plaintext",
		"demo://resource/dynamic/blob/4": "Resource 4: This is a base64 blob",
	} {
		if got, err := u.read(within(t), uri); err != nil || got == "" || !strings.Contains(got, want) {
			t.Errorf("read %s = %q, %v; want %q", uri, got, err, want)
		}
	}
	if got, err := u.read(within(t), "demo://no-such-resource"); err == nil {
		t.Errorf("read of what does not exist = %q", got)
	}
	if templates, err := u.client.Templates(within(t)); err != nil || len(templates) != 2 {
		t.Errorf("Templates: %+v, %v", templates, err)
	}
}

func everythingPrompts(t *testing.T, u *our) {
	if prompts, err := u.client.Prompts(within(t)); err != nil || len(prompts) < 4 {
		t.Errorf("Prompts: %+v, %v", prompts, err)
	}
	if got, err := u.prompt(within(t), "args-prompt",
		map[string]string{"city": "Paris"}); err != nil || got != "What's weather in Paris?" {
		t.Errorf("args-prompt = %q, %v", got, err)
	}
	if got, err := u.complete(within(t), "completable-prompt", "department", "S"); err != nil ||
		!slices.Equal(got, []string{"Sales", "Support"}) {
		t.Errorf("department = %q, %v", got, err)
	}
	r, err := u.client.Complete(within(t), &spec.CompleteRequestParams{
		Ref:      spec.CompleteReference{Type: "ref/prompt", Name: "completable-prompt"},
		Argument: spec.CompleteArgument{Name: "name"},
		Context:  &spec.CompleteContext{Arguments: map[string]string{"department": "Sales"}},
	})
	if err != nil || !slices.Equal(r.Completion.Values, []string{"David", "Eve", "Frank"}) {
		t.Errorf("name = %+v, %v", r, err)
	}
}

func everythingProgress(t *testing.T, u *our) {
	var got []float64
	ctx := mcp.OnProgress(within(t), func(p spec.ProgressNotificationParams) {
		got = append(got, p.Progress)
	})
	r, err := u.client.CallTool(ctx, "trigger-long-running-operation",
		map[string]float64{"duration": 0.2, "steps": 5})
	if err != nil || r.IsError || !slices.Equal(got, []float64{1, 2, 3, 4, 5}) {
		t.Errorf("the operation: progress %v, %v", got, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := u.client.CallTool(short, "trigger-long-running-operation",
		map[string]float64{"duration": 60}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled operation: %v", err)
	}
	says(t, u.client, "Echo: still there", "echo", map[string]string{"message": "still there"})
}

func everythingEvents(t *testing.T, u *our) {
	const uri = "demo://resource/dynamic/text/1"
	if err := u.logFrom(within(t), "debug"); err != nil {
		t.Fatal(err)
	}
	says(t, u.client, "Started", "toggle-simulated-logging", nil)
	awaitLog(t, u)
	says(t, u.client, "Stopped", "toggle-simulated-logging", nil)
	if err := u.watch(t.Context(), uri); err != nil {
		t.Fatal(err)
	}
	says(t, u.client, "Started", "toggle-subscriber-updates", nil)
	await(t, u, "updated "+uri)
	says(t, u.client, "Stopped", "toggle-subscriber-updates", nil)
}

// awaitLog waits for what the server logs at once, and then each 5 s. Over HTTP that takes another
// way than the answer: it may come after that, when a client without a session has no request to
// get it with.
func awaitLog(t *testing.T, u *our) {
	t.Helper()
	came, ctx := make(chan struct{}), within(t)
	var call sync.WaitGroup
	call.Go(func() {
		select {
		case <-came:
		case <-time.After(500 * time.Millisecond):
			_, _ = u.client.CallTool(ctx, "trigger-long-running-operation",
				map[string]float64{"duration": 6, "steps": 1})
		}
	})
	defer call.Wait()
	defer close(came)
	await(t, u, "log ")
}

// everythingTask runs a tool that always is a task, which asks before it ends.
func everythingTask(t *testing.T, u *our) {
	says(t, u.client, "python (programming)", "simulate-research-query",
		map[string]any{"topic": "python", "ambiguous": true})
	task, err := u.client.StartTask(within(t), "simulate-research-query",
		map[string]any{"topic": "snakes"}, time.Minute)
	if err != nil {
		t.Fatalf("StartTask: %v", err)
	}
	if err := u.client.CancelTask(within(t), task.TaskID); err != nil {
		t.Errorf("CancelTask: %v", err)
	}
	if state, err := u.client.Task(within(t), task.TaskID); err != nil ||
		state.Status != spec.TaskCancelled {
		t.Errorf("Task: %+v, %v", state, err)
	}
}

func TestMCPServerFilesystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hello.txt"), []byte("Hello from a file"),
		0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, npm(t, "server-filesystem", dir), nil)
	names(t, c, "read_text_file", "list_directory")
	says(t, c, "hello.txt", "list_directory", map[string]string{"path": dir})
	says(t, c, "Hello from a file", "read_text_file",
		map[string]string{"path": filepath.Join(dir, "hello.txt")})
	if r, err := c.CallTool(within(t), "read_text_file",
		map[string]string{"path": "/etc/passwd"}); err != nil || !r.IsError {
		t.Errorf("a file elsewhere: %+v, %v", r, err)
	}
}

// Roots say where the server may work.
func TestMCPServerFilesystemRoots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := start(t, npm(t, "server-filesystem"), &mcp.ClientOptions{
		Roots: func(context.Context) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file://" + dir, Name: "work"}}, nil
		},
	})
	for late := time.After(waitLimit / 3); ; {
		r, err := c.CallTool(within(t), "list_allowed_directories", nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(r.AppendJSON(nil)), filepath.Base(dir)) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond): // it asks for the roots after it was initialized
		case <-late:
			t.Fatalf("the server does not know the root: %s", r.AppendJSON(nil))
		}
	}
}

func TestMCPServerMemory(t *testing.T) {
	t.Parallel()
	cmd := npm(t, "server-memory")
	cmd.Env = append(cmd.Env, "MEMORY_FILE_PATH="+filepath.Join(t.TempDir(), "memory.jsonl"))
	c := start(t, cmd, nil)
	names(t, c, "create_entities", "read_graph")
	type entity struct {
		Name         string   `json:"name"`
		EntityType   string   `json:"entityType"`
		Observations []string `json:"observations"`
	}
	says(t, c, "Ada", "create_entities",
		map[string]any{"entities": []entity{{"Ada", "person", []string{"asks"}}}})
	says(t, c, "Ada", "read_graph", nil)
	type graph struct {
		Entities []entity `json:"entities"`
	}
	if got, err := mcp.CallTool[graph](within(t), c, "search_nodes",
		map[string]string{"query": "person"}); err != nil || len(got.Entities) != 1 {
		t.Errorf("search_nodes: %+v, %v", got, err)
	}
}
