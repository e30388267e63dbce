package mcp_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/mcptest"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// traced is a writer of a trace.
type traced struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (w *traced) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}

var traceLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z #\d+ ([<>!]) (.*)$`)

// frames returns the frames, each behind its mark, sorted: exchanges of HTTP have
// no order among them.
func (w *traced) frames(t *testing.T, mirrored bool) []string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for line := range strings.Lines(w.out.String()) {
		m := traceLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			t.Fatalf("not a line of a trace: %q", line)
		}
		if m[1] == "!" {
			continue
		}
		if mirrored {
			m[1] = map[string]string{"<": ">", ">": "<"}[m[1]]
		}
		out = append(out, m[1]+" "+m[2])
	}
	slices.Sort(out)
	return out
}

// In each revision, in memory and over HTTP and its event streams: what one end
// has sent the other one has received, and no header is in it.
func TestTrace(t *testing.T) {
	for _, rev := range era.Revisions() {
		for _, overHTTP := range []bool{false, true} {
			t.Run(rev.Name+map[bool]string{true: "/http", false: "/memory"}[overHTTP], func(t *testing.T) {
				var near, far traced
				t.Run("talk", func(t *testing.T) { talkTraced(t, rev.Name, overHTTP, &near, &far) })
				sent, received := near.frames(t, false), far.frames(t, true)
				if !slices.Equal(sent, received) {
					t.Errorf("the client has\n\t%s\nand the server\n\t%s",
						strings.Join(sent, "\n\t"), strings.Join(received, "\n\t"))
				}
				all := strings.Join(sent, "\n")
				for _, want := range []string{
					`> {"jsonrpc"`, `< {"jsonrpc"`, `"tools/call"`,
					"notifications/progress",
				} {
					if !strings.Contains(all, want) {
						t.Errorf("no %s in\n%s", want, all)
					}
				}
				for _, w := range []*traced{&near, &far} {
					text := strings.ToLower(w.out.String())
					if strings.Contains(text, "bearer") || strings.Contains(text, "session-id") {
						t.Errorf("a header is in the trace:\n%s", text)
					}
				}
			})
		}
	}
}

// talkTraced makes a call with progress, and ends when both traces are written.
func talkTraced(t *testing.T, revision string, overHTTP bool, near, far *traced) {
	t.Helper()
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Trace: far})
	mcp.AddTool(s, mcp.Tool{Name: "work"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "done", mcp.Progress(ctx, 1, 2, "halfway")
	})
	o := &mcp.ClientOptions{
		Era: revision, Trace: near,
		HTTP: &mcphttp.DialOptions{Header: http.Header{"Authorization": {"Bearer secret"}}},
	}
	var c *mcp.Client
	if overHTTP {
		var err error
		if c, err = mcp.Dial(t.Context(), mcptest.Listen(t, s), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	} else {
		c = mcptest.Client(t, s, o)
	}
	ctx := mcp.OnProgress(t.Context(), func(spec.ProgressNotificationParams) {})
	if _, err := c.CallTool(ctx, "work", nil); err != nil {
		t.Error(err)
	}
}

// brokenWriter fails.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, net.ErrClosed }

// A writer that fails ends the trace and nothing else, and the client gets a warning.
func TestTraceFails(t *testing.T) {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Trace: brokenWriter{}})
	mcp.AddTool(s, mcp.Tool{Name: "work"}, func(context.Context, struct{}) (string, error) {
		return "done", nil
	})
	warned := make(chan error, 10)
	c := mcptest.Client(t, s, &mcp.ClientOptions{Trace: brokenWriter{}, OnWarning: func(err error) {
		warned <- err
	}})
	if got, err := mcp.CallTool[string](t.Context(), c, "work", nil); err != nil || got != "done" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := <-warned; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
