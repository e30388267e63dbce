package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// Clients of every revision work with two gateways behind a round robin, whatever the lifetime, and
// go on when one is replaced.
func TestReplicas(t *testing.T) {
	t.Parallel()
	for _, lifetime := range []string{"auto", "session"} {
		for _, upstream := range []string{"legacy", "modern"} {
			t.Run(lifetime+" "+upstream, func(t *testing.T) { testReplicas(t, lifetime, upstream) })
		}
	}
}

func testReplicas(t *testing.T, lifetime, upstreamEra string) {
	s := mcp.NewServer("behind", "1", &mcp.ServerOptions{Eras: upstreamEra})
	t.Cleanup(s.Close)
	s.AddTool(mcp.Tool{Name: "ask", InputSchema: jsonrpc.Raw(`{"type":"object"}`)},
		func(ctx context.Context, _ jsonrpc.Raw) (*mcp.ToolResult, error) {
			answer, err := mcp.Elicit[struct{ Name string }](ctx, "Who?")
			if errors.Is(err, mcp.ErrAsked) || err != nil {
				return nil, err
			}
			return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(answer.Name)}}, nil
		})
	handler := mcphttp.NewHandler(s, nil)
	behind := httptest.NewServer(handler)
	t.Cleanup(func() {
		behind.CloseClientConnections()
		behind.Close()
		shutdownNow(handler.Shutdown)
	})

	var replicas [2]atomic.Pointer[Gateway]
	var webs [2]*httptest.Server
	start := func(i int) {
		g, err := New(&Config{
			Upstreams: []*Upstream{{Name: "u", URL: behind.URL + "/mcp", Lifetime: lifetime}},
			Sessions: Sessions{
				Keys:      []string{base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))},
				Advertise: webs[i].URL,
			},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if old := replicas[i].Swap(g); old != nil {
			shutdownNow(old.Shutdown)
		}
	}
	for i := range replicas {
		webs[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			replicas[i].Load().ServeHTTP(w, r)
		}))
		start(i)
		t.Cleanup(func() {
			webs[i].CloseClientConnections()
			webs[i].Close()
			shutdownNow(replicas[i].Load().Shutdown)
		})
	}
	var next atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		replicas[next.Add(1)%2].Load().ServeHTTP(w, r)
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })

	clients := map[string]*mcp.Client{}
	for _, rev := range era.Revisions() {
		if !rev.Handshake && (upstreamEra == "legacy" || lifetime == "session") {
			continue // its suspended calls are in one process
		}
		c, err := mcp.Dial(t.Context(), front.URL+"/mcp", &mcp.ClientOptions{
			Era: rev.Name,
			Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				return &spec.ElicitResult{Action: spec.ElicitAccept, Content: jsonrpc.Raw(`{"Name":"ada"}`)},
					nil
			},
		})
		if err != nil {
			t.Fatal(rev.Name, err)
		}
		t.Cleanup(func() { c.Close() })
		clients[rev.Name] = c
	}
	for round := range 2 {
		for name, c := range clients {
			for range 3 {
				r, err := c.CallTool(t.Context(), "ask", nil)
				if rev := era.Lookup(name); !rev.Elicitation {
					continue
				}
				if err != nil || len(r.Content) != 1 || r.Content[0].Text != "ada" {
					t.Errorf("round %d, %s: %v, %v", round, name, r, err)
				}
			}
		}
		start(0)
	}
}

func shutdownNow(shutdown func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = shutdown(ctx)
}

// A session of one endpoint is none of another, and keys cannot change while the gateway runs.
func TestEndpointsAreApart(t *testing.T) {
	key := strings.Repeat("5e", 32)
	one := Sessions{Keys: []string{key}}
	all, err1 := one.keysOf("", nil)
	own, err2 := one.keysOf("u", nil)
	if err1 != nil || err2 != nil || string(all[0]) == string(own[0]) {
		t.Errorf("%v %v: the same keys", err1, err2)
	}
	c := &Config{Upstreams: []*Upstream{{Name: "u", URL: "http://127.0.0.1:1/mcp"}}, Sessions: one}
	g, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shutdownNow(g.Shutdown)
	other := *c
	other.Sessions = Sessions{}
	if err := g.Reload(&other); !errors.Is(err, errSessionsFixed) {
		t.Errorf("reloaded with other sessions: %v", err)
	}
}

func TestSessionsConfig(t *testing.T) {
	base := func(text string) string {
		c := &Config{Upstreams: []*Upstream{{Name: "u", URL: "http://h/mcp"}}}
		switch field, value, _ := strings.Cut(text, " "); field {
		case "mode":
			c.Sessions.Mode = value
		case "key":
			c.Sessions.Keys = []string{value}
		case "advertise":
			c.Sessions.Advertise = value
		case "age":
			c.Sessions.MaxAge = -1
		}
		return fmt.Sprint(c.Check())
	}
	for text, want := range map[string]string{
		"mode sticky": "sessions.mode: there is no mode \"sticky\"",
		"mode sealed": "sealed sessions need keys", "key abc": "32 bytes",
		"advertise 10.0.0.3": "sessions.advertise", "advertise http://h/path": "sessions.advertise",
		"age":                            "sessions.max_age",
		"advertise http://10.0.0.3:7331": "<nil>", "mode none": "<nil>",
		"key " + strings.Repeat("5e", 32): "<nil>",
	} {
		if got := base(text); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
