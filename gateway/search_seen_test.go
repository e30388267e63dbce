package gateway_test

import (
	"slices"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
)

// TestSearchSeen: what a search finds follows the rules, for each principal, also when they change
// and when they look at what is not remembered.
func TestSearchSeen(t *testing.T) {
	t.Parallel()
	upstreams := officeServers()
	config := func(cedar string, calls ...string) *gateway.Config {
		c := &gateway.Config{Namespace: "always", Search: &gateway.Search{}, Upstreams: upstreams}
		c.Guard = guarded(allow("dev",
			append(calls, "tools/call search_tools", "server/*", "tools/list")...), allow("ops", "**"))
		c.Guard.Cedar = cedar
		return c
	}
	l := newLabOf(t, nil, config("", "tools/call files/*"))
	for _, step := range []struct {
		cedar, calls   string
		files, tracker bool
	}{
		{"", "tools/call files/*", true, false},
		{"", "tools/call tracker/*", false, true},
		{
			`forbid(principal, action, resource) when { context.time < datetime("2000-01-01") };`,
			"tools/call files/*", true, false,
		},
		{"", "tools/call **", true, true},
	} {
		if err := l.Reload(config(step.cedar, step.calls)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			dev := found(t, l.enter(t, "/mcp", "dev", "modern"), "create an issue")
			if slices.Contains(dev, "files__create") != step.files ||
				slices.Contains(dev, "tracker__create") != step.tracker {
				t.Errorf("%+v: dev finds %v", step, dev)
			}
			ops := found(t, l.enter(t, "/mcp", "ops", "modern"), "create an issue")
			if !slices.Contains(ops, "files__create") || !slices.Contains(ops, "tracker__create") {
				t.Errorf("%+v: ops finds %v", step, ops)
			}
		}
	}
}
