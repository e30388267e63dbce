package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// searching is team-a with tool search.
func searching() *gateway.Endpoint {
	e := teamA()
	e.Search = &gateway.Search{}
	return e
}

// found searches, and returns the names of what there is.
func found(t *testing.T, c *mcp.Client, query string) (names []string) {
	t.Helper()
	r, err := c.CallTool(t.Context(), "search_tools", map[string]any{"query": query})
	if err != nil || r.IsError {
		t.Fatal(query, r, err)
	}
	for line := range strings.Lines(saysOf(r)) {
		if name, _, ok := strings.Cut(line, "("); ok && strings.Contains(name, "__") {
			names = append(names, name)
		}
	}
	return names
}

// TestSearch: in every way to reach it an address with tool search lists the tools of the search
// alone, finds the others, and calls them as they are called directly.
func TestSearch(t *testing.T) {
	t.Parallel()
	l := newLabOf(t, nil,
		&gateway.Config{Upstreams: officeServers(), Endpoints: []*gateway.Endpoint{searching()}})
	for how, c := range map[string]*mcp.Client{
		"2024-11-05": l.clientAt(t, "/sse/team-a",
			mcp.ClientOptions{Era: "2024-11-05", HTTP: &mcphttp.DialOptions{}}),
		"2025-03-26": l.clientAt(t, "/mcp/team-a", mcp.ClientOptions{Era: "2025-03-26"}),
		"2025-06-18": l.clientAt(t, "/mcp/team-a", mcp.ClientOptions{Era: "2025-06-18"}),
		"2025-11-25": l.clientAt(t, "/mcp/team-a", mcp.ClientOptions{Era: "2025-11-25"}),
		"2026-07-28": l.clientAt(t, "/mcp/team-a", mcp.ClientOptions{Era: "2026-07-28"}),
	} {
		names, _ := toolsOf(t, c)
		if !slices.Equal(names, []string{"search_tools", "call_tool"}) {
			t.Errorf("%s lists %v", how, names)
		}
		if got := found(t, c, "file a bug"); !slices.Contains(got, "tracker__file_bug") {
			t.Errorf("%s finds %v", how, got)
		}
		if got := found(t, c, "delete"); slices.Contains(got, "files__delete") {
			t.Errorf("%s finds what the endpoint denies: %v", how, got)
		}
		arguments := map[string]any{"text": "it fails"}
		direct, err := c.CallTool(t.Context(), "tracker__file_bug", arguments)
		if err != nil {
			t.Fatal(how, err)
		}
		via, err := c.CallTool(t.Context(), "call_tool",
			map[string]any{"name": "tracker__file_bug", "arguments": arguments})
		if err != nil || saysOf(via) != saysOf(direct) || saysOf(via) != "tracker acme/web: it fails" {
			t.Errorf("%s: %v, %v; directly %v", how, via, err, direct)
		}
		for _, bad := range []string{
			`{}`, `{"name":7}`, `{"name":"call_tool"}`, `{"name":"search_tools","arguments":{"query":"x"}}`,
			`{"name":"files__delete"}`, `{"name":"nothing"}`,
			`{"name":"tracker__file_bug","arguments":[1]}`, `{"name":"tracker__file_bug","arguments":{}}`,
			`{"name":"tracker__file_bug","arguments":{"owner":"mallory","text":"x"}}`,
		} {
			if r, err := c.CallTool(t.Context(), "call_tool", jsonrpc.Raw(bad)); err == nil && !r.IsError {
				t.Errorf("%s: %s answers %v", how, bad, r)
			}
		}
		if r, err := c.CallTool(t.Context(), "search_tools", jsonrpc.Raw(`{"query":""}`)); err == nil &&
			!r.IsError {
			t.Errorf("%s searches for nothing: %v", how, r)
		}
		if _, err := c.CallTool(t.Context(), "call_tool_read",
			map[string]any{"name": "files__read"}); err == nil {
			t.Errorf("%s calls call_tool_read, which is not there", how)
		}
	}
}

// TestSearchRead: call_tool_read calls what is marked as read-only, and nothing else.
func TestSearchRead(t *testing.T) {
	t.Parallel()
	s := newShop("shop", "")
	l := newLabOf(t, nil, &gateway.Config{
		Namespace: "always", Upstreams: []*gateway.Upstream{{Name: "shop", Server: s.Server}},
		Search: &gateway.Search{Split: true, Always: []string{"shop/bare"}},
	})
	c := l.clientAt(t, "/mcp", mcp.ClientOptions{})
	if names, _ := toolsOf(t, c); !slices.Equal(names,
		[]string{"shop__bare", "search_tools", "call_tool", "call_tool_read"}) {
		t.Error(names)
	}
	for tool, fits := range map[string]bool{"look": true, "drop": false, "add": false, "bare": false} {
		r, err := c.CallTool(t.Context(), "call_tool_read",
			map[string]any{"name": "shop__" + tool, "arguments": map[string]any{"text": "x"}})
		if err != nil || r.IsError == fits || (s.took() == "") == fits {
			t.Errorf("%s: %v, %v", tool, r, err)
		}
	}
}

// TestSearchAsks: what a tool asks during call_tool its client is asked.
func TestSearchAsks(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer("asking", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "greet", Description: "Greets the user."},
		func(ctx context.Context, _ struct{}) (string, error) {
			who, err := mcp.Elicit[struct {
				Name string `json:"name"`
			}](ctx, "Who are you?")
			return "Hello, " + who.Name, errors.Join(err, mcp.Progress(ctx, 1, 1, "asked"))
		})
	l := newLabOf(t, nil,
		&gateway.Config{
			Upstreams: []*gateway.Upstream{{Name: "asking", Server: s}},
			Search:    &gateway.Search{}, Namespace: "always",
		})
	for _, rev := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		c := l.clientAt(t, "/mcp",
			mcp.ClientOptions{
				Era: rev,
				Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
					return &spec.ElicitResult{Action: spec.ElicitAccept, Content: jsonrpc.Raw(`{"name":"Ada"}`)},
						nil
				},
			})
		reports := 0
		ctx := mcp.OnProgress(t.Context(), func(spec.ProgressNotificationParams) { reports++ })
		r, err := c.CallTool(ctx, "call_tool", map[string]any{"name": "asking__greet"})
		if err != nil || saysOf(r) != "Hello, Ada" || reports == 0 {
			t.Errorf("%s: %v, %v, %d reports", rev, r, err, reports)
		}
	}
}

// storeOf is a server of tools of some words each.
func storeOf(name string, tools map[string]string) *mcp.Server {
	s := mcp.NewServer(name, "1", nil)
	for tool, about := range tools {
		mcp.AddTool(s, mcp.Tool{Name: tool, Description: about},
			func(context.Context, struct{}) (string, error) { return name + " " + tool, nil })
	}
	return s
}

// TestSearchHides: whatever a caller asks for, an answer is the same byte for byte as where the
// tools that the guard hides do not exist, and call_tool decides as a direct call does.
func TestSearchHides(t *testing.T) {
	race.Skip(t, "the other searches have the same ways")
	t.Parallel()
	words := strings.Fields(
		"create delete list read update issue comment branch file folder user team invoice payment " +
			"report search merge close open send")
	word := func(r *rand.Rand) string { return words[r.IntN(len(words))] }
	seeds := race.Fewer(12)
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 1))
		all, seen := map[string]map[string]string{}, map[string]map[string]string{}
		var calls, hidden []string
		for _, server := range []string{"a", "b"} {
			all[server], seen[server] = map[string]string{}, map[string]string{}
			for range 40 {
				tool, about := word(r)+"_"+word(r), "To "+word(r)+" a "+word(r)+" of a "+word(r)+"."
				if all[server][tool] != "" {
					continue
				}
				all[server][tool] = about
				if r.IntN(3) > 0 {
					seen[server][tool] = about
					calls = append(calls, "tools/call "+server+"/"+tool)
				} else {
					hidden = append(hidden, server+"__"+tool)
				}
			}
		}
		at := func(tools map[string]map[string]string) *mcp.Client {
			var upstreams []*gateway.Upstream
			for _, name := range []string{"a", "b"} {
				upstreams = append(upstreams, &gateway.Upstream{Name: name, Server: storeOf(name, tools[name])})
			}
			l := newLabOf(t, nil, &gateway.Config{
				Upstreams: upstreams, Search: &gateway.Search{}, Namespace: "always",
				Guard: guarded(guard.Rule{
					Roles: []string{"dev"},
					Calls: append(slices.Clone(calls), "server/discover", "tools/list"),
				}),
			})
			return l.enter(t, "/mcp", "dev", "")
		}
		with, without := at(all), at(seen)
		answer := func(c *mcp.Client, tool string, arguments any) string {
			var raw jsonrpc.Raw
			err := c.Request(t.Context(), spec.MethodToolsCall,
				map[string]any{"name": tool, "arguments": arguments}, &raw)
			return string(raw) + fmt.Sprint(err)
		}
		for range 40 {
			query := map[string]any{"query": word(r) + " " + word(r), "limit": 1 + r.IntN(20)}
			if got, want := answer(with, "search_tools", query),
				answer(without, "search_tools", query); got != want {
				t.Fatalf("seed %d: %v:\n%s\nwithout what is hidden:\n%s", seed, query, got, want)
			}
		}
		for _, tool := range hidden {
			call := map[string]any{"name": tool}
			got, want := answer(with, "call_tool", call), answer(without, "call_tool", call)
			direct := answer(with, tool, map[string]any{})
			if got != want || strings.Contains(got, "did you mean "+tool) ||
				(got[0] == '{') != (direct[0] == '{') {
				t.Fatalf("seed %d: %s:\n%s\nwithout what is hidden:\n%s\ndirectly:\n%s", seed, tool, got,
					want, direct)
			}
		}
		for _, call := range calls {
			server, tool, _ := strings.Cut(strings.TrimPrefix(call, "tools/call "), "/")
			if got := answer(with, "call_tool",
				map[string]any{"name": server + "__" + tool}); !strings.Contains(got, server+" "+tool) {
				t.Fatalf("seed %d: %s: %s", seed, call, got)
			}
		}
	}
}

// TestSearchIsShort: with 1,000 tools, the list and three searches are a twentieth of the whole
// list at most.
func TestSearchIsShort(t *testing.T) {
	t.Parallel()
	tools := map[string]string{}
	for i := range 1000 {
		tools[fmt.Sprintf("tool_%d", i)] = fmt.Sprintf(
			"Does the thing of number %d for a user of this service, and returns what has changed since.", i)
	}
	upstreams := []*gateway.Upstream{{Name: "many", Server: storeOf("many", tools)}}
	size := func(s *gateway.Search) (n int) {
		l := newLabOf(t, nil,
			&gateway.Config{Upstreams: upstreams, Search: s, Namespace: "always", PageSize: 2000})
		c := l.clientAt(t, "/mcp", mcp.ClientOptions{})
		var list jsonrpc.Raw
		if err := c.Request(t.Context(), spec.MethodToolsList, nil, &list); err != nil {
			t.Fatal(err)
		}
		n = len(list)
		for i := range 3 {
			if s == nil {
				break
			}
			var answer jsonrpc.Raw
			if err := c.Request(t.Context(), spec.MethodToolsCall,
				map[string]any{
					"name":      "search_tools",
					"arguments": map[string]any{"query": fmt.Sprint("thing of number ", i)},
				}, &answer); err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(answer, []byte("many__tool_")) {
				t.Errorf("%s", answer)
			}
			n += len(answer)
		}
		return n
	}
	whole, short := size(nil), size(&gateway.Search{})
	t.Logf("%d bytes in place of %d", short, whole)
	if short*20 > whole {
		t.Errorf("%d bytes in place of %d", short, whole)
	}
}

// TestSearchLimits: a query has a limit, and arguments that are too long to be fitted reach the
// tool as they are. A refused call is answered without a word of what the arguments of the tool
// are.
func TestSearchLimits(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer("a", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "count"}, func(_ context.Context, in struct {
		Text  string `json:"text"`
		Times int    `json:"times"`
	},
	) (string, error) {
		return fmt.Sprint(len(in.Text), " ", in.Times), nil
	})
	l := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{{Name: "a", Server: s}}, Search: &gateway.Search{},
		Namespace: "always",
		Guard: guarded(allow("dev", "server/discover", "tools/list", "tools/call a/*"),
			allow("ops", "server/discover", "tools/list")),
	})
	c := l.enter(t, "/mcp", "dev", "")
	for n, fits := range map[int]bool{400: true, 401: false} {
		if r, err := c.CallTool(t.Context(), "search_tools",
			map[string]any{"query": strings.Repeat("ä", n)}); err != nil || r.IsError == fits {
			t.Errorf("%d characters: %v, %v", n, r, err)
		}
	}
	call := func(c *mcp.Client, size int, times any) (*mcp.ToolResult, error) {
		return c.CallTool(t.Context(), "call_tool",
			map[string]any{
				"name":      "a__count",
				"arguments": map[string]any{"text": strings.Repeat("x", size), "times": times},
			})
	}
	if r, err := call(c, 1<<10, "3"); err != nil || saysOf(r) != "1024 3" {
		t.Errorf("short arguments are not fitted: %v, %v", r, err)
	}
	if r, err := call(c, 256<<10, "3"); err == nil && !r.IsError {
		t.Errorf("long arguments are fitted: %v", r)
	}
	if r, err := call(c, 256<<10, 3); err != nil || saysOf(r) != "262144 3" {
		t.Errorf("long arguments do not reach the tool: %v, %v", r, err)
	}
	if r, err := call(l.enter(t, "/mcp", "ops", ""), 1<<10, "many"); err == nil ||
		strings.Contains(err.Error(), "times") {
		t.Errorf("a refused call: %v, %v", r, err)
	}
}

// TestSearchByArguments: a tool that a policy allows with some arguments only is in no list, and
// call_tool calls it with those as a direct call does. Arguments stay as they are for it, and
// call_tool_read refuses it.
func TestSearchByArguments(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer("a", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "count"}, func(_ context.Context, in struct {
		Text  string `json:"text"`
		Times int    `json:"times"`
	},
	) (string, error) {
		return fmt.Sprint(in.Text, " ", in.Times), nil
	})
	policies := guarded(allow("dev", "server/discover", "tools/list"))
	policies.Cedar = `permit(principal, action, resource == Tool::"a/count") when { ` +
		`context.arguments has text && context.arguments.text == "x" };`
	l := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{{Name: "a", Server: s}}, Search: &gateway.Search{Split: true},
		Namespace: "always", Guard: policies,
	})
	c := l.enter(t, "/mcp", "dev", "")
	if r, err := c.CallTool(t.Context(), "search_tools",
		map[string]any{"query": "count"}); err != nil || strings.Contains(saysOf(r), "a__count") {
		t.Errorf("it is found: %v, %v", r, err)
	}
	for _, call := range []struct {
		tool, text string
		times      any
		works      bool
	}{
		{"call_tool", "x", 3, true},
		{"call_tool", "y", 3, false},
		{"call_tool", "x", "3", false},
		{"call_tool_read", "x", 3, false},
	} {
		r, err := c.CallTool(t.Context(), call.tool,
			map[string]any{
				"name": "a__count", "arguments": map[string]any{"text": call.text, "times": call.times},
			})
		if works := err == nil && saysOf(r) == "x 3"; works != call.works {
			t.Errorf("%v: %v, %v", call, r, err)
		}
	}
}
