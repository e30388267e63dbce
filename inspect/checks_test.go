package inspect

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

const initialize = `{"jsonrpc":"2.0","id":"own","method":"initialize","params":{` +
	`"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// probe is what Options.Conform may do: it begins a separate session.
func probe(ctx context.Context, protocol string, s *Server, each func(string)) (any, error) {
	each("own/session")
	if s.Dial != nil {
		t, err := s.Dial(ctx)
		if err != nil {
			return nil, err
		}
		defer t.Close()
		if err := t.Write([]byte(initialize)); err != nil {
			return nil, err
		}
		answer, err := t.Read()
		return protocol + " " + string(answer), err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Target, strings.NewReader(initialize))
	if err != nil {
		return nil, err
	}
	r.Header = s.Header.Clone()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := s.HTTP.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return protocol + " " + string(answer), errors.Join(err, http.ErrNotSupported)
}

type bearer struct{}

func (bearer) Authorize(_ context.Context, r *http.Request) error {
	r.Header.Set("Authorization", "Bearer own")
	return nil
}

func (bearer) Challenge(context.Context, *http.Response) (bool, error) { return false, nil }

// The checks of a specification reach the server as the page does, with its credentials, over
// separate connections, which are in the traffic.
func TestConform(t *testing.T) {
	t.Parallel()
	play := mcphttp.NewHandler(playground(), nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer own" || r.Header.Get("X-Tenant") != "a" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		play.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	servers := []Server{
		{InProcess: playground()},
		{Target: web.URL, Authorize: bearer{}, Header: http.Header{"X-Tenant": {"a"}}},
	}
	var failed string
	_, p, _ := inspector(t, &Options{Servers: servers, Conform: func(
		ctx context.Context, protocol string, s *Server, each func(string),
	) (any, error) {
		report, err := probe(ctx, protocol, s, each)
		if errors.Is(err, http.ErrNotSupported) {
			failed, _ = report.(string)
		}
		return report, err
	}})
	p.fails("conform", conformParams{Conn: 1, Call: "c"}, "not connected")
	for _, conn := range []int{1, 2} {
		p.call("connect", connectParams{Conn: conn}, nil)
		p.state(conn, stateReady)
	}
	var report string
	p.call("conform", conformParams{Conn: 1, Call: "c"}, &report)
	p.saw("progress", func(e event) bool {
		return e.Type == eventProgress && e.Call == "c" && strings.Contains(string(e.Data), "own/session")
	})
	p.fails("conform", conformParams{Conn: 2, Call: "d"}, http.ErrNotSupported.Error())
	for _, got := range []string{report, failed} {
		if !strings.HasPrefix(got, "mcp ") || !strings.Contains(got, `"id":"own"`) ||
			!strings.Contains(got, "2025-06-18") {
			t.Errorf("the server has answered %q", got)
		}
	}
	var r filterResult
	p.call("filter", filterParams{Filter: "method:initialize own"}, &r)
	if len(r.Chosen) < 4 {
		t.Errorf("%d frames of the sessions are in the traffic", len(r.Chosen))
	}
	_, other, _ := inspector(t, &Options{Servers: servers[:1], Connect: true})
	other.state(1, stateReady)
	other.fails("conform", conformParams{Conn: 1, Call: "c"}, "no such checks")
}

// What two answers list is compared, and what two documents describe.
func TestDiff(t *testing.T) {
	t.Parallel()
	_, p, _ := inspector(t, &Options{})
	for _, test := range []struct{ method, was, is, want string }{
		{
			"tools/list", `{"result":{"tools":[{"name":"a"},{"name":"b"}]}}`,
			`{"result":{"tools":[{"name":"b"},{"name":"c"}]}}`,
			"breaking tool-removed result.tools.a, compatible tool-added result.tools.c",
		},
		{"resources/list", `{"result":{"resources":[]}}`, `{"result":{"resources":[]}}`, ""},
		{
			discover, `{"result":{"openrpc":"1.3.2","methods":[{"name":"a"}]}}`,
			`{"result":{"openrpc":"1.3.2","methods":[]}}`, "breaking method-removed methods.a",
		},
	} {
		var found []diff.Finding
		p.call("diff", diffParams{test.method, jsonrpc.Raw(test.was), jsonrpc.Raw(test.is)}, &found)
		var all []string
		for _, f := range found {
			all = append(all, string(f.Level)+" "+f.Rule+" "+f.Path)
		}
		if got := strings.Join(all, ", "); got != test.want {
			t.Errorf("%s: %q, want %q", test.method, got, test.want)
		}
	}
	empty := jsonrpc.Raw(`{"result":{}}`)
	p.fails("diff", diffParams{discover, empty, empty}, "OpenRPC")
}
