package gateway_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
)

// What a child said last goes to clients, where the operator has not said that it
// must not. The page and the log have it in any case.
func TestErrorsPlain(t *testing.T) {
	t.Parallel()
	const said = "the key of alice is 42"
	bad := &gateway.Upstream{
		Name: "bad", Command: []string{"sh", "-c", "echo " + said + " >&2; exit 3"},
		Breaker: gateway.Breaker{After: 8, For: time.Hour},
	}
	c := &gateway.Config{Upstreams: []*gateway.Upstream{bad, child("good", "ok")}}
	l := newLabOf(t, nil, c)
	told := func() (all []string) {
		t.Helper()
		r, err := l.post(t.Context(), "/rpc/bad", `{"jsonrpc":"2.0","id":1,"method":"x"}`)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, "/rpc "+r.body)
		for _, ask := range []struct{ path, method, name, params string }{
			{"/mcp/bad", "tools/call", "x", `"name":"x","arguments":{}`},
			{"/mcp/bad", "tools/list", "", ""},
			{"/mcp/bad", "prompts/get", "x", `"name":"x"`},
			{"/mcp", "tools/list", "", ""},
			{"/mcp", "tools/call", "x", `"name":"x","arguments":{}`},
		} {
			r, err := l.modernAt(t.Context(), ask.path, ask.method, ask.name, ask.params)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, ask.path+" "+ask.method+" "+r.body)
		}
		return all
	}
	knows := func(want bool) {
		t.Helper()
		for _, text := range told() {
			if !strings.Contains(text, "bad") {
				t.Errorf("it does not say who fails: %s", text)
			}
			if got := strings.Contains(text, said); got != want {
				t.Errorf("reasons: %v, want %v: %s", got, want, text)
			}
			for _, word := range []string{"stderr", `"reason"`, "exit status", "standard error"} {
				if !want && strings.Contains(text, word) {
					t.Errorf("it tells of %s: %s", word, text)
				}
			}
		}
	}
	knows(true)
	plain := *c
	plain.Errors = "plain"
	if err := l.Reload(&plain); err != nil {
		t.Fatal(err)
	}
	knows(false)
	for range 3 {
		knows(false) // also when it is not tried again
	}
	if page := l.get(t, "/api/v1/upstreams/bad"); !strings.Contains(page, said) ||
		!strings.Contains(l.log.String(), said) {
		t.Error("the operator is not told")
	}
}

// A new configuration counts for what goes on as well.
func TestReloadLimits(t *testing.T) {
	m := newMock("legacy")
	u := m.tcp(t, "m")
	c := &gateway.Config{Upstreams: []*gateway.Upstream{u}, MaxSuspended: 1}
	l := newLabOf(t, principals(), c)
	change := func(to gateway.Config) {
		t.Helper()
		to.Upstreams = c.Upstreams
		if err := l.Reload(&to); err != nil {
			t.Fatal(err)
		}
	}
	ann := l.rounds(t, "ann").begin()
	ben := l.rounds(t, "ben")
	if r, err := ben.send(t.Context(), ""); err != nil ||
		!strings.Contains(r.body, "1 calls wait for their clients already") {
		t.Errorf("%v, %v", r, err)
	}
	change(gateway.Config{MaxSuspended: 2})
	ben.begin().done("Benjamin", "ben is Benjamin")
	ann.done("Anna", "ann is Anna")

	change(gateway.Config{SuspendTimeout: 50 * time.Millisecond})
	ann.begin()
	until(t, "the call is given up", func() bool { return l.status(t).Suspended == 0 })
	ann.refused("too late")

	change(gateway.Config{PageSize: 1})
	for _, path := range []string{"/mcp", "/mcp/m"} {
		r, err := l.modernAt(t.Context(), path, "tools/list", "", "")
		if err != nil || strings.Count(string(r.result), `"inputSchema"`) != 1 ||
			!strings.Contains(string(r.result), "nextCursor") {
			t.Errorf("%s: %v, %v", path, r, err)
		}
	}
}

// Anyone who pins one server leaves the pins of the others; a configuration that has
// been read from a file is all there is.
func TestPinsOfOthers(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, "farcall.lock")
	pinAll := func(c *gateway.Config) string {
		t.Helper()
		if _, _, err := newLabOf(t, nil, c).Pin(t.Context(), lock, true); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(lock)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, name := range []string{"one", "two", "three"} {
			if strings.Contains(string(text), name) {
				names = append(names, name)
			}
		}
		return strings.Join(names, " ")
	}
	server := func(name string) *gateway.Upstream { return over(t, name, newMock("legacy").Server) }
	one, two, three := server("one"), server("two"), server("three")
	pinAll(config(one, two))
	if got := pinAll(config(three)); got != "one two three" {
		t.Errorf("after one server: %s", got)
	}
	file := filepath.Join(dir, "farcall.yaml")
	text := "upstreams:\n  one: {url: '" + one.URL + "', disabled: true}\n  three: {url: '" +
		three.URL + "'}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := gateway.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := pinAll(c); got != "one three" {
		t.Errorf("after the configuration: %s", got)
	}
}
