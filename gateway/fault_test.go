package gateway_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/gateway/internal/faulty"
	"github.com/farcall-dev/farcall/mcp"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` +
	legacy + `","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// A crash during initialize hung the HTTP client to its own timeout: here it is
// an error within a second of the child's end, with what it said last.
func TestCrashInStart(t *testing.T) {
	for name, ask := range map[string]func(*lab) error{
		"http initialize": func(l *lab) error {
			r, err := l.post(l.t.Context(), "/mcp", initialize)
			if err != nil {
				l.t.Fatal(err)
			}
			return r.err
		},
		"http modern": func(l *lab) error {
			r, err := l.modern(l.t.Context(), "server/discover", "", "")
			if err != nil {
				l.t.Fatal(err)
			}
			return r.err
		},
		"stream": func(l *lab) error {
			_, err := l.pipe(l.t, mcp.ClientOptions{Era: "legacy"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			end := filepath.Join(t.TempDir(), "end")
			c := child("db", "crash-start")
			c.Env[faulty.EndEnv] = end
			l := newLab(t, nil, c)
			began := time.Now()
			err := ask(l)
			now := time.Now()
			ended, unknown := faulty.Ended(end)
			if err == nil || unknown != nil {
				t.Fatal(err, unknown)
			}
			if began.After(ended) {
				ended = began
			}
			a := aboutOf(t, err)
			if took := now.Sub(ended); took > time.Second || a.Sent != "no" || a.Upstream != "db" ||
				!slices.Contains(a.Stderr, "cannot open the database") ||
				!strings.Contains(err.Error(), "db cannot be reached") {
				t.Errorf("%v after the child's end: %v, %+v", took, err, a)
			}
		})
	}
}

// A child that crashes in a call: the call says within a second that it may have had its effect,
// the next one is served by a new child, and the session goes on.
func TestCrashInCall(t *testing.T) {
	t.Parallel()
	// Two messages are answered: those of the handshake.
	end := filepath.Join(t.TempDir(), "end")
	crashing := child("c", "crash-tool", "work")
	crashing.Env[faulty.EndEnv] = end
	l := newLab(t, nil, crashing)
	for _, era := range []string{"legacy", "modern"} {
		c := l.client(t, mcp.ClientOptions{Era: era})
		for range 3 {
			wants(t, c, "echo", "hello", "hello")
			_ = os.Remove(end) // of the child before
			_, err := say(t.Context(), c, "work", "")
			now := time.Now()
			ended, unknown := faulty.Ended(end)
			if unknown != nil {
				t.Fatal(unknown)
			}
			a := aboutOf(t, err)
			if a.Sent != "unknown" || a.Retryable || now.Sub(ended) > time.Second ||
				!slices.Contains(a.Stderr, "panic: in a call") {
				t.Errorf("%v after the child's end: %v %+v", now.Sub(ended), err, a)
			}
		}
		wants(t, c, "echo", "again", "again")
	}
	s := l.status(t).Upstreams[0]
	if s.Restarts < 6 || s.Errors != 6 || s.State != "up" ||
		!strings.Contains(strings.Join(s.Stderr, "\n"), "panic: in a call") {
		t.Errorf("%+v", s)
	}
}

// What a child does wrong, and the call is answered rightly all the same: banners
// on standard output, a flood of standard error, answers twice and without a call.
func TestFaultyAnswers(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{
		"garbage", "flood-stderr", "twice", "wrong-id", "binary-stderr",
		"fork",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil, child("c", mode))
			for _, era := range []string{"legacy", "modern"} {
				c := l.client(t, mcp.ClientOptions{Era: era})
				for n := range 3 {
					wants(t, c, "echo", strconv.Itoa(n), strconv.Itoa(n))
				}
			}
			s := l.status(t).Upstreams[0]
			switch mode {
			case "garbage":
				if s.Garbage < 6 {
					t.Errorf("%d lines of garbage are counted", s.Garbage)
				}
			case "twice", "wrong-id":
				if s.Dropped < 6 {
					t.Errorf("%d answers are counted that were not asked for", s.Dropped)
				}
			case "flood-stderr":
				// The calls did not wait for it; so it may still be on its way.
				until(t, "the end of the flood is shown", func() bool {
					s := l.status(t).Upstreams[0]
					return len(s.Stderr) > 0 && len(s.Stderr) <= 1000 &&
						strings.HasPrefix(s.Stderr[len(s.Stderr)-1], "line 10000 of the flood")
				})
			}
			if s.Restarts > 0 || s.Errors > 0 || s.Calls < 6 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A late answer belongs to no call any more: it is dropped and counted, and the
// next call gets its own.
func TestLateAnswer(t *testing.T) {
	l := newLab(t, nil, child("c", "late"))
	c := l.client(t, mcp.ClientOptions{Era: "legacy"})
	toolsOf(t, c)
	until(t, "late answers are counted", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		called := make(chan error, 1)
		go func() {
			_, err := say(ctx, c, "work", "")
			called <- err
		}()
		// It may be cancelled before it is sent. Then there is no answer.
		until(t, "the call is under way", func() bool { return l.status(t).Upstreams[0].InFlight == 1 })
		cancel()
		if err := received(t, "the end of the call", called); err == nil {
			t.Error("it was answered")
		}
		// Else the server takes the cancellation for one of the next call.
		until(t, "the gateway has given it up", func() bool {
			return l.status(t).Upstreams[0].InFlight == 0
		})
		return l.status(t).Upstreams[0].Dropped >= 3
	})
	until(t, "nothing is in flight", func() bool { return l.status(t).InFlight == 0 })
}

// A child that hangs when it is closed, or ignores signals, is not left behind.
func TestHangOnClose(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"hang-close", "ignore-sigterm", "fork-away"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil, child("c", mode))
			c := l.client(t, mcp.ClientOptions{Era: "legacy"})
			text, err := say(t.Context(), c, "pid", "")
			pid, _ := strconv.Atoi(text)
			if err != nil || !faulty.Alive(pid) {
				t.Fatal(text, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			if err := l.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			t.Logf("Shutdown took %v", time.Since(began).Round(time.Millisecond))
			if faulty.Alive(pid) {
				t.Error("it still runs")
			}
		})
	}
}

// Stateless HTTP never reaped a child, sessions kept theirs until a timeout: here
// an unused child ends, and that of a session ends with it.
func TestChildrenAreReaped(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		u := child("c", "ok")
		u.IdleStop = 50 * time.Millisecond
		l := newLab(t, nil, u)
		for range 3 {
			if r, err := l.modern(t.Context(), "tools/call", "echo",
				`"name":"echo","arguments":{"text":"a"}`); err != nil || r.err != nil {
				t.Fatal(r, err)
			}
			until(t, "no child runs", func() bool { return l.status(t).Upstreams[0].Children == 0 })
		}
		if s := l.status(t).Upstreams[0]; s.Restarts != 0 || s.State != "idle" {
			t.Errorf("%+v", s)
		}
	})
	t.Run("session", func(t *testing.T) {
		u := child("c", "ok")
		u.Lifetime = "session"
		l := newLab(t, nil, u)
		pids := map[string]bool{}
		var clients []*mcp.Client
		for range 3 {
			c := l.client(t, mcp.ClientOptions{Era: "legacy"})
			clients = append(clients, c)
			for range 2 { // login state stays between calls
				pid, err := say(t.Context(), c, "pid", "")
				if err != nil {
					t.Fatal(err)
				}
				pids[pid] = true
			}
		}
		if len(pids) != 3 {
			t.Errorf("three sessions have the children %v", pids)
		}
		for _, c := range clients {
			c.Close()
		}
		until(t, "no child runs", func() bool { return l.status(t).Upstreams[0].Children == 0 })
	})
	t.Run("shared", func(t *testing.T) {
		// Ten agents, a hundred calls, a reconnect: one child, not 180.
		l := newLab(t, nil, child("c", "ok"))
		pids := map[string]bool{}
		for range 10 {
			c := l.client(t, mcp.ClientOptions{Era: "legacy"})
			for range 10 {
				pid, err := say(t.Context(), c, "pid", "")
				if err != nil {
					t.Fatal(err)
				}
				pids[pid] = true
			}
			c.Close()
		}
		if s := l.status(t).Upstreams[0]; len(pids) != 1 || s.Children != 1 || s.Restarts != 0 {
			t.Errorf("%v %+v", pids, s)
		}
	})
}

// Anyone who makes calls that fail must be able to tell them from errors of tools:
// the answer is an error of JSON-RPC, and HTTP says it, too.
func TestStatusOfFailure(t *testing.T) {
	l := newLab(t, nil, child("c", "ok"))
	r, err := l.modern(t.Context(), "no/such", "", "")
	if err != nil || r.status != http.StatusNotFound || r.err == nil || r.err.Code != -32601 {
		t.Error(r, err)
	}
	r, err = l.modern(t.Context(), "tools/call", "nothing", `"name":"nothing"`)
	if err != nil || r.err == nil || r.err.Code != -32602 {
		t.Error(r, err)
	}
}

// A call that waits for a server which starts goes on, however often the configuration changes
// meanwhile.
func TestReloadsWhileStarting(t *testing.T) {
	t.Parallel()
	const changes = 10
	var l *lab
	var url string
	var accepted atomic.Int64
	begun := make(chan struct{})
	conf := func(n int64) *gateway.Config {
		return &gateway.Config{
			Namespace: "auto",
			Upstreams: []*gateway.Upstream{{Name: "s", URL: url, Timeout: time.Minute + time.Duration(n)}},
		}
	}
	m := newMock("legacy")
	url = listen(t, func(conn net.Conn) {
		<-begun
		n := accepted.Add(1)
		if n > changes {
			serveConn(m, conn)
			return
		}
		if err := l.Reload(conf(n)); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, conn) // the gateway closes it
	})
	t.Cleanup(m.Close)
	l = newLabOf(t, nil, conf(0))
	close(begun)
	got, err := l.modern(t.Context(), "tools/call", "echo",
		`"name":"echo","arguments":{"text":"hello"}`)
	if err != nil || !strings.Contains(got.body, "hello") || accepted.Load() <= changes {
		t.Errorf("after %d connections: %v, %v", accepted.Load(), got, err)
	}
}

// A call with an answer that is larger than the gateway takes learns so at once, and the child goes
// on.
func TestAnswerTooLarge(t *testing.T) {
	t.Parallel()
	up := child("c", "big", "1")
	up.MaxMessage = 1 << 20
	l := newLab(t, nil, up)
	c := l.client(t, mcp.ClientOptions{})
	for range 2 {
		if _, err := say(t.Context(), c, "echo", "x"); err == nil ||
			!strings.Contains(err.Error(), "max_message") {
			t.Errorf("the error is %v", err)
		}
	}
	if s := l.status(t).Upstreams[0]; s.Restarts > 0 || s.Garbage > 0 {
		t.Errorf("%+v", s)
	}
}
