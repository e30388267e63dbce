package gateway_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
)

// TestSurvey: what of a configuration has no effect is found, and nothing else is; what is about a
// server that is not there cannot be known.
func TestSurvey(t *testing.T) {
	t.Parallel()
	upstreams := officeServers()
	upstreams[0].Tools = gateway.Filter{
		Allow: []string{"re*", "list", "create", "gone_*"},
		Deny:  []string{"delete"}, Rename: map[string]string{"reed": "look"},
	}
	upstreams[0].Resources = gateway.Filter{Allow: []string{"files:*", "http:*"}}
	upstreams = append(upstreams,
		&gateway.Upstream{
			Name: "dead", Command: []string{"/nonexistent/program"},
			Tools: gateway.Filter{Deny: []string{"x"}},
		})
	fixed := func(name string) mcp.Transform {
		return mcp.Transform{Arguments: map[string]mcp.Argument{name: {Fixed: "x"}}}
	}
	l := newLabOf(t, nil, &gateway.Config{Upstreams: upstreams, Endpoints: []*gateway.Endpoint{
		{
			Name: "a", Tools: []string{"files/read", "files/wread", "*/none*", "dead/x"},
			Deny: []string{"tracker/delete"}, Resources: []string{"tracker/x:*"},
			Overrides: map[string]mcp.Transform{
				"tracker/create": fixed("owner"),
				"files/create":   fixed("colour"), "dead/x": fixed("y"), "tracker/make": fixed("owner"),
			},
		},
		{Name: "b", Tools: []string{"tracker/*"}},
		{Name: "c", Search: &gateway.Search{Always: []string{"files/read"}, Split: true}},
		{Name: "d", Tools: []string{"tracker/*"}, Search: &gateway.Search{Mode: "auto"}},
	}})
	servers, findings := l.Survey(t.Context())
	if len(servers) != 3 || servers[0].Tools != 4 || servers[1].Server != "tracker 1" ||
		servers[1].Bytes == 0 || servers[1].Resources != 1 || servers[0].Err != nil ||
		servers[1].Err != nil || servers[2].Err == nil {
		t.Errorf("%+v", servers)
	}
	want := map[string]string{
		"upstreams.files.tools.allow[3]":     `"gone_*" matches none of the 4 tools of files`,
		"upstreams.files.tools.rename.reed":  `files has no "reed" among its 4 tools`,
		"upstreams.files.resources.allow[1]": `"http:*" matches none of the 1 resources of files`,
		"endpoints.a.tools[1]":               `files has no "wread" among its 4 tools`,
		"endpoints.a.resources[0]":           `"x:*" matches none of the 1 resources of tracker`,
		"endpoints.a.overrides.files/create": `it does not fit the tool, which is left out: there is ` +
			`no argument "colour"`,
		"endpoints.a.overrides.tracker/make": `tracker has no "make" among its 4 tools`,
	}
	for _, p := range findings {
		if text, ok := want[p.Path]; !ok || !strings.HasPrefix(p.Message, text) || p.Hint == "" {
			t.Errorf("%s: %s; %s", p.Path, p.Message, p.Hint)
		}
		delete(want, p.Path)
	}
	for path := range want {
		t.Errorf("%s was not found", path)
	}
	lists, err := l.ToolLists(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]gateway.Survey{}
	for _, list := range lists {
		got[list.Path] = list
		if list.Bytes < 50*list.Tools || list.Of == 0 && list.Bytes > 500*list.Tools {
			t.Errorf("%+v", list)
		}
	}
	for path, want := range map[string]gateway.Survey{
		"/mcp": {Tools: 7, Missing: []string{"dead"}}, "/mcp/files": {Tools: 3},
		"/mcp/tracker": {Tools: 4}, "/mcp/dead": {Missing: []string{"dead"}},
		"/mcp/a": {Tools: 1, Missing: []string{"dead"}}, "/mcp/b": {Tools: 4},
		"/mcp/c": {Tools: 4, Of: 7, Missing: []string{"dead"}}, "/mcp/d": {Tools: 4},
	} {
		if l := got[path]; l.Path != path || l.Tools != want.Tools || l.Of != want.Of ||
			!slices.Equal(l.Missing, want.Missing) {
			t.Errorf("%+v; want %+v", l, want)
		}
	}
}
