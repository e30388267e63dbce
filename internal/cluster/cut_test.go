package cluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/mcp/spec"
)

// A call that was forwarded over a way that is cut since ends, also while the store hears the other
// node, and later calls go to a node that can be reached. Once the way is open again, calls take
// it.
func TestWayIsCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		_, h, _ := w.send(1, simRequest("/mcp", simHello))
		calls := 0
		call := func() (took time.Duration, body string) {
			calls++
			began := time.Now()
			text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call",`+
				`"params":{"name":"note","arguments":{"Text":"c%d.","Key":""}}}`, calls, calls)
			_, _, body = w.send(0, simRequest("/mcp", text,
				"Mcp-Session-Id", h.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", spec.Revision20251125))
			return time.Since(began), body
		}
		if _, body := call(); !strings.Contains(body, "c1.=1 1") {
			t.Fatalf("it is not forwarded: %s", body)
		}
		w.links[0][1].set(true)
		if took, body := call(); took > simLimit/2 || !strings.Contains(body, `"sent":"unknown"`) {
			t.Errorf("the way is cut: %v, %s", took, body)
		}
		elsewhere := func(body string) bool {
			return strings.Contains(body, "c3.=1 ") && !strings.Contains(body, "c3.=1 1")
		}
		if took, body := call(); took > 5*time.Second || !elsewhere(body) {
			t.Errorf("the next call: %v, %s", took, body)
		}
		if n := w.nodes[0].node.Present(); n != simNodes {
			t.Errorf("%d nodes are present", n)
		}
		w.links[0][1].set(false)
		<-time.After(2 * pulse)
		if _, body := call(); !strings.Contains(body, "c4.=1 1") {
			t.Errorf("the way is open again: %s", body)
		}
		for _, n := range w.all {
			n.close()
		}
		<-time.After(time.Minute)
		if err := w.shared.Close(); err != nil {
			t.Error(err)
		}
	})
}
