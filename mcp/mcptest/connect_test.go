package mcptest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
)

// newCalc returns a server with one tool.
func newCalc() *mcp.Server {
	s := mcp.NewServer("calc", "1.0.0", nil)
	tool := mcp.Tool{Name: "add", Description: "Add two numbers"}
	mcp.AddTool(s, tool, func(_ context.Context, in map[string]int) (int, error) {
		return in["a"] + in["b"], nil
	})
	return s
}

// add calls the tool of newCalc.
func add(t *testing.T, c *mcp.Client) {
	t.Helper()
	if sum, err := mcp.CallTool[int](t.Context(), c, "add",
		map[string]int{"a": 2, "b": 3}); err != nil || sum != 5 {
		t.Errorf("got %d, %v; want 5", sum, err)
	}
}

// Each revision, in memory and over HTTP, with several clients of one server.
func TestRevisions(t *testing.T) {
	s := newCalc()
	url := Listen(t, s)
	for _, rev := range era.Revisions() {
		t.Run(rev.Name, func(t *testing.T) {
			o := &mcp.ClientOptions{Era: rev.Name}
			near := Client(t, s, o)
			far, err := mcp.Dial(t.Context(), url, o)
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			for _, c := range []*mcp.Client{near, far} {
				if got := c.Server().Revision; got != rev.Name {
					t.Errorf("revision %s is spoken, want %s", got, rev.Name)
				}
				add(t, c)
			}
		})
	}
}

func TestClientWithoutOptions(t *testing.T) { add(t, Client(t, newCalc(), nil)) }

// fakeTB is a test that fails without failing this one.
type fakeTB struct {
	testing.TB

	cleanups []func()
	failures []string
}

func (f *fakeTB) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *fakeTB) Errorf(format string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

// end runs the cleanups, last first.
func (f *fakeTB) end() {
	for len(f.cleanups) > 0 {
		last := len(f.cleanups) - 1
		c := f.cleanups[last]
		f.cleanups = f.cleanups[:last]
		c()
	}
}

// A handler that ignores its context fails the test and is in the report.
func TestHandlerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := mcp.NewServer("stuck", "1", nil)
		mcp.AddTool(s, mcp.Tool{Name: "wait", Description: "Wait"},
			func(context.Context, struct{}) (string, error) {
				<-release
				return "", nil
			})
		f := &fakeTB{TB: t}
		c := Client(f, s, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.CallTool(ctx, "wait", nil); err == nil {
			t.Fatal("the tool has returned")
		}
		f.end()
		if len(f.failures) != 1 || !strings.Contains(f.failures[0], "TestHandlerLeft") {
			t.Errorf("failures: %q", f.failures)
		}
		close(release)
		synctest.Wait()
	})
}

// What fails while it serves fails the test.
func TestServeFails(t *testing.T) {
	f := &fakeTB{TB: t}
	serve(f, "stuck", func(context.Context) error { return net.ErrClosed })
	f.end()
	if len(f.failures) != 1 || !strings.Contains(f.failures[0], "mcptest: serve: ") {
		t.Errorf("failures: %q", f.failures)
	}
}
