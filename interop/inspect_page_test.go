package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcptest"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A browser uses the page of farcall inspect: it calls tools without arguments, answers a form,
// is not hurt by what a server says, fits on a phone, and axe finds nothing in it.
func TestInspectPage(t *testing.T) {
	t.Parallel()
	browser := findBrowser(t)
	s := mcp.NewServer("looked-at", "1.0.0", &mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	mcp.AddTool(s, mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		a, err := mcp.Elicit[struct {
			Name string `json:"name"`
		}](ctx, "Who?")
		return "hello " + a.Name, err
	})
	mcp.AddTool(s, mcp.Tool{Name: "hostile"}, func(context.Context, struct{}) (string, error) {
		return "<img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script> " +
			"\u202egnp.exe \x1b[31m", nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "later", Execution: &spec.ToolExecution{TaskSupport: "optional"}},
		func(ctx context.Context, _ struct{}) (string, error) {
			a, err := mcp.Elicit[struct {
				Name string `json:"name"`
			}](ctx, "Who, later?")
			return "later, " + a.Name, err
		})
	var got struct {
		Ready, Token   bool
		Left           bool // scrolling up ends following the traffic
		Fits           bool // the verdict on the arguments of a call
		Held, Answered bool // a breakpoint holds a call, and the page answers it
		Paint          float64
		Answer, Checks string
		Conform, Diff  string
		Started, Task  string
		Cancelled      bool
		Hostile        struct {
			Pwned           bool
			Images, Spelled int
		}
		Wide       map[string]int
		Axe        map[string][]string
		Complaints []string
	}
	next := mcp.NewServer("looked-at", "2.0.0",
		&mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	mcp.AddTool(next, mcp.Tool{Name: "ask"}, func(context.Context, struct {
		Name string `json:"name"`
	},
	) (string, error) {
		return "", nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // a loaded machine
	defer cancel()
	cmd := nodeCommand(t, ctx, "inspect.mjs", browser, inspectorOf(t, mcptest.Listen(t, s)),
		t.TempDir(),
		mcptest.Listen(t, next))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("first paint %.0f ms", got.Paint)
	if !got.Ready || got.Token || !strings.Contains(got.Answer, "hello Ada") {
		t.Errorf("ready %v, the token is in the address bar %v, the answer is %q", got.Ready, got.Token,
			got.Answer)
	}
	if got.Hostile.Pwned || got.Hostile.Images > 0 || got.Hostile.Spelled < 2 {
		t.Errorf("a hostile text: %+v", got.Hostile)
	}
	if !got.Held || !got.Answered {
		t.Errorf("a breakpoint: held %v, answered %v", got.Held, got.Answered)
	}
	if !got.Fits {
		t.Error("the traffic does not say that the arguments of a call fit the schema")
	}
	if len(got.Wide) == 0 || got.Checks == "" {
		t.Errorf("views: %v, checks %q", got.Wide, got.Checks)
	}
	if !strings.Contains(got.Started, "The task ") || !strings.Contains(got.Task, "later, Ada") ||
		!got.Cancelled {
		t.Errorf("a task: started %q, come to %q, another was cancelled %v", got.Started, got.Task,
			got.Cancelled)
	}
	if !got.Left {
		t.Error("scrolling up does not stop following the traffic")
	}
	if !named(got.Conform, "It keeps to MCP.", "0 failed", "revision") {
		t.Errorf("the checks of the specification say %q", got.Conform)
	}
	if !named(got.Diff, "tool-removed", "tools.hostile", "input-required-added", "tools.later",
		"Breaking 3") {
		t.Errorf("what has changed: %q", got.Diff)
	}
	for view, wide := range got.Wide {
		if wide > 0 {
			t.Errorf("%s is %d px too wide for a phone", view, wide)
		}
	}
	for view, found := range got.Axe {
		t.Errorf("%s: axe finds %q", view, found)
	}
	if len(got.Complaints) > 0 {
		t.Errorf("the browser says %q", got.Complaints)
	}
}

// inspectorOf starts farcall inspect for a target, or -- and a command, and returns the URL of its
// page.
func inspectorOf(t *testing.T, target ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), farcallPath,
		append([]string{"inspect", "--no-browser", "--listen", "127.0.0.1:0"}, target...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(stderr).ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), "the page is at ")
	if err != nil || !ok {
		t.Fatalf("farcall inspect says %q, %v", line, err)
	}
	return url
}
