package inspect

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/wsrpc"
)

// With Each a page has its own servers and traffic, for the request that opened it, and they end
// with it.
func TestEach(t *testing.T) {
	t.Parallel()
	var made atomic.Int64
	play := playground()
	i, err := New(t.Context(), &Options{
		Open: true, Connect: true, Operate: true, Logger: slog.New(slog.DiscardHandler),
		Each: func(r *http.Request) []Server {
			made.Add(1)
			return []Server{{Name: "of " + r.Header.Get("X-User"), InProcess: play, Path: "/mcp"}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(i)
	defer s.Close()
	open := func(user string) *tab {
		tr, err := wsrpc.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http")+"/api",
			&wsrpc.Options{
				Subprotocols: []string{subprotocol}, Header: http.Header{"X-User": {user}},
			})
		if err != nil {
			t.Fatal(err)
		}
		return &tab{t: t, peer: farcall.NewPeer(tr, nil, nil)}
	}
	ann, bob := open("ann"), open("bob")
	for name, p := range map[string]*tab{"of ann": ann, "of bob": bob} {
		if v := p.state(1, stateReady); v.Name != name || v.Path != "/mcp" {
			t.Errorf("the server of a page: %+v, want %q", v, name)
		}
	}
	if o := ann.tool("add", `{"a":40,"b":2}`); !strings.Contains(o.Result, "42") {
		t.Errorf("the call: %+v", o)
	}
	calls := func(p *tab) int {
		var r struct {
			Chosen []int `json:"chosen"`
		}
		p.call("filter", map[string]any{"filter": "method:tools/call", "from": 0}, &r)
		return len(r.Chosen)
	}
	if a, b := calls(ann), calls(bob); a == 0 || b != 0 {
		t.Errorf("ann sees %d frames of the call, and bob %d", a, b)
	}
	ann.fails("replay", replayParams{Seq: 1, Conn: 1, Call: "c"}, "no permission")
	_ = ann.peer.Close()
	if o := bob.tool("add", `{"a":1,"b":2}`); !strings.Contains(o.Result, "3") || made.Load() != 2 {
		t.Errorf("after ann has left: %+v; servers were made %d times", o, made.Load())
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
	<-bob.peer.Done()
	if page := i.files[pageFile].Body; !strings.Contains(string(page), "<body data-operate ") {
		t.Error("the page does not say that the API for operators is there")
	}
	paths := map[string]bool{"/": true, "/api": true, "/main.js": true, "/api/v1": false}
	for path, is := range paths {
		if i.Has(path) != is {
			t.Errorf("Has(%q) is %v", path, !is)
		}
	}
}
