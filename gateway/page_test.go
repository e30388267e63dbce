package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/wsrpc"
)

// openPage opens the connection of the page of a user.
func (l *lab) openPage(t *testing.T, id string) (*farcall.Peer, error) {
	t.Helper()
	tr, err := wsrpc.Dial(t.Context(), strings.Replace(l.url, "http", "ws", 1)+"/api", &wsrpc.Options{
		Header: http.Header{"X-Api-Key": {keyed(id)}}, Subprotocols: []string{"farcall.inspect.1"},
	})
	if err != nil {
		return nil, err
	}
	p := farcall.NewPeer(tr, nil, nil)
	t.Cleanup(func() { p.Close() })
	return p, nil
}

// says calls a method of a page, and reads its result into v.
func says(t *testing.T, p *farcall.Peer, method string, params, v any) {
	t.Helper()
	var raw jsonrpc.Raw
	if err := p.Call(t.Context(), method, params, &raw); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

// A page calls the gateway as its user, and the guard lets that user call as much as elsewhere,
// and what it calls is counted as usage of that user.
func TestPageActsAsItsUser(t *testing.T) {
	l := newLabOf(t, nil, &gateway.Config{
		Namespace: "always", Upstreams: []*gateway.Upstream{child("a", "ok"), child("b", "ok")},
		Guard: guarded(allow("ops", "*"), allow("dev", "gateway/status", "tools/call a/*")),
	})
	if _, err := l.openPage(t, "eve"); err == nil {
		t.Error("a page of a user who may not see it is served")
	}
	type called struct {
		Result, Fault string
		Error         struct{ Message string }
	}
	may := map[string][]string{}
	call := func(p *farcall.Peer, conn int, tool string) (c called) {
		t.Helper()
		says(t, p, "call", map[string]any{
			"conn": conn, "call": "c", "kind": "tools", "name": tool, "params": map[string]any{},
		}, &c)
		return c
	}
	for _, id := range []string{"ops", "dev"} {
		p, err := l.openPage(t, id)
		if err != nil {
			t.Fatal(err)
		}
		var hello struct {
			May     []string
			Servers []struct {
				ID         int
				Name, Path string
			}
		}
		says(t, p, "hello", nil, &hello)
		if len(hello.Servers) != 3 || hello.Servers[0].Path != "/mcp" ||
			hello.Servers[2].Path != "/mcp/b" {
			t.Fatalf("the servers of the page: %+v", hello.Servers)
		}
		may[id] = hello.May
		says(t, p, "connect", map[string]int{"conn": 1}, new(any))
		for state := ""; state != "ready"; {
			var now struct{ Servers []struct{ State string } }
			says(t, p, "hello", nil, &now)
			state = now.Servers[0].State
		}
		if c := call(p, 1, "a__echo"); c.Result == "" {
			t.Errorf("%s calls a tool: %+v", id, c)
		}
		if c := call(p, 1, "b__echo"); (c.Result != "") != (id == "ops") {
			t.Errorf("%s calls a tool of b: %+v", id, c)
		}
	}
	if len(may["ops"]) != 2 || len(may["dev"]) != 0 {
		t.Errorf("actions of the pages: %v", may)
	}
	type usage struct {
		All        bool
		Latency    []struct{ Calls int }
		Tools      []struct{ Name string }
		Principals []struct {
			Name  string
			Calls int
		}
	}
	var all, own usage
	l.read(t, "/upstreams/a/usage", &all, as("ops"))
	l.read(t, "/upstreams/a/usage", &own, as("dev"))
	total := 0
	for _, b := range all.Latency {
		total += b.Calls
	}
	if !all.All || total < 2 || len(all.Principals) != 2 || len(all.Tools) != 1 ||
		all.Tools[0].Name != "a__echo" {
		t.Errorf("the usage: %+v", all)
	}
	if own.All || len(own.Principals) != 1 || !strings.Contains(own.Principals[0].Name, "dev") {
		t.Errorf("what dev sees: %+v", own)
	}
	var tools struct {
		Tools []struct{ Name, Shown string }
	}
	l.read(t, "/upstreams/a/tools", &tools, as("ops"))
	if len(tools.Tools) == 0 || !strings.HasPrefix(tools.Tools[0].Shown, "a__") {
		t.Errorf("the tools: %+v", tools)
	}
	var explained struct{ Call string }
	l.read(t, "/explain?call=tools/call+a__echo", &explained, as("ops"))
	if explained.Call != "tools/call a/echo" {
		t.Errorf("a name that clients see: %+v", explained)
	}
}
