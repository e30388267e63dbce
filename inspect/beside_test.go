package inspect

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// A page connects a server a second time, in another revision and with the same credentials, and
// replays a call there. It may do so with servers that it was given, too.
func TestBeside(t *testing.T) {
	t.Parallel()
	play := mcphttp.NewHandler(playground(), nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Tenant") != "a" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		play.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	_, p, _ := inspector(t, &Options{Connect: true, Servers: []Server{
		{Target: web.URL, Header: http.Header{"X-Tenant": {"a"}}},
	}})
	first := p.state(1, stateReady)
	o := p.tool("add", `{"a":2,"b":40}`)
	var v serverView
	p.call("connect", connectParams{Conn: 1, Era: "2025-03-26", Beside: true}, &v)
	if v = p.state(v.ID, stateReady); v.Info.Revision != "2025-03-26" ||
		v.Name != web.URL+" (2025-03-26)" {
		t.Errorf("the second connection: %+v, %+v", v, v.Info)
	}
	var f filterResult
	p.call("filter", filterParams{Filter: "kind:request name:add"}, &f)
	var again outcome
	p.call("replay", replayParams{Seq: f.Chosen[0], Conn: v.ID, Call: "x"}, &again)
	if !strings.Contains(again.Result, "42") || !strings.Contains(o.Result, "42") {
		t.Errorf("the replay has %s, the call %s", again.Result, o.Result)
	}
	var h helloResult
	p.call("hello", none{}, &h)
	if is := h.Servers[0]; is.Info.Revision != first.Info.Revision {
		t.Errorf("the first connection: %+v", is)
	}
	p.fails("connect", connectParams{Conn: 1, Era: "1999", Beside: true}, "no revision")
	p.call("remove", connParams{v.ID}, nil)
	p.fails("connect", connectParams{Conn: v.ID, Beside: true}, "no server")
}
