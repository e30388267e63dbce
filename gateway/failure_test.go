package gateway_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
)

// One backend that was down killed all tools. Here a server that is down, slow,
// hanging or wrong takes nothing else with it: lists are served without it and say
// so, and calls of the others are as quick as ever.
func TestOneFails(t *testing.T) {
	t.Parallel()
	bad := map[string]func(*testing.T) *gateway.Upstream{
		"down": func(t *testing.T) *gateway.Upstream {
			return &gateway.Upstream{URL: "tcp://" + newClosedPort(t).addr}
		},
		"crashing": func(*testing.T) *gateway.Upstream { return child("", "crash-start") },
		"missing": func(*testing.T) *gateway.Upstream {
			return &gateway.Upstream{Command: []string{"/does/not/exist"}}
		},
		"wrong": func(t *testing.T) *gateway.Upstream {
			return &gateway.Upstream{URL: listen(t, func(conn net.Conn) {
				_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				hold(conn)
			})}
		},
		"http-down": func(t *testing.T) *gateway.Upstream {
			return &gateway.Upstream{URL: "http://" + newClosedPort(t).addr + "/mcp"}
		},
		"silent": func(*testing.T) *gateway.Upstream { return child("", "silent") },
		"slow":   func(*testing.T) *gateway.Upstream { return child("", "slow-start", "30s") },
		"hanging": func(t *testing.T) *gateway.Upstream {
			return &gateway.Upstream{URL: listen(t, hold)}
		},
	}
	for name, broken := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := broken(t)
			u.Name = "bad"
			if name != "silent" && name != "slow" { // who are waited for as long as it is by default
				u.Timeout = 500 * time.Millisecond
			}
			l := newLab(t, nil, u, child("good", "ok"))
			began := time.Now()
			c := l.client(t, mcp.ClientOptions{Era: "legacy"})
			wants(t, c, "echo", "hello", "hello")
			first := time.Since(began)
			began = time.Now()
			var names, missing []string
			if name != "silent" && name != "slow" {
				names, missing = toolsOf(t, c)
			}
			listed := time.Since(began)
			if name != "silent" && name != "slow" && !slices.Contains(names, "echo") ||
				!slices.Equal(missing, []string{"bad absent"}) && name != "silent" && name != "slow" {
				t.Errorf("%v, missing %v", names, missing)
			}
			began = time.Now()
			for range 50 {
				wants(t, c, "echo", "hello", "hello")
			}
			t.Logf("connect and first call %v, list %v, 50 calls %v", first.Round(time.Millisecond),
				listed.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			if took := time.Since(began); took > 6*time.Second {
				// one that waited for the broken server took 12 s
				t.Errorf("50 calls of the other server took %v", took)
			}
			// Only the first client waits to hear what the server offers.
			began = time.Now()
			c = l.client(t, mcp.ClientOptions{Era: "legacy"})
			wants(t, c, "echo", "hello", "hello")
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("the next client waited for %v", took)
			}
		})
	}
}

// hold reads and never answers.
func hold(conn net.Conn) { lines(func(string) string { return "" })(conn) }

// Servers were marked as failed and never tried again: here lists heal when the
// server returns, and clients are notified.
func TestHeals(t *testing.T) {
	port := newClosedPort(t)
	l := newLab(t, nil,
		&gateway.Upstream{Name: "later", URL: "tcp://" + port.addr, Namespace: "always"},
		child("good", "ok"))
	changed := make(chan string, 10)
	c := l.client(t, mcp.ClientOptions{Era: "legacy", OnListChanged: func(kind string) {
		changed <- kind
	}})
	if names, missing := toolsOf(t, c); !slices.Equal(missing, []string{"later absent"}) ||
		slices.Contains(names, "later__wait") {
		t.Errorf("%v, missing %v", names, missing)
	}
	m := newMock("legacy")
	t.Cleanup(m.Close)
	port.serve(func(conn net.Conn) { serveConn(m, conn) })
	until(t, "the list has healed", func() bool {
		names, missing := toolsOf(t, c)
		return slices.Contains(names, "later__wait") && len(missing) == 0
	})
	wants(t, c, "later__echo", "hello", "hello")
}

// After some failures in a row nothing is tried for a while, and callers get
// told when to come back.
func TestBreaker(t *testing.T) {
	t.Parallel()
	dials := make(chan struct{}, 1000)
	port := listen(t, func(net.Conn) { dials <- struct{}{} }) // and closes
	u := &gateway.Upstream{
		Name: "b", URL: port, Era: "legacy",
		Breaker: gateway.Breaker{After: 3, For: 300 * time.Millisecond},
	}
	l := newLab(t, nil, u)
	open := false
	for range 20 {
		_, err := l.pipe(t, mcp.ClientOptions{Era: "legacy"})
		a := aboutOf(t, err)
		if a.Sent != "no" || !a.Retryable {
			t.Errorf("%v %+v", err, a)
		}
		if a.RetryAfterMs > 0 {
			open = true
			if a.RetryAfterMs > 300 || !strings.Contains(err.Error(), "not tried again for now") {
				t.Errorf("%v %+v", err, a)
			}
		}
	}
	if s := l.status(t).Upstreams[0]; !open || s.State != "open" || len(dials) > 10 {
		t.Errorf("open: %v, %d connections, %+v", open, len(dials), s)
	}
	tried := len(dials)
	until(t, "it is tried again", func() bool {
		_, err := l.pipe(t, mcp.ClientOptions{Era: "legacy"})
		return err != nil && len(dials) > tried
	})
}

// Limits: so many calls are in flight, so many wait, and the next is refused with
// an error that says so.
func TestLimits(t *testing.T) {
	m := newMock("legacy")
	u := m.tcp(t, "m")
	u.MaxInFlight, u.MaxQueue = 2, 3
	l := newLab(t, nil, u)
	c := l.client(t, mcp.ClientOptions{Era: "legacy"})
	toolsOf(t, c)
	results := make(chan error, 10)
	for n := range 5 {
		go func() {
			_, err := say(t.Context(), c, "wait", fmt.Sprint(n))
			results <- err
		}()
		until(t, "the call is in flight or waits", func() bool {
			s := l.status(t).Upstreams[0]
			return s.InFlight+s.Queued == n+1
		})
	}
	if s := l.status(t).Upstreams[0]; s.InFlight != 2 || s.Queued != 3 {
		t.Errorf("%+v", s)
	}
	_, err := say(t.Context(), c, "wait", "6")
	if a := aboutOf(t, err); a.Sent != "no" || !a.Retryable ||
		!strings.Contains(err.Error(), "3 calls wait for m already") {
		t.Errorf("%v %+v", err, a)
	}
	for range 5 {
		m.release <- struct{}{}
	}
	for range 5 {
		if err := received(t, "an answer", results); err != nil {
			t.Error(err)
		}
	}
}

// A call may be made again only where that is safe: one that may have had its
// effect is not, unless its tool says that it is idempotent.
func TestRetries(t *testing.T) {
	t.Parallel()
	for tool, times := range map[string]int{"work": 1, "safe": 2} {
		t.Run(tool, func(t *testing.T) {
			for _, era := range []string{"legacy", "modern"} {
				file := filepath.Join(t.TempDir(), "calls")
				l := newLab(t, nil, child("c", "crash-tool", "work,safe", file))
				c := l.client(t, mcp.ClientOptions{Era: era})
				_, err := say(t.Context(), c, tool, "")
				a := aboutOf(t, err)
				if a.Sent != "unknown" || a.Retryable != (tool == "safe") {
					t.Errorf("%v %+v", err, a)
				}
				text, _ := os.ReadFile(file)
				if got := strings.Count(string(text), tool+"\n"); got != times {
					t.Errorf("%s: it was executed %d times, not %d", era, got, times)
				}
			}
		})
	}
	t.Run("never sent", func(t *testing.T) {
		// The child is known to be gone before the call: nothing is lost.
		l := newLab(t, nil, child("c", "ok"))
		c := l.client(t, mcp.ClientOptions{Era: "legacy"})
		for range 5 {
			pid, err := say(t.Context(), c, "pid", "")
			if err != nil {
				t.Fatal(err)
			}
			kill(t, pid)
			until(t, "its end is known", func() bool { return l.status(t).Upstreams[0].Connections == 0 })
		}
	})
}

// A long call with progress outlives the timeout; one without does not, and the
// server is notified.
func TestTimeout(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			m := newMock("legacy")
			long := func(ctx context.Context, _ textIn) (string, error) {
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				for n := range 45 {
					<-tick.C
					if err := mcp.Progress(ctx, float64(n+1), 45, ""); err != nil {
						return "", err
					}
				}
				return "done", nil
			}
			mcp.AddTool(m.Server, mcp.Tool{Name: "long"}, long)
			u := m.tcp(t, "m")
			u.Timeout = 4 * time.Second
			c := newLab(t, nil, u).client(t, mcp.ClientOptions{Era: era})
			wants(t, c, "long", "", "done")
			_, err := say(t.Context(), c, "wait", "")
			if a := aboutOf(t, err); a.Sent != "unknown" ||
				!strings.Contains(err.Error(), "did not answer tools/call in time") {
				t.Errorf("%v %+v", err, a)
			}
			if err := received(t, "the end at the server", m.ended); err == nil {
				t.Error("the server was not told")
			}
		})
	}
}
