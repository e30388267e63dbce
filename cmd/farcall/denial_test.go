package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const denialGuard = `guard:
  keys:
    - {id: ci, hash: "HASH:ci-key", roles: [builder], scopes: [math]}
    - {id: poor, hash: "HASH:poor-key", roles: [builder]}
    - {id: slow, hash: "HASH:slow-key", roles: [builder, slow], scopes: [math]}
    - {id: mallory, hash: "HASH:mallory-key", roles: [builder], scopes: [math]}
  signatures: {id: partner, secret: "0123456789abcdef0123456789abcdef"}
  locks: {principal: mallory}
  resource: {url: "http://127.0.0.1/mcp", scopes: {"*math*add": [math]}}
  allow:
    - builder: ["*math*", initialize, ping, tools/list]
  limits:
    rates: [{roles: [slow], calls: ["*math*"], each: true, limit: 1/day}]
`

// A denial is one thing that a guard refuses; the statuses are those of plain JSON-RPC, of MCP in
// sessions, and of MCP without: what the tables of guard and of mcphttp say, on every path.
type denial struct {
	name, key, method, tool string
	params                  string // of more than the name and arguments
	repeat                  bool   // the second is denied
	plain, legacy, modern   int
}

var denials = []denial{
	{
		name: "no credentials", tool: "math_add", method: "math/add", plain: 401, legacy: 401,
		modern: 401,
	},
	{
		name: "wrong key", key: "no-key", tool: "math_add", method: "math/add", plain: 401, legacy: 401,
		modern: 401,
	},
	{
		name: "locked", key: "mallory-key", tool: "math_add", method: "math/add", plain: 401, legacy: 401,
		modern: 401,
	},
	{
		name: "no rule", key: "ci-key", tool: "demo_form", method: "text/upper", plain: 200, legacy: 200,
		modern: 403,
	},
	{
		name: "scope", key: "poor-key", tool: "math_add", method: "math/add", plain: 403, legacy: 403,
		modern: 403,
	},
	{
		name: "rate", key: "slow-key", tool: "math_add", method: "math/add", repeat: true, plain: 200,
		legacy: 200, modern: 429,
	},
	{
		name: "params", key: "ci-key", tool: "math_add", method: "math/add", params: `"__proto__":1,`,
		plain: 200, legacy: 200, modern: 400,
	},
	{
		name: "signature", key: "ci-key", tool: "math_add", method: "math/add",
		params: `"_meta":{"farcall.dev/signature":{"keyid":"partner"}},`, plain: 200, legacy: 200,
		modern: 401,
	},
}

// The same denial has the same status on every path, of the playground and of a gateway.
func TestDenialStatuses(t *testing.T) {
	dir := t.TempDir()
	text := denialGuard
	for _, key := range []string{"ci-key", "poor-key", "slow-key", "mallory-key"} {
		text = strings.ReplaceAll(text, "HASH:"+key, hashOf([]byte(key)))
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	upstream := fmt.Sprintf("{command: [env, %s=1, GORACE=%s, %s, serve, --stdio, --log, \"off\"]",
		execVar, noLinger, program)
	for name, text := range map[string]string{
		"guard.yaml": text,
		"farcall.yaml": text + "upstreams:\n  play: " + upstream + "}\n  raw: " + upstream +
			", profile: raw}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []struct {
		name  string
		args  []string
		paths map[string]string // path: dialect
	}{
		{
			"playground",
			[]string{"--guard", filepath.Join(dir, "guard.yaml")},
			map[string]string{"/rpc": "plain", "/mcp": "mcp"},
		},
		{
			"gateway",
			[]string{"--config", filepath.Join(dir, "farcall.yaml")},
			map[string]string{"/mcp": "mcp", "/mcp/play": "mcp", "/rpc/raw": "plain"},
		},
	} {
		url := serve(t, append(at.args, "--listen", "127.0.0.1:0", "--log", "off")...).addrs[0]
		for path, dialect := range at.paths {
			for _, d := range denials {
				if dialect == "plain" {
					t.Run(at.name+path+"/"+d.name, func(t *testing.T) { d.plainTo(t, url+path) })
					continue
				}
				t.Run(at.name+path+"/legacy "+d.name, func(t *testing.T) { d.legacyTo(t, url+path) })
				t.Run(at.name+path+"/modern "+d.name, func(t *testing.T) { d.modernTo(t, url+path) })
			}
		}
	}
}

func (d *denial) plainTo(t *testing.T, url string) {
	body := `{"jsonrpc":"2.0","id":1,"method":"` + d.method + `","params":{` + d.params +
		`"a":1,"b":2,"text":"x"}}`
	d.expect(t, url, body, nil, d.plain)
}

func (d *denial) legacyTo(t *testing.T, url string) {
	header := http.Header{"Mcp-Session-Id": {"none"}}
	if d.legacy == http.StatusOK || d.name == "scope" {
		_, _, got := d.send(t, url,
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",`+
				`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, nil)
		header.Set("Mcp-Session-Id", got.Get("Mcp-Session-Id"))
		d.send(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, header)
	}
	header.Set("Mcp-Protocol-Version", "2025-06-18")
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + d.params + `"name":"` +
		d.tool + `","arguments":{"a":1,"b":2}}}`
	d.expect(t, url, body, header, d.legacy)
}

func (d *denial) modernTo(t *testing.T, url string) {
	meta := `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}`
	params := strings.Replace(d.params, `"_meta":{`, `"_meta":{`+meta+`,`, 1)
	if params == d.params {
		params += `"_meta":{` + meta + `},`
	}
	header := http.Header{
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"},
		"Mcp-Name": {d.tool},
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + params + `"name":"` + d.tool +
		`","arguments":{"a":1,"b":2}}}`
	d.expect(t, url, body, header, d.modern)
}

func (d *denial) expect(t *testing.T, url, body string, header http.Header, status int) {
	t.Helper()
	if d.repeat {
		d.send(t, url, body, header)
	}
	got, answer, _ := d.send(t, url, body, header)
	if got != status || !bytes.Contains(answer, []byte(`"error":`)) {
		t.Errorf("%d %s; want %d", got, answer, status)
	}
}

func (d *denial) send(
	t *testing.T, url, body string, header http.Header,
) (status int, answer []byte, got http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header.Clone()
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if d.key != "" {
		r.Header.Set("Authorization", "Bearer "+d.key)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer, resp.Header
}
