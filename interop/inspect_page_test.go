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
		return "<img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script> \u202egnp.exe \x1b[31m", nil
	})
	var got struct {
		Ready, Token   bool
		Fits           bool // the verdict on the arguments of a call
		Held, Answered bool // a breakpoint holds a call, and the page answers it
		Paint          float64
		Answer, Checks string
		Hostile        struct {
			Pwned           bool
			Images, Spelled int
		}
		Wide       map[string]int
		Axe        map[string][]string
		Complaints []string
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // a loaded machine
	defer cancel()
	cmd := nodeCommand(t, ctx, "inspect.mjs", browser, inspectorOf(t, mcptest.Listen(t, s)), t.TempDir())
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
		t.Errorf("ready %v, the token is in the address bar %v, the answer is %q", got.Ready, got.Token, got.Answer)
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

// inspectorOf starts farcall inspect for a target and returns the URL of its page.
func inspectorOf(t *testing.T, target string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), farcallPath, "inspect", "--no-browser", "--listen", "127.0.0.1:0", target)
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
