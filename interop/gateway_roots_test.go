//go:build unix

package interop

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// The processes of a server that works where its client's roots are stand still for longer than any
// time that one could wait for them. No call of a client sees the directory of another one.
func TestGatewayRootsPaused(t *testing.T) {
	t.Parallel()
	keys := map[string]string{
		"ada": "ada-0123456789abcdef0123456789abcdef",
		"bob": "bob-0123456789abcdef0123456789abcdef",
	}
	var guard strings.Builder
	guard.WriteString("guard:\n  allow: [{calls: [\"*\"]}]\n  keys:\n")
	for id, key := range keys {
		fmt.Fprintf(&guard, "    - {id: %s, hash: \"sha256:%x\"}\n", id, sha256.Sum256([]byte(key)))
	}
	for name, settings := range map[string]string{"open": "", "guard": guard.String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := gatewayOf(t, settings, runs("files", npm(t, "server-filesystem")))
			var clients []*mcp.Client
			var dirs []string
			enter := func(era string) int {
				i := len(clients)
				dir := t.TempDir()
				o := ada(era)
				o.Roots = func(context.Context) ([]mcp.Root, error) {
					return []mcp.Root{{URI: "file://" + dir}}, nil
				}
				if settings != "" {
					o.HTTP = &mcphttp.DialOptions{
						Header: http.Header{"X-Api-Key": {keys[[]string{"ada", "bob"}[i%2]]}},
					}
				}
				dirs = append(dirs, dir) // before the client can ask anything
				clients = append(clients, dial(t, f.place("").http, o))
				return i
			}
			for _, era := range []string{"legacy", "legacy", "modern", "modern"} {
				seesOnly(t, clients[enter(era)], dirs, len(dirs)-1)
			}
			for _, again := range []int{0, 1, 2, 3, enter("legacy"), enter("modern")} {
				pause(t, f, 2500*time.Millisecond, func() { seesNoOther(t, clients[again], dirs, again) })
				seesOnly(t, clients[again], dirs, again)
			}
		})
	}
}

// pause does something while the servers behind a gateway stand still for a time.
func pause(t *testing.T, f *far, d time.Duration, do func()) {
	t.Helper()
	var stopped []int
	for _, line := range processes(f.dir) {
		number, command, _ := strings.Cut(line, " ")
		if pid, err := strconv.Atoi(number); err == nil &&
			strings.Contains(command, "server-filesystem") {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err == nil {
				stopped = append(stopped, pid)
			}
		}
	}
	if len(stopped) == 0 {
		t.Error("there is no server to be stopped")
	}
	done := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(done)
		for _, pid := range stopped {
			_ = syscall.Kill(pid, syscall.SIGCONT) // unless it has ended
		}
	})
	defer timer.Stop()
	do()
	<-done
}

// seesNoOther makes one call. The result has no directory but the client's own.
func seesNoOther(t *testing.T, c *mcp.Client, dirs []string, own int) {
	t.Helper()
	r, err := c.CallTool(within(t), "files__list_allowed_directories", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := string(r.AppendJSON(nil))
	for i, dir := range dirs {
		if i != own && strings.Contains(got, dir) {
			t.Errorf("the client with the root %q sees %s", dirs[own], got)
		}
	}
}
