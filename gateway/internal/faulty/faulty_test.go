package faulty

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(leak.Main(m))
}

func connect(t *testing.T, o *mcp.ClientOptions, mode string, args ...string) (*mcp.Client, error) {
	t.Helper()
	path, args, env := Command(mode, args...)
	cmd := exec.Command(path, args...)
	cmd.Env = env
	tr, err := stream.Command(cmd, stream.NDJSON,
		&stream.Options{Grace: 100 * time.Millisecond, MaxMessage: 100 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if o == nil {
		o = &mcp.ClientOptions{Era: "legacy"}
	}
	c, err := mcp.Connect(t.Context(), tr, o)
	if err == nil {
		t.Cleanup(func() {
			c.Close()
			if left := NoneLeft(); left != nil {
				t.Errorf("left: %v", left)
			}
		})
	}
	return c, err
}

func call(ctx context.Context, c *mcp.Client, tool, said string) (string, error) {
	var r spec.CallToolResult
	err := c.Request(ctx, "tools/call",
		map[string]any{"name": tool, "arguments": map[string]any{"text": said}}, &r)
	if err != nil || len(r.Content) != 1 {
		return "", errors.Join(err, fmt.Errorf("%d blocks", len(r.Content)))
	}
	return r.Content[0].Text, nil
}

// TestModes: each mode does what the package says, as an MCP client sees it.
func TestModes(t *testing.T) {
	for _, mode := range []string{
		"ok", "twice", "wrong-id", "hang-close", "ignore-sigterm",
		"flood-stderr", "slow-start", "binary-stderr",
	} {
		t.Run(mode, func(t *testing.T) {
			c, err := connect(t, nil, mode)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got, err := call(t.Context(), c, "echo", "hel\"lo"); err != nil ||
					got != `hel"lo` && got != `hel\"lo` {
					t.Errorf("%q, %v", got, err)
				}
			}
			if got, err := call(t.Context(), c, "work", ""); err != nil || got != "work" {
				t.Errorf("%q, %v", got, err)
			}
			pid, err := call(t.Context(), c, "pid", "")
			if n, _ := strconv.Atoi(pid); err != nil ||
				!slices.ContainsFunc(Descendants(), func(p Process) bool {
					return p.PID == n
				}) {
				t.Errorf("%q, %v, %v", pid, err, Descendants())
			}
		})
	}
	for mode, want := range map[string]string{
		"crash-start": "cannot open the database",
		"crash-after": "out of luck after 1",
	} {
		t.Run(mode, func(t *testing.T) {
			c, err := connect(t, nil, mode)
			if err == nil {
				_, err = call(t.Context(), c, "work", "")
			}
			if !errors.Is(err, farcall.ErrClosed) || !strings.Contains(err.Error(), want) {
				t.Error(err)
			}
		})
	}
	t.Run("crash-call", func(t *testing.T) {
		c, err := connect(t, nil, "crash-call")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(t.Context(), c, "work", ""); !errors.Is(err, farcall.ErrClosed) ||
			!strings.Contains(err.Error(), "panic: in a call") {
			t.Error(err)
		}
	})
	t.Run("late", func(t *testing.T) {
		c, err := connect(t, nil, "late")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := call(ctx, c, "work", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := c.Request(t.Context(), "ping", nil, nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("silent", func(t *testing.T) {
		if _, err := connect(t, &mcp.ClientOptions{Era: "legacy", Timeout: 50 * time.Millisecond},
			"silent"); err == nil {
			t.Error("it has answered")
		}
	})
	t.Run("big", func(t *testing.T) {
		c, err := connect(t, nil, "big", "2")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := call(t.Context(), c, "work", ""); err != nil || len(got) != 2<<20 {
			t.Errorf("%d, %v", len(got), err)
		}
	})
	t.Run("ask", func(t *testing.T) {
		c, err := connect(t,
			&mcp.ClientOptions{
				Era: "legacy",
				Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
					return &spec.ElicitResult{Action: "accept", Content: jsonrpc.Raw(`{"name":"Eve"}`)}, nil
				},
			}, "ask")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := call(t.Context(), c, "work", ""); err != nil || got != "accept Eve" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestAlive(t *testing.T) {
	if !Alive(os.Getpid()) || Alive(1<<30) || Gone() != nil || Gone(1<<30) != nil {
		t.Error("who runs?")
	}
}
