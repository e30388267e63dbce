package interop

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A call from a farcall inspect that is not running yet costs 100 ms more than the same call of a
// server that is not running yet, at most. The shortest of several times counts.
func TestInspectMarksCold(t *testing.T) {
	if os.Getenv("FARCALL_MARKS") == "" {
		t.Skip("skipped: FARCALL_MARKS is not set")
	}
	const tool = "test_simple_text"
	direct, inspected := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for range 10 {
		began := time.Now()
		c := start(t, exec.Command(fixturePath, "--stdio"), nil)
		if _, err := c.CallTool(t.Context(), tool, nil); err != nil {
			t.Fatal(err)
		}
		direct = min(direct, time.Since(began))
		_ = c.Close() // it is only about time

		began = time.Now()
		callCold(t, tool)
		inspected = min(inspected, time.Since(began))
	}
	t.Logf("a call of a server that is not running yet takes %v, from farcall inspect %v", direct,
		inspected)
	if more := inspected - direct; more > 100*time.Millisecond {
		t.Errorf("a call from farcall inspect takes %v more", more)
	}
}

// callCold starts farcall inspect for a server, and calls a tool as its page does.
func callCold(t *testing.T, tool string) {
	t.Helper()
	url, token, _ := strings.Cut(inspectorOf(t, "--", fixturePath, "--stdio"), "#token=")
	tr, err := wsrpc.Dial(t.Context(), "ws"+strings.TrimPrefix(url, "http")+"api",
		&wsrpc.Options{Subprotocols: []string{"farcall.inspect.1", "token." + token}})
	if err != nil {
		t.Fatal(err)
	}
	page := farcall.NewPeer(tr, nil, nil)
	defer page.Close()
	for next, ready := uint64(1), false; !ready; {
		var r struct {
			After  uint64 `json:"after"`
			Events []struct {
				Type string          `json:"type"`
				Data json.RawMessage `json:"data"`
			} `json:"events"`
		}
		if err := page.Call(t.Context(), "poll", map[string]uint64{"frames": 1 << 40, "events": next},
			&r); err != nil {
			t.Fatal(err)
		}
		next = r.After
		for _, e := range r.Events {
			ready = ready || e.Type == "server" && strings.Contains(string(e.Data), `"state":"ready"`)
		}
	}
	var o struct {
		Result string `json:"result"`
	}
	params := map[string]any{
		"conn": 1, "call": "c", "kind": "tools", "name": tool,
		"params": struct{}{},
	}
	if err := page.Call(t.Context(), "call", params, &o); err != nil || o.Result == "" {
		t.Fatalf("%+v, %v", o, err)
	}
}
