package mcp

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp/relay"
)

// A client that does not wait for the answer to initialize, which here takes as long as another
// server's, loses nothing: what it sent is served when the session is there. A ping is answered
// meanwhile. When initialize fails, they do.
func TestRequestsWaitForInitialize(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{
		"served":  hello("2025-06-18"),
		"refused": legacyFrame("0", "initialize", `{}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far := &fakeRelay{forward: always(`{"tools":[]}`, "2025-06-18")}
			far.describe = func(context.Context) *relay.Description {
				<-time.After(100 * time.Millisecond) // virtual
				far.describe = nil
				d, _ := far.Describe(t.Context())
				return d
			}
			got := strings.Join(exchange(t, relayServer(t, far, nil), first, initialized,
				legacyFrame("1", "ping", `{}`), legacyFrame("2", "tools/list", `{}`)), "\n")
			if name == "refused" {
				if !strings.Contains(got, "not initialized") {
					t.Error(got)
				}
				return
			}
			if strings.Contains(got, "error") || strings.Count(got, `"result"`) != 3 {
				t.Error(got)
			}
			if strings.Index(got, `"id":1`) > strings.Index(got, `"id":0`) {
				t.Error("the ping waited")
			}
		})
	}
}
