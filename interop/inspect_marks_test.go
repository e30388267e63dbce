package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcptest"
)

// What the page of farcall inspect takes in a browser, which docs/inspect.md lists. Tasks are
// judged by how long they use the processor: the clock says more of a machine under load than of
// the page.
func TestInspectMarks(t *testing.T) {
	if os.Getenv("FARCALL_MARKS") == "" {
		t.Skip("skipped: FARCALL_MARKS is not set")
	}
	browser := findBrowser(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "million.jsonl")
	millionFrames(t, file)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a loaded machine
	defer cancel()
	cmd := nodeCommand(t, ctx, "inspect-marks.mjs", browser, inspectorOf(t, marksServer(t, 50_000)),
		dir, file)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", strings.TrimSpace(string(out)))
	type tasks struct {
		CPU struct{ Longest float64 }
	}
	var got struct {
		Open, Filter, Progress, Flood, Log, Million, Scroll, Chosen, All, Full tasks
		Memory                                                                 struct{ PssMB float64 }
		Frames                                                                 float64
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]tasks{
		"the page opens": got.Open, "50,000 tools are filtered": got.Filter,
		"400 reports of progress": got.Progress,
		"10,000 frames a second":  got.Flood, "20,000 lines of a log": got.Log,
		"a million frames":              got.Million,
		"a million frames are scrolled": got.Scroll, "a million frames are filtered": got.Chosen,
		"a filter is taken away": got.All, "the oldest frames leave": got.Full,
	} {
		if one.CPU.Longest > 50 {
			t.Errorf("%s: a task takes %.0f ms, 50 allowed", name, one.CPU.Longest)
		}
	}
	if got.Memory.PssMB > 300 || got.Frames < 990_000 {
		t.Errorf("the tab has %.0f MB with %.0f frames, 300 allowed with a million", got.Memory.PssMB,
			got.Frames)
	}
}

// The same load on the page of MCP Inspector. It is printed for the table of docs/inspect.md.
func TestInspectMarksControl(t *testing.T) {
	if os.Getenv("FARCALL_MARKS") == "" {
		t.Skip("skipped: FARCALL_MARKS is not set")
	}
	browser := findBrowser(t)
	for name, tools := range map[string]int{"many": 50_000, "few": 0} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute) // a loaded machine
			defer cancel()
			page := inspectorPage(t, ctx, marksServer(t, tools))
			cmd := nodeCommand(t, ctx, "inspector-marks.mjs", browser, page, t.TempDir(), name)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", strings.TrimSpace(string(out)))
		})
	}
}

// inspectorPage starts MCP Inspector for a server and returns the URL of its page.
func inspectorPage(t *testing.T, ctx context.Context, server string) string {
	t.Helper()
	cmd := nodeCommand(t, ctx, filepath.Join("node_modules", ".bin", "mcp-inspector"), "--web", server)
	cmd.Env = append(cmd.Env, "MCP_AUTO_OPEN_ENABLED=false")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if url := strings.TrimSpace(lines.Text()); strings.HasPrefix(url, "http://127.0.0.1:") &&
			strings.Contains(url, "TOKEN=") {
			go func() { _, _ = io.Copy(io.Discard, stdout) }() // until it ends
			return url
		}
	}
	t.Fatal("MCP Inspector prints no URL")
	return ""
}

// marksServer serves what the marks call, and some tools more.
func marksServer(t *testing.T, tools int) string {
	t.Helper()
	s := mcp.NewServer("marks", "1.0.0", &mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	reports := func(name string, all, each int, per time.Duration) {
		mcp.AddTool(s, mcp.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
			tick := time.NewTicker(time.Duration(each) * per)
			defer tick.Stop()
			for n := range all {
				if n%each == 0 {
					<-tick.C
				}
				if err := mcp.Progress(ctx, float64(n+1), float64(all), "step"); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
	}
	reports("progress", 400, 1, 10*time.Millisecond)
	reports("flood", 40_000, 100, 100*time.Microsecond)
	reports("long", 120_000, 100, 100*time.Microsecond)
	mcp.AddTool(s, mcp.Tool{Name: "chatter"}, func(ctx context.Context, _ struct{}) (string, error) {
		for n := range 20_000 {
			if err := mcp.Log(ctx, "info", "marks", fmt.Sprintf("line %d", n)); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	for n := range tools {
		mcp.AddTool(s, mcp.Tool{Name: fmt.Sprintf("t%05d", n), Description: "A tool with a number."},
			func(context.Context, struct{}) (string, error) { return "", nil })
	}
	return mcptest.Listen(t, s)
}

// millionFrames writes a capture of one million frames: calls of 1,000 tools, each with a report of
// progress every second time.
func millionFrames(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, `{"v":1,"type":"capture","seq":1,"t":1000000000,"program":"marks"}`)
	seq, at := 1, int64(1_700_000_000_000_000_000)
	frame := func(dir, rest, raw string) {
		seq++
		at += 100_000
		fmt.Fprintf(w, `{"type":"frame","seq":%d,"t":%d,"conn":1,"dir":%q,%s,"n":%d,"raw":%q}`+"\n",
			seq, at, dir, rest, len(raw), raw)
	}
	for n := 0; seq <= 1_000_000; n++ {
		tool := fmt.Sprintf("t%d", n%1000)
		request := seq + 1
		frame("up", fmt.Sprintf(`"kind":"request","id":"%d","method":"tools/call","name":%q`, n, tool),
			fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,`+
					`"_meta":{"progressToken":%d}}}`, n, tool, n))
		if n%2 == 0 {
			frame("down", `"kind":"notification","method":"notifications/progress"`,
				fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,`+
					`"progress":1}}`, n))
		}
		frame("down",
			fmt.Sprintf(`"kind":"response","id":"%d","method":"tools/call","name":%q,"ref":%d,"dur":100000`,
				n, tool, request),
			fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"done"}]}}`, n))
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
