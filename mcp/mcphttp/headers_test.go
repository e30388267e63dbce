package mcphttp

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestHeaderValue(t *testing.T) {
	for _, test := range []struct{ value, header string }{
		// The examples of the specification.
		{"us-west1", "us-west1"},
		{"Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="},
		{" padded ", "=?base64?IHBhZGRlZCA=?="},
		{"line1\nline2", "=?base64?bGluZTEKbGluZTI=?="},
		{"=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
		// Others.
		{"", ""},
		{"a\tb c", "a\tb c"},
		{"\x7f", "=?base64?fw==?="},
		{"=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="},
		{"=?base64?SGVsbG8=", "=?base64?SGVsbG8="},
	} {
		if got := encodeHeaderValue(test.value); got != test.header {
			t.Errorf("encode %q: %q, want %q", test.value, got, test.header)
		}
		if got, ok := decodeHeaderValue(test.header); !ok || got != test.value {
			t.Errorf("decode %q: %q %v, want %q", test.header, got, ok, test.value)
		}
	}
	for _, bad := range []string{"=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?SGVsbG9=?=", "=?base64?/w==?=", "a\x00", "\xff", "é", "=?base64?SGVs\nbG8=?="} {
		if got, ok := decodeHeaderValue(bad); ok {
			t.Errorf("decode %q: %q", bad, got)
		}
	}
	if got, ok := decodeHeaderValue("=?BASE64?SGVsbG8=?="); !ok || got != "=?BASE64?SGVsbG8=?=" {
		t.Errorf("the marker is case-sensitive: %q %v", got, ok)
	}
}

func FuzzHeaderValue(f *testing.F) {
	f.Add("a")
	f.Add("=?base64?SGVsbG8=?=")
	f.Add(" ż\x00")
	f.Fuzz(func(t *testing.T, s string) {
		if decoded, ok := decodeHeaderValue(s); ok && strings.HasPrefix(s, base64Begin) && decoded != s && encodeHeaderValue(decoded) != s && !isHeaderText(decoded) {
			t.Errorf("%q decodes to %q, which encodes to %q", s, decoded, encodeHeaderValue(decoded))
		}
		if !utf8.ValidString(s) {
			return
		}
		header := encodeHeaderValue(s)
		if got, ok := decodeHeaderValue(header); !ok || got != s || !isHeaderText(header) || strings.TrimSpace(header) != header {
			t.Errorf("%q is written %q and read %q %v", s, header, got, ok)
		}
	})
}

func TestCheckHeaders(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for _, test := range []struct {
		method, params string
		headers        []string // name, value, …
		want           string   // of the error; "" is none
	}{
		{"tools/list", `{` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, ""},
		{"tools/list", `{` + meta + `}`, []string{"Mcp-Method", "tools/list"}, "MCP-Protocol-Version is missing"},
		{"tools/list", `{` + meta + `}`, []string{"Mcp-Protocol-Version", "2025-11-25", "Mcp-Method", "tools/list"}, "the body has"},
		{"tools/list", `{` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Protocol-Version", "2026-07-28"}, "malformed"},
		{"tools/list", `{` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28"}, "Mcp-Method is missing"},
		{"tools/list", `{` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "TOOLS/LIST"}, "Mcp-Method is"},
		{"tools/call", `{"name":"a",` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "a"}, ""},
		{"tools/call", `{"name":"a",` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "=?base64?YQ==?="}, ""},
		{"tools/call", `{"name":"\u0061",` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "a"}, ""},
		{"tools/call", `{"name":"a",` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "b"}, "Mcp-Name is"},
		{"tools/call", `{"name":"a",` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "=?base64?YQ?="}, "malformed"},
		{"tools/call", `{"name":"a",` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call"}, "Mcp-Name is missing"},
		{"tools/call", `{` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call"}, ""}, // the backend's
		{"tools/call", `{` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "a"}, "Mcp-Name is"},
		{"resources/read", `{"uri":"x:/ż",` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "resources/read", "Mcp-Name", "=?base64?eDovxbw=?="}, ""},
		{"tasks/get", `{"taskId":"7",` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tasks/get", "Mcp-Name", "8"}, "Mcp-Name is"},
		{"prompts/get", `{"name":"p",` + meta + `}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "prompts/get", "Mcp-Name", "p"}, ""},
		{"server/discover", `{}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "server/discover"}, ""}, // the backend's
		{"server/discover", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"v999"}}`, []string{"Mcp-Protocol-Version", "v999"}, ""},
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
		case e != nil && (test.want == "" || !strings.Contains(e.Message, test.want) || e.Code != spec.HeaderMismatch):
			t.Errorf("%s %v: %v, want %q", test.method, test.headers, e, test.want)
		}
	}
}
