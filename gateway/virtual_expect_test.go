package gateway_test

import (
	"context"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
)

// TestVirtualExpects: what a configuration names and an upstream does not have any more is missing,
// and the log has its name; so it has patterns that match nothing. What comes back is there.
func TestVirtualExpects(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer("s", "1", nil)
	add := func(name string) {
		mcp.AddTool(s, mcp.Tool{Name: name}, func(context.Context, struct{}) (string, error) {
			return name, nil
		})
	}
	add("read")
	add("write")
	add("drop")
	l := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{
			{Name: "s", Server: s, Tools: gateway.Filter{Deny: []string{"drop"}}},
			{Name: "o", Server: officeServers()[0].Server},
		},
		Endpoints: []*gateway.Endpoint{{
			Name: "own", Tools: []string{"s/read", "s/write", "s/find_*", "*/list"}, Prompts: []string{},
			Overrides: map[string]mcp.Transform{"s/write": {Name: "put"}},
		}},
	})
	missing := func(path string) string {
		t.Helper()
		_, missing := toolsOf(t, l.clientAt(t, path, mcp.ClientOptions{}))
		return strings.Join(missing, ", ")
	}
	if got := missing("/mcp/own"); got != "" {
		t.Errorf("nothing is missing, and the list has %s", got)
	}
	const note = " is in the configuration, and nothing has this name"
	if !strings.Contains(l.log.String(), `find_*\"`+note) {
		t.Errorf("the log has no pattern that matches nothing")
	}
	s.RemoveTool("write")
	s.RemoveTool("drop")
	until(t, "the tool is missing", func() bool { return missing("/mcp/own") == "s partial" })
	until(t, "the tool that was denied is in the log", func() bool {
		if got := missing("/mcp/s"); got != "" {
			t.Fatalf("a tool that is denied is missing: %s", got)
		}
		return strings.Contains(l.log.String(), `drop\"`+note)
	})
	if !strings.Contains(l.log.String(), `write\"`+note) {
		t.Error("the log does not name the tool that is missing")
	}
	if strings.Contains(l.log.String(), `list\"`+note) {
		t.Error("the log has a pattern of all upstreams that one of them matches")
	}
	add("write")
	until(t, "it is back", func() bool { return missing("/mcp/own") == "" })
}
