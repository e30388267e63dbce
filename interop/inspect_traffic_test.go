package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp/mcptest"
)

// A browser looks at the traffic: questions and progress within their call, filters, bytes, replay
// of one and of many in another revision, breakpoints that delay, drop and change, a mock, a
// capture that is saved and opened, and both sides of a gateway.
func TestInspectTraffic(t *testing.T) {
	t.Parallel()
	browser := findBrowser(t)
	url := mcptest.Listen(t, everyKind(t))
	hop, err := os.ReadFile("testdata/hop.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := []string{
		"inspect-traffic.mjs", browser, inspectorOf(t, url), dir,
		filepath.Join(dir, "saved"),
	}
	var got struct {
		Marks                                                                     int
		Within, Cancelled, Filtered, Wrong, Bytes, Fits, Trace, Decided, Replayed bool
		Dropped, Delayed, Changed, Beside, Again, Named, Many                     bool
		Mock, Saved, Opened, Same, Hops, Queued, Conns, Barred, Stays             bool

		Wide       map[string]int
		Axe        map[string][]string
		Complaints []string
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // a loaded machine
	defer cancel()
	cmd := nodeCommand(t, ctx, script...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(hop), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.Marks < 2 { // reports in one place are one mark
		t.Errorf("a call with progress that was stopped has %d marks in its bar, want 2 or more",
			got.Marks)
	}
	for what, is := range map[string]bool{
		"a question is within its call":             got.Within,
		"a stopped call is marked as cancelled":     got.Cancelled,
		"a filter leaves the lines that it chooses": got.Filtered, "a wrong filter is named": got.Wrong,
		"bytes have offsets": got.Bytes, "a call fits the schema": got.Fits,
		"a call names its trace": got.Trace, "it has what a guard decided": got.Decided,
		"a call is replayed": got.Replayed,
		"a breakpoint drops": got.Dropped, "a breakpoint delays": got.Delayed,
		"a held frame is changed":                          got.Changed,
		"a server is connected beside in another revision": got.Beside,
		"a call is replayed in it":                         got.Again,
		"lines name their server":                          got.Named,
		"each connection has its bars":                     got.Conns,
		"a bar chooses its line":                           got.Barred,
		"a chosen line stays chosen when a filter ends":    got.Stays,
		"many calls are replayed":                          got.Many, "a mock answers": got.Mock,
		"a capture is saved": got.Saved, "and opened": got.Opened,
		"and nothing has changed since":                  got.Same,
		"both sides of a gateway are next to each other": got.Hops,
		"the time in its queue is hatched":               got.Queued,
	} {
		if !is {
			t.Errorf("not so: %s", what)
		}
	}
	for view, wide := range got.Wide {
		if wide > 0 {
			t.Errorf("%s is %d px too wide", view, wide)
		}
	}
	if len(got.Wide) == 0 || len(got.Axe)+len(got.Complaints) > 0 {
		t.Errorf("axe finds %q; the browser says %q", got.Axe, got.Complaints)
	}
	if t.Failed() {
		t.Log(strings.TrimSpace(string(out)))
	}
}
