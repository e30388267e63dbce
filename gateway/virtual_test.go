package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type issue struct {
	Owner string `json:"owner"`
	Repo  string `json:"repo,omitzero"`
	Body  string `json:"body"`
}

// officeServers are two servers that share names.
func officeServers() []*gateway.Upstream {
	var all []*gateway.Upstream
	for _, name := range []string{"files", "tracker"} {
		s := mcp.NewServer(name, "1", &mcp.ServerOptions{Instructions: "Use " + name + "."})
		for _, tool := range []string{"read", "list", "delete"} {
			mcp.AddTool(s, mcp.Tool{Name: tool}, func(context.Context, struct{}) (string, error) {
				return name + " " + tool, nil
			})
		}
		mcp.AddTool(s, mcp.Tool{Name: "create", Description: "Creates."},
			func(_ context.Context, in issue) (string, error) {
				return fmt.Sprintf("%s %s/%s: %s", name, in.Owner, in.Repo, in.Body), nil
			})
		s.AddResource(mcp.Resource{URI: name + ":readme", Name: "readme"},
			func(_ context.Context, uri string) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{{URI: uri, Text: name}}, nil
			})
		all = append(all, &gateway.Upstream{Name: name, Server: s})
	}
	return all
}

// teamA chooses a part of the office.
func teamA() *gateway.Endpoint {
	return &gateway.Endpoint{
		Name: "team-a", Title: "Team A", Instructions: "For team A.",
		Tools: []string{"files/*", "tracker/create"}, Deny: []string{"*/delete"},
		Resources: []string{"tracker/*"}, Prompts: []string{},
		Overrides: map[string]mcp.Transform{"tracker/create": {
			Name: "file_bug", Description: "Files a bug.",
			Arguments: map[string]mcp.Argument{
				"owner": {Fixed: "acme"}, "repo": {Default: "web"},
				"body": {Name: "text"},
			},
		}},
	}
}

// saysOf is what a tool has said.
func saysOf(r *spec.CallToolResult) string {
	if len(r.Content) != 1 {
		return ""
	}
	return r.Content[0].Text
}

// TestVirtual: a virtual server has what its endpoint chooses, in every revision and transport, and
// nothing else is there.
func TestVirtual(t *testing.T) {
	t.Parallel()
	l := newLabOf(t, nil,
		&gateway.Config{Upstreams: officeServers(), Endpoints: []*gateway.Endpoint{teamA()}})
	clients := map[string]*mcp.Client{
		"legacy": l.clientAt(t, "/mcp/team-a", mcp.ClientOptions{Era: "legacy"}),
		"modern": l.clientAt(t, "/mcp/team-a", mcp.ClientOptions{Era: "modern"}),
		"sse": l.clientAt(t, "/sse/team-a",
			mcp.ClientOptions{Era: "legacy", HTTP: &mcphttp.DialOptions{}}),
	}
	for how, c := range clients {
		if s := c.Server(); s.Name != "farcall/team-a" || s.Title != "Team A" && how != "sse" ||
			s.Instructions != "For team A." {
			t.Errorf("%s: %+v", how, s)
		}
		shown := map[string]spec.Tool{}
		tools, err := c.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			name := tool.Name
			if _, own, ok := strings.Cut(name, "__"); ok {
				name = own
			}
			shown[name] = tool
		}
		if len(shown) != 4 || shown["read"].Name == "" || shown["list"].Name == "" ||
			shown["create"].Name == "" || shown["file_bug"].Name == "" {
			t.Fatalf("%s: %v", how, shown)
		}
		bug := shown["file_bug"]
		if got := string(bug.InputSchema); bug.Description != "Files a bug." ||
			strings.Contains(got, "owner") || !strings.Contains(got, `"text"`) ||
			strings.Contains(got, `"body"`) {
			t.Errorf("%s: %s", how, got)
		}
		for args, want := range map[string]string{
			`{"text":"it fails"}`:            "tracker acme/web: it fails",
			`{"text":"it fails","repo":"x"}`: "tracker acme/x: it fails",
			`{"text":"x","owner":"mallory"}`: "",
			`{"body":"x"}`:                   "",
			`{}`:                             "",
		} {
			r, err := c.CallTool(t.Context(), bug.Name, jsonrpc.Raw(args))
			switch failed := err != nil || r.IsError; {
			case failed != (want == ""):
				t.Errorf("%s: %s: %+v, %v", how, args, r, err)
			case !failed && saysOf(r) != want:
				t.Errorf("%s: %s: %s", how, args, saysOf(r))
			}
		}
		// What is not chosen is as what does not exist.
		_, none := c.CallTool(t.Context(), "no-such-tool", nil)
		if none == nil {
			t.Fatalf("%s: a tool that does not exist is called", how)
		}
		for _, tool := range []string{
			"delete", "files__delete", "tracker__delete", "tracker__create",
			"tracker__read",
		} {
			_, err := c.CallTool(t.Context(), tool, nil)
			if err == nil || strings.Replace(err.Error(), tool, "no-such-tool", 1) != none.Error() {
				t.Errorf("%s: %s: %v; one that does not exist: %v", how, tool, err, none)
			}
		}
		var uris []string
		resources, err := c.Resources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resources {
			uris = append(uris, r.URI)
		}
		if len(uris) != 1 || !strings.HasSuffix(uris[0], "tracker:readme") {
			t.Errorf("%s: %v", how, uris)
		}
		for _, uri := range []string{"files:readme", "files+files:readme"} {
			if _, err := c.Read(t.Context(), uri); err == nil {
				t.Errorf("%s: %s can be read", how, uri)
			}
		}
	}
}

// TestVirtualExtensions: methods that MCP does not define are not there, since none can be chosen.
func TestVirtualExtensions(t *testing.T) {
	t.Parallel()
	upstreams := officeServers()
	upstreams[0].Server.Handle("example/do",
		farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
			return map[string]any{}, nil
		}))
	l := newLabOf(t, nil,
		&gateway.Config{
			Upstreams: upstreams, Endpoints: []*gateway.Endpoint{{Name: "a", Tools: []string{"files/read"}}},
		})
	if err := l.clientAt(t, "/mcp/files", mcp.ClientOptions{}).Request(t.Context(), "example/do", nil,
		nil); err != nil {
		t.Error(err)
	}
	if err := l.clientAt(t, "/mcp/a", mcp.ClientOptions{}).Request(t.Context(), "example/do", nil,
		nil); !errors.Is(err, jsonrpc.MethodNotFound) {
		t.Error(err)
	}
}

// TestVirtualRoles: for those without the role the endpoint is not there, and the guard judges
// calls by the upstream's name.
func TestVirtualRoles(t *testing.T) {
	t.Parallel()
	key := func(id string) string { return "a-key-of-a-hundred-and-something-bits-of-" + id }
	guarded := &guard.Config{
		Allow: []guard.Rule{
			{
				Roles: []string{"staff"},
				Calls: []string{"tools/call files/*", "tools/call tracker/create", "*/list"},
			},
		},
	}
	for id, roles := range map[string][]string{
		"ann": {"staff", "team"}, "bob": {"staff"},
		"cid": {"team"},
	} {
		guarded.Keys = append(guarded.Keys, guard.Key{ID: id, Hash: hashOf(key(id)), Roles: roles})
	}
	e := teamA()
	e.Roles = []string{"team"}
	l := newLabOf(t, nil,
		&gateway.Config{Upstreams: officeServers(), Endpoints: []*gateway.Endpoint{e}, Guard: guarded})
	as := func(id, path string) (*mcp.Client, error) {
		c, err := mcp.Dial(t.Context(), l.url+path,
			&mcp.ClientOptions{HTTP: &mcphttp.DialOptions{Header: http.Header{"X-Api-Key": {key(id)}}}})
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return c, err
	}
	_, none := as("bob", "/mcp/none")
	if _, err := as("bob", "/mcp/team-a"); err == nil || none == nil ||
		strings.Replace(err.Error(), "team-a", "none", 1) != none.Error() {
		t.Errorf("without the role: %v; no endpoint: %v", err, none)
	}
	ann, err := as("ann", "/mcp/team-a")
	if err != nil {
		t.Fatal(err)
	}
	names, _ := toolsOf(t, ann)
	at := slices.IndexFunc(names, func(name string) bool {
		return strings.HasSuffix(name, "file_bug")
	})
	if len(names) != 4 || at < 0 {
		t.Fatal(names)
	}
	if r, err := ann.CallTool(t.Context(), names[at], map[string]any{"text": "x"}); err != nil ||
		saysOf(r) != "tracker acme/web: x" {
		t.Error(r, err)
	}
	cid, err := as("cid", "/mcp/team-a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cid.CallTool(t.Context(), names[at], map[string]any{"text": "x"}); err == nil {
		t.Error("an endpoint adds access")
	}
}

// TestVirtualReload: an endpoint that a new configuration lacks is gone, and one that it changes
// tells its clients.
func TestVirtualReload(t *testing.T) {
	t.Parallel()
	upstreams := officeServers()
	begun, ended := make(chan string, 1), make(chan string, 1)
	watched := mcp.NewServer("watched", "1",
		&mcp.ServerOptions{OnSubscribe: func(_ context.Context, uri string) (func(), error) {
			begun <- uri
			return func() { ended <- uri }, nil
		}})
	watched.AddResource(mcp.Resource{URI: "watched:r", Name: "r"},
		func(_ context.Context, uri string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{URI: uri}}, nil
		})
	upstreams = append(upstreams, &gateway.Upstream{Name: "watched", Server: watched})
	first := teamA()
	first.Resources = []string{"watched/*"}
	l := newLabOf(t, nil, &gateway.Config{Upstreams: upstreams, Endpoints: []*gateway.Endpoint{first}})
	changed := make(chan string, 10)
	c := l.clientAt(t, "/mcp/team-a",
		mcp.ClientOptions{Era: "legacy", OnListChanged: func(kind string) {
			if kind == "tools" {
				changed <- kind
			}
		}})
	if names, _ := toolsOf(t, c); len(names) != 4 {
		t.Fatal(names)
	}
	listening, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = c.Listen(listening,
			spec.SubscriptionFilter{ResourceSubscriptions: []string{"watched+watched:r"}})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	received(t, "the subscription", begun)
	if err := l.Reload(
		&gateway.Config{
			Upstreams: upstreams,
			Endpoints: []*gateway.Endpoint{{Name: "team-a", Tools: []string{"files/read"}}},
		}); err != nil {
		t.Fatal(err)
	}
	received(t, "the change", changed)
	if names, _ := toolsOf(t, c); len(names) != 1 {
		t.Error(names)
	}
	received(t, "the end of watching what is no longer chosen", ended)
	if err := l.Reload(&gateway.Config{Upstreams: upstreams}); err != nil {
		t.Fatal(err)
	}
	if _, err := mcp.Dial(t.Context(), l.url+"/mcp/team-a", nil); err == nil {
		t.Error("it is there still")
	}
	var wire *jsonrpc.Error
	if _, err := c.CallTool(t.Context(), "read", nil); err == nil ||
		errors.As(err, &wire) && wire.Code == jsonrpc.InternalError {
		t.Error(err)
	}
}
