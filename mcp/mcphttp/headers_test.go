package mcphttp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestCheckHeaders(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	for _, test := range []struct {
		method, params string
		headers        []string // name, value, …
		want           string   // of the error; "" is none
	}{
		{
			"tools/list", `{` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"},
			"",
		},
		{
			"tools/list", `{` + meta + `}`,
			[]string{"Mcp-Method", "tools/list"},
			"MCP-Protocol-Version is missing",
		},
		{
			"tools/list", `{` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2025-11-25", "Mcp-Method", "tools/list"},
			"the body has",
		},
		{
			"tools/list", `{` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Protocol-Version", "2026-07-28"},
			"malformed",
		},
		{
			"tools/list", `{` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28"},
			"Mcp-Method is missing",
		},
		{
			"tools/list", `{` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "TOOLS/LIST"},
			"Mcp-Method is",
		},
		{
			"tools/call", `{"name":"a",` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "a"},
			"",
		},
		{
			"tools/call", `{"name":"a",` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "=?base64?YQ==?="},
			"",
		},
		{
			"tools/call", `{"name":"\u0061",` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "a"},
			"",
		},
		{
			"tools/call", `{"name":"a",` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "b"},
			"Mcp-Name is",
		},
		{
			"tools/call", `{"name":"a",` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "=?base64?YQ?="},
			"malformed",
		},
		{
			"tools/call", `{"name":"a",` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call"},
			"Mcp-Name is missing",
		},
		// the backend's
		{
			"tools/call", `{` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call"},
			"",
		},
		{
			"tools/call", `{` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "a"},
			"Mcp-Name is",
		},
		{
			"resources/read", `{"uri":"x:/ż",` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "resources/read", "Mcp-Name", "=?base64?eDovxbw=?="},
			"",
		},
		{
			"tasks/get", `{"taskId":"7",` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tasks/get", "Mcp-Name", "8"},
			"Mcp-Name is",
		},
		{
			"tasks/get", `{"taskId":"7","taskId":"8",` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tasks/get", "Mcp-Name", "8"},
			"more than one",
		},
		{
			"tools/list", `{` + meta + `,` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"},
			"more than one",
		},
		{
			"prompts/get", `{"name":"p",` + meta + `}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "prompts/get", "Mcp-Name", "p"},
			"",
		},
		// the backend's
		{
			"server/discover", `{}`,
			[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "server/discover"},
			"",
		},
		{
			"server/discover", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"v999"}}`,
			[]string{"Mcp-Protocol-Version", "v999"},
			"",
		},
	} {
		h := http.Header{}
		for i := 0; i < len(test.headers); i += 2 {
			h.Add(test.headers[i], test.headers[i+1])
		}
		m := readMirrored(jsonrpc.Raw(test.params), nameParam(test.method))
		e := checkHeaders(h, test.method, &m)
		switch {
		case e == nil && test.want != "":
			t.Errorf("%s %v: accepted", test.method, test.headers)
		case e != nil &&
			(test.want == "" || !strings.Contains(e.Message, test.want) || e.Code != spec.HeaderMismatch):
			t.Errorf("%s %v: %v, want %q", test.method, test.headers, e, test.want)
		}
	}
}
