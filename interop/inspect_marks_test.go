package interop

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcptest"
)

// What the page of farcall inspect takes in a browser: a filter of 50,000 tools, 400 reports of
// progress in four seconds, and 40,000 frames in four. It is printed, and not judged: a machine under
// load is slow.
func TestInspectMarks(t *testing.T) {
	if os.Getenv("FARCALL_MARKS") == "" {
		t.Skip("skipped: FARCALL_MARKS is not set")
	}
	browser := findBrowser(t)
	s := mcp.NewServer("marks", "1.0.0", &mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	reports := func(name string, all, each int) {
		mcp.AddTool(s, mcp.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
			tick := time.NewTicker(4 * time.Second / time.Duration(all/each))
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
	reports("progress", 400, 1)
	reports("flood", 40_000, 100)
	for n := range 50_000 {
		mcp.AddTool(s, mcp.Tool{Name: fmt.Sprintf("t%05d", n), Description: "A tool with a number."}, func(context.Context, struct{}) (string, error) { return "", nil })
	}
	out := node(t, nil, "inspect-marks.mjs", browser, inspectorOf(t, mcptest.Listen(t, s)), t.TempDir())
	t.Logf("%s", strings.TrimSpace(string(out)))
}
