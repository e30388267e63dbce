package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// askingServer is the URL of an MCP server with a tool that asks the user.
func askingServer(t *testing.T) string {
	t.Helper()
	s := mcp.NewServer("behind", "1", &mcp.ServerOptions{Eras: "modern"})
	s.AddTool(mcp.Tool{Name: "ask", InputSchema: jsonrpc.Raw(`{"type":"object"}`)},
		func(ctx context.Context, _ jsonrpc.Raw) (*mcp.ToolResult, error) {
			answer, err := mcp.Elicit[struct{ Name string }](ctx, "Who?")
			if errors.Is(err, mcp.ErrAsked) || err != nil {
				return nil, err
			}
			return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(answer.Name)}}, nil
		})
	handler := mcphttp.NewHandler(s, nil)
	web := httptest.NewServer(handler)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = handler.Shutdown(ctx) // its connections are closed
		s.Close()
	})
	return web.URL + "/mcp"
}

// balance is the URL of a balancer that gives each request to the next node, from the first on.
func (n *nodes) balance(t *testing.T) (at string, from *atomic.Int64) {
	t.Helper()
	from = &atomic.Int64{}
	var next atomic.Int64
	web := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			first := from.Load()
			i := first + next.Add(1)%(int64(len(n.all))-first)
			u, err := url.Parse(n.all[i].addrs[0])
			if err != nil {
				t.Error(err)
				return
			}
			r.SetURL(u)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { // clients give up requests
			w.WriteHeader(http.StatusBadGateway)
		},
	})
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	return web.URL, from
}

// Nodes that have no keys in their configuration serve each other's sessions, those of a node that
// was killed included, and forward what clients answer to the node that has asked.
func TestClusterSessions(t *testing.T) {
	t.Parallel()
	n := startNodes(t, fmt.Sprintf(
		"sessions: {advertise: \"http://${WEB}\"}\nupstreams: {u: {url: %q}}\n", askingServer(t)))
	front, from := n.balance(t)
	clients := map[*era.Revision]*mcp.Client{}
	for _, rev := range era.Revisions() {
		c, err := mcp.Dial(t.Context(), front+"/mcp", &mcp.ClientOptions{
			Era: rev.Name, NoCache: true,
			Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				return &spec.ElicitResult{Action: spec.ElicitAccept, Content: jsonrpc.Raw(`{"Name":"ada"}`)},
					nil
			},
		})
		if err != nil {
			t.Fatal(rev.Name, err)
		}
		t.Cleanup(func() { c.Close() })
		clients[rev] = c
	}
	for _, when := range []string{"three nodes", "one node was killed"} {
		for rev, c := range clients {
			for range 3 {
				if tools, err := c.Tools(t.Context()); err != nil || len(tools) != 1 {
					t.Fatalf("%s, %s: %v, %v", when, rev.Name, tools, err)
				}
				if !rev.Elicitation {
					continue
				}
				r, err := c.CallTool(t.Context(), "ask", nil)
				if err != nil || len(r.Content) != 1 || r.Content[0].Text != "ada" {
					t.Errorf("%s, %s: %v, %v", when, rev.Name, r, err)
				}
			}
		}
		from.Store(1)
		if err := n.all[0].cmd.Process.Kill(); err != nil && when == "three nodes" {
			t.Fatal(err)
		}
	}
}
