package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files of desktop clients load as they are.
func TestDesktopFiles(t *testing.T) {
	t.Setenv("CONFIG_TEST_A", "from env")
	here, err := filepath.Abs("testdata/config")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"claude.json": `filesystem ["npx" "-y" "@modelcontextprotocol/server-filesystem" "/tmp"] "" "" map[] map[] 0s [] [] false
Brave-Search ["docker" "run" "-i" "--rm" "-e" "BRAVE_API_KEY" "mcp/brave-search"] "" "" map[BRAVE_API_KEY:abc] map[] 0s [] [] false
2:3: globalShortcut: is not about servers and is ignored
8:5: mcpServers.Brave Search: is "Brave-Search" here: a name has letters, digits, - and _
`,
		"vscode.json": `Fetch ["uvx" "mcp-server-fetch" "` + here + `"] "" "" map[] map[] 0s [] [] false
github [] "https://api.example.com/mcp" "streamable" map[] map[] 0s [] [] false
5:100: servers.Fetch.dev: is ignored: restarting on changes is for the editor
`,
		"cursor.json": `local ["python" "` +
			here + `/s.py"] "" "" map[A:from env B:two words] map[] 0s [] [] false
remote [] "http://localhost:3000/mcp" "" map[] map[API_KEY:value] 0s [] [] false
4:85: mcpServers.remote.auth: is ignored: put a token into headers
`,
		"cline.json": `a ["node" "s.js"] "" "" map[] map[] 1m0s [] ["rm"] false
b [] "https://b.example.com" "streamable" map[] map[Authorization:] 0s [] [] true
c [] "https://c.example.com/sse" "sse" map[] map[] 30s [] [] false
3:48: mcpServers.a.alwaysAllow: is ignored: a client asks its user for leave, not a gateway
3:70: mcpServers.a.autoApprove: is ignored: a client asks its user for leave, not a gateway
3:119: mcpServers.a.timeout: is taken for 1m0s: up to 3600 for seconds, more for milliseconds
3:123: mcpServers.a.watchPaths: is ignored: restarting on changes is for the editor
5:82: mcpServers.c.timeout: is taken for 30s: up to 3600 for seconds, more for milliseconds
`,
		"others.json": `windsurf [] "https://w.example.com/mcp" "" map[] map[] 0s [] [] false
gemini [] "https://g.example.com/mcp" "" map[] map[] 0s ["a"] ["b"] false
copilot ["x"] "" "" map[] map[] 0s ["*"] [] false
new ["x"] "" "" map[] map[] 0s [] [] false
4:56: mcpServers.gemini.trust: is ignored: a client asks its user for leave, not a gateway
6:29: mcpServers.new.someFutureKey: is not known and is ignored
`,
	} {
		c, err := Load(filepath.Join("testdata", "config", file))
		if err != nil {
			t.Error(err)
			continue
		}
		var b strings.Builder
		for _, u := range c.Upstreams {
			fmt.Fprintf(&b, "%s %q %q %q %v %v %v %q %q %v\n", u.Name, u.Command, u.URL, u.Transport, u.Env,
				u.Headers, u.Timeout, u.Tools.Allow, u.Tools.Deny, u.Disabled)
		}
		for _, n := range c.Notices() {
			b.WriteString(n.String() + "\n")
		}
		if b.String() != want {
			t.Errorf("%s:\n%s\nwant\n%s", file, b.String(), want)
		}
	}
}

func TestDesktopProblems(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.env"), []byte("A=1\nexport  \ns3cr3t\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"mcpServers": {"a": {"command": "x", "env": {"T": ` +
			`"${input:gh-token}"}}}}`: "mcpServers.a.env.T: the editor asks its user for " +
			"${input:gh-token}, and farcall cannot; set GH_TOKEN in the environment and write ${GH_TOKEN}",
		`{"mcpServers": {"a": ` +
			`{"comand": "x"}}}`: `mcpServers.a.comand: there is no key "comand" here; did you mean command?`,
		`{"mcpServers": {"a": {}}}`: "mcpServers.a: " +
			"it has neither a command nor a url",
		`{"mcpServers": {"a": "x"}}`: "mcpServers.a: a " +
			"map with command or url is wanted, and this is one value",
		`{"mcpServers": {}}`: "there are no upstreams",
		`{"mcpServers": {"a b": {"command": "x"}, "A.b": {"command": "x"}}}`: `mcpServers.A.b: ` +
			`its name here, "A-b", is also that of "a b"`,
		`{"mcpServers": {"...": {"command": "x"}}}`: "mcpServers....: " +
			"it has no name",
		`{"mcpServers": {"a": {"type": "sse", ` +
			`"command": "x"}}}`: "mcpServers.a.type: it is to have a url, and there is only a command",
		`{"mcpServers": {"a": {"type": "stdio", "url": "http://x"}}}`: "mcpServers.a.type: it is to be " +
			"a command, and there is only a url",
		`{"mcpServers": {"a": {"type": "grpc", "url": "http://x"}}}`: "mcpServers.a.type: there is no " +
			"such type; use stdio, http, sse or ws",
		`{"mcpServers": {"a": {"command": "x", ` +
			`"timeout": "1m"}}}`: `mcpServers.a.timeout: "1m" is not a time`,
		`{"mcpServers": {"a": {"command": "x", "envFile": ` +
			`"none.env"}}}`: "mcpServers.a.envFile: cannot read the file: no such file or directory",
		`{"mcpServers": {"a": {"command": "x", "envFile": ` +
			`"bad.env"}}}`: "mcpServers.a.envFile: line 2 of the file is not NAME=VALUE",
		`{"mcpServers": {"a": {"command": "x", "oauth": {"a": ` +
			`1, "a": 2}}}}`: "mcpServers.a.oauth.a: the key is given twice",
	} {
		_, problems := parse(t, filepath.Join(dir, "f.json"), text)
		if !strings.Contains(problems, ": "+want) || strings.Contains(problems, "s3cr3t") {
			t.Errorf("%s\n\t%s\n\t%s", text, problems, want)
		}
	}
}

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"github": "github", "My  Files": "My-Files", "@mcp/x.y": "mcp-x-y", "a__b": "a_-b", "_x_": "x",
		"é": "", strings.Repeat("a", 100): strings.Repeat("a", 64),
	} {
		if got := slug(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
