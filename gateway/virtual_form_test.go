package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// TestVirtualFromCaller: a tool gets arguments of who calls, in every revision and by call_tool,
// and nothing that the caller writes takes their place; annotations are as the endpoint says.
func TestVirtualFromCaller(t *testing.T) {
	t.Parallel()
	c, err := gateway.Parse("f.yaml", []byte(`
upstreams: {files: {command: a}, tracker: {command: b}}
guard: {anonymous: true}
endpoints:
  own:
    tools: [tracker/create]
    overrides:
      tracker/create:
        annotations: {readOnlyHint: true, destructiveHint: false}
        trust: true
        args: {owner: {from: principal.id}, repo: {from: header.X-Team}, body: {rename: owner}}
  searched: {tools: [tracker/create], search: {always: [tracker/*]}, overrides: {tracker/create: {args: {owner: {from: principal.id}}}}}
  claims: {tools: [tracker/create], overrides: {tracker/create: {args: {owner: {from: principal.claims.email}}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	c.Upstreams = officeServers()
	c.Guard = guarded(guard.Rule{Calls: []string{"**"}})
	c.Guard.Anonymous = true
	l := newLabOf(t, nil, c)
	dial := func(path, id, team, era string) *mcp.Client {
		h := http.Header{}
		for name, value := range map[string]string{"X-Api-Key": keyed(id), "X-Team": team} {
			if value != "" && id != "" {
				h.Set(name, value)
			}
		}
		return l.clientAt(t, path, mcp.ClientOptions{Era: era, HTTP: &mcphttp.DialOptions{Header: h}})
	}
	call := func(c *mcp.Client, tool, args string) string {
		r, err := c.CallTool(t.Context(), tool, jsonrpc.Raw(args))
		if err != nil {
			return "error: " + err.Error()
		}
		return saysOf(r)
	}
	for _, era := range []string{"legacy", "modern"} {
		for _, test := range []struct{ path, id, team, tool, args, want string }{
			// the body is shown as owner
			{"own", "dev", "red", "tracker__create", `{"owner":"it fails"}`, "tracker dev/red: it fails"},
			{"own", "ops", "blue", "tracker__create", `{"owner":"x"}`, "tracker ops/blue: x"},
			{
				"own", "dev", "red", "tracker__create", `{"owner":"x","repo":"y"}`,
				`error: .*there is no argument "repo"`,
			},
			{
				"own", "dev", "", "tracker__create", `{"owner":"x"}`,
				`error: .*the argument "repo" comes from header.X-Team: the request has no such header`,
			},
			{
				"own", "", "", "tracker__create", `{"owner":"x"}`,
				`error: .*the argument "owner" comes from principal.id: the caller has not shown who it is`,
			},
			{
				"claims", "dev", "", "tracker__create", `{"body":"x"}`,
				`error: .*the caller has no such claim`,
			},
			{
				"searched", "dev", "", "call_tool", `{"name":"tracker__create","arguments":{"body":"x"}}`,
				"tracker dev/: x",
			},
			{"searched", "dev", "", "tracker__create", `{"body":"x"}`, "tracker dev/: x"},
			{
				"searched", "dev", "", "call_tool",
				`{"name":"tracker__create","arguments":{"body":"x","owner":"ops"}}`,
				`error: .*unknown property "owner"; allowed: repo, body`,
			},
		} {
			got := call(dial("/mcp/"+test.path, test.id, test.team, era), test.tool, test.args)
			want, failed := strings.CutPrefix(test.want, "error: .*")
			if !failed && got != want || failed && !strings.Contains(got, want) {
				t.Errorf("%s: %s as %q of %q: %s %s\n got %s\nwant %s", era, test.path, test.id, test.team,
					test.tool, test.args, got, test.want)
			}
		}
	}
	tools, err := dial("/mcp/own", "dev", "red", "").Tools(t.Context())
	if err != nil || len(tools) != 1 {
		t.Fatal(tools, err)
	}
	a, schema := tools[0].Annotations, string(tools[0].InputSchema)
	if a == nil || !a.ReadOnlyHint || a.DestructiveHint == nil || *a.DestructiveHint ||
		strings.Contains(schema, "repo") || !strings.Contains(schema, `"required":["owner"]`) {
		t.Errorf("%+v, %s", a, schema)
	}
}
