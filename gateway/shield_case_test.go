package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// caselessChild is the variable that makes a child of this binary a caselessServer.
const caselessChild = "FARCALL_TEST_CASELESS"

// caselessServer is an MCP server that reads its input with encoding/json, which does not tell case
// apart and takes the last of two members.
func caselessServer() int {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Arguments json.RawMessage }
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		result := "{}"
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"` + legacy +
				`","capabilities":{"tools":{}},"serverInfo":{"name":"caseless","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"read_file","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			var a struct {
				Path string `json:"path"`
				Deep struct {
					Path string `json:"path"`
				} `json:"deep"`
			}
			_ = json.Unmarshal(m.Params.Arguments, &a) // what it cannot read is empty
			text := jsonrpc.AppendString(nil, "reads "+a.Path+a.Deep.Path)
			result = `{"content":[{"type":"text","text":` + string(text) + `}]}`
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	}
	return 0
}

// TestCaselessServer: a policy on arguments holds for a server that does not tell case apart.
func TestCaselessServer(t *testing.T) {
	const policy = `
permit(principal, action == Action::"tools/call", resource == Tool::"files/read_file") when
  { (context.arguments has path && context.arguments.path like "/public/*") || context.arguments has deep };
forbid(principal, action, resource) when { context.arguments has deep.path && context.arguments.deep.path like "/etc/*" };`
	u := &gateway.Upstream{
		Name: "files", Command: []string{os.Args[0]},
		Env: map[string]string{caselessChild: "1", "GORACE": "atexit_sleep_ms=0"},
	}
	l := newLabOf(t, nil,
		&gateway.Config{
			Upstreams: []*gateway.Upstream{u},
			Guard:     &guard.Config{Anonymous: true, Cedar: policy},
		})
	c := l.client(t, mcp.ClientOptions{})
	for arguments, want := range map[string]string{
		`{"path":"/public/a"}`:                                 "reads /public/a",
		`{"deep":{"path":"/home/a"}}`:                          "reads /home/a",
		`{"path":"/etc/shadow"}`:                               "Permission denied",
		`{"path":"/public/a","PATH":"/etc/shadow"}`:            "could be taken for",
		`{"PATH":"/etc/shadow","path":"/public/a"}`:            "could be taken for",
		`{"path":"/public/a","p\u0041th":"/etc/shadow"}`:       "could be taken for",
		`{"deep":{"path":"/home/a","PATH":"/etc/shadow"}}`:     "could be taken for",
		`{"deep":{"Path":"/etc/shadow"}}`:                      "could be taken for",
		`{"deep":{},"DEEP":{"path":"/etc/shadow"}}`:            "could be taken for",
		`{"deep":{},"Deep":{"path":"/etc/shadow"}}`:            "could be taken for",
		`{"path":"/public/a","path":"/etc/shadow"}`:            "second time",
		`{"path":"/public/a","\u0070ath":"/etc/shadow"}`:       "second time",
		`{"path":"/public/a","lists":[{"n":1},{"k":1,"K":2}]}`: "could be taken for",
	} {
		var r jsonrpc.Raw
		var got string
		if err := c.Request(t.Context(), "tools/call",
			jsonrpc.Raw(`{"name":"read_file","arguments":`+arguments+`}`), &r); err != nil {
			got = err.Error()
		} else {
			got = string(r)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s; want %q", arguments, got, want)
		}
	}
}
