package gateway_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// Clients with different roots take turns at children that ask for the roots and make use of them
// later. No call is made with the roots of another client, and each gets its own ones in the end
// where its connection lasts.
func TestRootsOfChildren(t *testing.T) {
	t.Parallel()
	guards := map[string]*guard.Config{
		"open": nil, "keys": everybody(),
		"anonymous": {Anonymous: true, Allow: []guard.Rule{{Calls: []string{"*"}}}},
	}
	delays := []string{"130ms", "600ms", "2s"}
	for g, name := range slices.Sorted(maps.Keys(guards)) {
		for n, lifetime := range []string{"auto", "principal", "session"} {
			for d, late := range delays {
				if !full.Wanted() && d != (g+n)%len(delays) { // each delay with each guard and each lifetime
					continue
				}
				t.Run(late+" "+name+" "+lifetime, func(t *testing.T) {
					t.Parallel()
					u := child("a", "roots", late)
					u.Lifetime, u.Pool = lifetime, 16
					l := newLabOf(t, nil, &gateway.Config{Upstreams: []*gateway.Upstream{u}, Guard: guards[name]})
					testRoots(t, l, name == "keys", lifetime == "auto" || name == "keys")
				})
			}
		}
	}
}

// testRoots has clients of both eras use a server in turns. The requests that stand alone of the
// modern ones have a connection that lasts, or not.
func testRoots(t *testing.T, l *lab, keys, lasts bool) {
	t.Helper()
	type client struct {
		*mcp.Client
		root  string
		lasts bool
		seen  bool
	}
	var all []*client
	for i := range 3 {
		for _, era := range []string{legacy, modern} {
			c := &client{root: fmt.Sprint("file:///", era, "/", i), lasts: era == legacy || lasts}
			o := mcp.ClientOptions{Era: era, Roots: func(context.Context) ([]mcp.Root, error) {
				return []mcp.Root{{URI: c.root}}, nil
			}}
			if keys {
				o.HTTP = withKeyOf([]string{"dev", "dev", "ops"}[i]) // one principal has two clients
			}
			c.Client = l.client(t, o)
			all = append(all, c)
		}
	}
	turn := time.NewTicker(20 * time.Millisecond)
	defer turn.Stop()
	late := time.After(30 * time.Second)
	for n, open := 0, true; open; n++ {
		open = false
		for _, c := range all {
			if !c.lasts && n > 3 {
				continue // each call starts a child
			}
			got, err := say(t.Context(), c.Client, "echo", "")
			switch {
			case err != nil:
				t.Fatalf("%s: %v", c.root, err)
			case strings.Contains(got, `"`+c.root+`"`) && strings.Count(got, "file:") == 1:
				c.seen = true
			case got != "":
				t.Fatalf("%s got %s", c.root, got)
			}
			open = open || c.lasts && !c.seen
		}
		select {
		case <-late:
			t.Fatalf("not all have got their roots: %+v", all)
		case <-turn.C:
		}
	}
}

// A change of roots reaches the child of the client, and no other one.
func TestRootsChange(t *testing.T) {
	l := newLab(t, nil, child("a", "roots", "10ms"))
	roots := map[string]string{"a": "file:///a", "b": "file:///b"}
	clients := map[string]*mcp.Client{}
	for name := range roots {
		clients[name] = l.client(t,
			mcp.ClientOptions{Era: legacy, Roots: func(context.Context) ([]mcp.Root, error) {
				return []mcp.Root{{URI: roots[name]}}, nil
			}})
	}
	sees := func(name string) {
		t.Helper()
		until(t, name+" has its roots", func() bool {
			got, err := say(t.Context(), clients[name], "echo", "")
			return err == nil && strings.Contains(got, `"`+roots[name]+`"`)
		})
	}
	sees("a")
	sees("b")
	roots["a"] = "file:///a/changed"
	if err := clients["a"].RootsChanged(t.Context()); err != nil {
		t.Fatal(err)
	}
	sees("a")
	sees("b")
}

// Callers without credentials have nothing in common where the lifetime keeps principals, or
// sessions, apart: with a guard that lets them in, and without one.
func TestAnonymousChildren(t *testing.T) {
	for name, who := range map[string]*guard.Config{
		"open":      nil,
		"anonymous": {Anonymous: true, Allow: []guard.Rule{{Calls: []string{"*"}}}},
	} {
		for _, lifetime := range []string{"principal", "session"} {
			t.Run(name+" "+lifetime, func(t *testing.T) {
				t.Parallel()
				u := child("a", "ok")
				u.Lifetime = lifetime
				l := newLabOf(t, nil, &gateway.Config{Upstreams: []*gateway.Upstream{u}, Guard: who})
				pids := map[string]string{}
				for i := range 3 {
					for _, era := range []string{legacy, modern} {
						c := l.client(t, mcp.ClientOptions{Era: era})
						client := fmt.Sprint(era, " ", i)
						for range 2 {
							pid, err := say(t.Context(), c, "pid", "")
							if err != nil {
								t.Fatal(err)
							}
							if of, ok := pids[pid]; ok && of != client {
								t.Errorf("%s and %s share a child", client, of)
							}
							pids[pid] = client
						}
					}
				}
			})
		}
	}
}

// A guard that lets callers in without credentials keeps those who have some apart from them.
func TestAnonymousAndNamed(t *testing.T) {
	who := everybody()
	who.Anonymous = true
	u := child("a", "ok")
	u.Lifetime = "principal"
	l := newLabOf(t, nil, &gateway.Config{Upstreams: []*gateway.Upstream{u}, Guard: who})
	pids := map[string]string{}
	for _, id := range []string{"dev", "", "dev", "ops", ""} {
		o := mcp.ClientOptions{Era: legacy, HTTP: &mcphttp.DialOptions{Header: http.Header{}}}
		if id != "" {
			o.HTTP = withKeyOf(id)
		}
		pid, err := say(t.Context(), l.client(t, o), "pid", "")
		if err != nil {
			t.Fatal(err)
		}
		if of, ok := pids[pid]; ok && (of != id || id == "") {
			t.Errorf("%q and %q share a child", of, id)
		}
		pids[pid] = id
	}
	if len(pids) != 4 {
		t.Errorf("children and who has used them: %v", pids)
	}
}

// The children of a caller without credentials end with its session or connection.
func TestAnonymousChildrenEnd(t *testing.T) {
	for _, lifetime := range []string{"principal", "session"} {
		u := child("a", "ok")
		u.Lifetime = lifetime
		l := newLabOf(t, nil, &gateway.Config{Upstreams: []*gateway.Upstream{u}})
		for _, era := range []string{legacy, modern} {
			for name, dial := range map[string]func() (*mcp.Client, error){
				"HTTP": func() (*mcp.Client, error) {
					return mcp.Dial(t.Context(), l.url+"/mcp", &mcp.ClientOptions{Era: era})
				},
				"TCP": func() (*mcp.Client, error) {
					return mcp.Connect(t.Context(), l.stream(t), &mcp.ClientOptions{Era: era})
				},
			} {
				c, err := dial()
				if err != nil {
					t.Fatal(err)
				}
				wants(t, c, "echo", name, name)
				c.Close()
				until(t, "the child has ended: "+name+" "+era+" "+lifetime, func() bool {
					return l.status(t).Upstreams[0].Children == 0
				})
			}
		}
	}
}
