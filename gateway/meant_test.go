package gateway_test

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// TestMeant: the error for a mistyped name names the tool that is nearest, of those that the caller
// may call: a hidden one is as one that is not there.
func TestMeant(t *testing.T) {
	t.Parallel()
	c := &gateway.Config{
		Namespace: "always", Upstreams: officeServers(),
		Endpoints: []*gateway.Endpoint{searching()},
	}
	c.Guard = guarded(guard.Rule{Roles: []string{"dev"}, Calls: []string{"**"}}, guard.Rule{
		Roles: []string{"ops"},
		Calls: []string{"tools/call tracker/*", "tools/call *__*", "tools/call ????", "tools/list"},
	})
	l := newLabOf(t, nil, c)
	for _, test := range []struct{ path, id, tool, args, want string }{
		{"/mcp", "dev", "files__creat", "", "Unknown tool: files__creat; did you mean files__create?"},
		{"/mcp", "ops", "files__creat", "", "Unknown tool: files__creat"},
		{
			"/mcp", "ops", "trakcer__create", "",
			"Unknown tool: trakcer__create; did you mean tracker__create?",
		},
		{"/mcp", "dev", "raed", "", "Unknown tool: raed; did you mean files__read?"},
		{"/mcp", "ops", "reed", "", "Unknown tool: reed; did you mean tracker__read?"},
		{"/mcp", "dev", "something_else", "", "Unknown tool: something_else"},
		{"/mcp", "dev", strings.Repeat("read", 30), "", "Unknown tool: " + strings.Repeat("read", 30)},
		{
			"/mcp/team-a", "dev", "call_tool", `{"name":"tracker__file_bgu"}`,
			"Unknown tool: tracker__file_bgu; did you mean tracker__file_bug? search_tools finds others",
		},
		{
			"/mcp/team-a", "dev", "tracker__file_bgu", "",
			"Unknown tool: tracker__file_bgu; did you mean tracker__file_bug?",
		},
		// it was not chosen
		{"/mcp/team-a", "dev", "tracker__delete", "", "Unknown tool: tracker__delete"},
	} {
		for _, era := range []string{"legacy", "modern"} {
			_, err := l.enter(t, test.path, test.id, era).CallTool(t.Context(), test.tool,
				jsonrpc.Raw(test.args))
			if err == nil || !strings.HasSuffix(err.Error(), test.want+" (code -32602)") {
				t.Errorf("%s: %s as %s: %s %s: %v", era, test.path, test.id, test.tool, test.args, err)
			}
		}
	}
}
