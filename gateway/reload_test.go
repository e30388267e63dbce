package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// config is a configuration of upstreams.
func config(upstreams ...*gateway.Upstream) *gateway.Config {
	return &gateway.Config{Upstreams: upstreams, Namespace: "auto"}
}

// like is the same as an upstream, but not the same value.
func like(u *gateway.Upstream) *gateway.Upstream {
	copied := *u
	return &copied
}

// Stale tools were shown for ever: here servers are added, changed and taken out,
// sessions stay, and clients are notified. A server that stays keeps its child.
func TestReload(t *testing.T) {
	a, b := child("a", "ok"), child("b", "ok")
	for _, u := range []*gateway.Upstream{a, b} {
		u.Namespace = "always"
	}
	l := newLab(t, nil, a)
	changes := make(chan string, 100)
	listening := make(chan struct{}, 10)
	clients := map[string]*mcp.Client{}
	for _, era := range []string{"legacy", "modern"} {
		c := l.client(t, mcp.ClientOptions{
			Era: era, OnListChanged: func(kind string) { changes <- era + " " + kind },
			OnListening: func(spec.SubscriptionFilter) { listening <- struct{}{} },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = c.Listen(ctx, spec.SubscriptionFilter{ToolsListChanged: true}) })
		t.Cleanup(func() {
			cancel()
			wg.Wait()
		})
		received(t, "the subscription", listening)
		clients[era] = c
	}
	pid := func(c *mcp.Client, tool string) string {
		t.Helper()
		text, err := say(t.Context(), c, tool, "")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	told := func() {
		t.Helper()
		want := map[string]bool{"legacy tools": true, "modern tools": true}
		for len(want) > 0 {
			delete(want, received(t, fmt.Sprint("a change of ", want), changes))
		}
	}
	before := pid(clients["legacy"], "a__pid")

	if err := l.Reload(config(like(a), b)); err != nil {
		t.Fatal(err)
	}
	told()
	for era, c := range clients {
		if names, _ := toolsOf(t, c); !slices.Contains(names, "b__echo") ||
			!slices.Contains(names, "a__echo") {
			t.Errorf("%s: %v", era, names)
		}
		wants(t, c, "b__echo", "hello", "hello")
		if now := pid(c, "a__pid"); now != before {
			t.Errorf("a, which is unchanged, was started again: %s, %s", before, now)
		}
	}

	changed := like(a)
	changed.Command = append(slices.Clone(a.Command), "x")
	if err := l.Reload(config(changed)); err != nil {
		t.Fatal(err)
	}
	told()
	for era, c := range clients {
		if names, _ := toolsOf(t, c); slices.Contains(names, "b__echo") ||
			!slices.Contains(names, "a__echo") {
			t.Errorf("%s: %v", era, names)
		}
		if now := pid(c, "a__pid"); now == before {
			t.Error("a, which has changed, was not started again")
		}
		if _, err := say(t.Context(), c, "b__echo", ""); err == nil ||
			!strings.Contains(err.Error(), "Unknown tool: b__echo") {
			t.Error(err)
		}
	}
	until(t, "the old children have ended", func() bool {
		return l.status(t).Upstreams[0].Children == 1 && len(l.status(t).Upstreams) == 1
	})
}

// Calls in flight are finished by the server that has them, also when it was
// changed or taken out.
func TestReloadInFlight(t *testing.T) {
	m, other := newMock("legacy"), newMock("legacy")
	old, added := m.tcp(t, "m"), other.tcp(t, "other")
	l := newLab(t, nil, old)
	results := make(chan error, 4)
	for _, era := range []string{"legacy", "modern"} {
		c := l.client(t, mcp.ClientOptions{Era: era})
		for n := range 2 {
			go func() {
				got, err := say(t.Context(), c, "wait", fmt.Sprint(n))
				if err == nil && got != fmt.Sprint(n) {
					err = errors.New(got)
				}
				results <- err
			}()
			received(t, "the call", m.started)
		}
	}
	changed := like(old)
	changed.Timeout = 10 * time.Second
	for _, c := range []*gateway.Config{config(changed), config(added)} {
		if err := l.Reload(c); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			m.release <- struct{}{}
			if err := received(t, "a result", results); err != nil {
				t.Error(err)
			}
		}
	}
}

// A configuration that is not valid is refused, with what is wrong. The one
// before goes on.
func TestReloadRefused(t *testing.T) {
	u := child("a", "ok")
	l := newLab(t, nil, u)
	c := l.client(t, mcp.ClientOptions{Era: "legacy"})
	before, err := say(t.Context(), c, "pid", "")
	if err != nil {
		t.Fatal(err)
	}
	locked := config(like(u))
	locked.Lock = "/does/not/exist/farcall.lock"
	for want, bad := range map[string]*gateway.Config{
		"lifetime":     config(&gateway.Upstream{Name: "a", Command: []string{"x"}, Lifetime: "eternal"}),
		"command":      config(&gateway.Upstream{Name: "a"}),
		"a":            config(like(u), like(u)),
		"farcall.lock": locked,
	} {
		if err := l.Reload(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if after, err := say(t.Context(), c, "pid", ""); err != nil || after != before {
		t.Errorf("%q, %v, it was %q", after, err, before)
	}
}

// Whatever the moment of a reload, no call is lost and no list is empty.
func TestReloadUnderLoad(t *testing.T) {
	stays, moves := child("stays", "ok"), child("moves", "ok")
	for _, u := range []*gateway.Upstream{stays, moves} {
		u.Namespace = "always"
	}
	l := newLab(t, nil, stays, moves)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	calls := make(chan struct{}, 10_000)
	for n := range 4 {
		c := l.client(t, mcp.ClientOptions{Era: []string{"legacy", "modern"}[n%2]})
		tool := []string{"stays__echo", "moves__echo"}[n/2]
		wg.Go(func() {
			for {
				wants(t, c, tool, "hello", "hello")
				if names, missing := toolsOf(t, c); len(names) != 8 || len(missing) > 0 {
					t.Errorf("listed %v, missing %v", names, missing)
				}
				select {
				case calls <- struct{}{}:
				case <-stop:
					return
				}
				if t.Failed() {
					return
				}
			}
		})
	}
	for n := range 20 {
		received(t, "a call", calls)
		received(t, "a call", calls)
		changed := like(moves)
		changed.Timeout = time.Duration(n+10) * time.Second
		if err := l.Reload(config(like(stays), changed)); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	for len(calls) > 0 {
		<-calls
	}
	wg.Wait()
}
