package gateway

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/race"
)

// The files of Codex, Zed, opencode and VS Code's settings load as they are.
func TestFormats(t *testing.T) {
	t.Setenv("CONFIG_TEST_A", "from env")
	here, err := filepath.Abs("testdata/config")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"codex.toml": `files ["npx" "-y" "@modelcontextprotocol/server-filesystem" "/tmp"] "" map[A:b] [HOME] map[] 1m30s 20.5s [read_file] false
my-docs [] "https://docs.example.com/mcp" map[] [] map[Authorization:Bearer from env X-Team:a X-User:from env] 0s 0s [] true
13:14: mcp_servers.my docs: is "my-docs" here: a name has letters, digits, - and _
17:48: mcp_servers.my docs.env_http_headers.X-None: is left out: the environment has no CONFIG_TEST_UNSET
19:1: mcp_servers.my docs.default_tools_approval_mode: is ignored: a client asks its user for leave, not a gateway
`,
		"zed.json": `old ["node" "s.js"] "" map[A:b] [] map[] 0s 0s [] false
new ["uv" "run" "x"] "" map[] [] map[] 0s 0s [] false
far [] "https://z.example.com/mcp" map[] [] map[X-Team:a] 0s 0s [] true
`,
		"opencode.json": `local ["bun" "x" "from env"] "" map[A:a from env] [] map[] 0s 0s [] false
far [] "https://o.example.com/mcp" map[] [] map[X-Team:a] 0s 0s [] false
`,
	} {
		c, err := Load(filepath.Join("testdata", "config", file))
		if err != nil {
			t.Error(err)
			continue
		}
		var b strings.Builder
		for _, u := range c.Upstreams {
			fmt.Fprintf(&b, "%s %q %q %v %v %v %v %v %v %v\n", u.Name, u.Command, u.URL, u.Env, u.InheritEnv,
				u.Headers, u.Timeout, u.StartTimeout, u.Tools.Allow, u.Disabled)
		}
		for _, n := range c.Notices() {
			b.WriteString(n.String() + "\n")
		}
		if b.String() != want {
			t.Errorf("%s:\n%s\nwant\n%s", file, b.String(), want)
		}
	}
	_, err = Load(filepath.Join("testdata", "config", "settings.json"))
	if err == nil ||
		!strings.Contains(err.Error(),
			`settings.json:1:115: mcp.servers.one.comand: there is no key "comand" here; did you `+
				`mean command?`) {
		t.Errorf("%v in %s", err, here)
	}
}

func TestTOMLProblems(t *testing.T) {
	for text, want := range map[string]string{
		"[mcp_servers.a]\ncommand = \"x\"\ncommand = \"s3cr3t\"\n": "f.toml:3:1: this is not TOML",
		"[mcp_servers.a\n": "f.toml:1:",
		"[mcp_servers.a]\ncomand = \"x\"\n": `f.toml:2:1: mcp_servers.a.comand: there is no key ` +
			`"comand" here; did you mean command?`,
		"[mcp_servers.a]\ncommand = \"x\"\ntool_timeout_sec = \"long\"\n": "f.toml:3:20: " +
			"mcp_servers.a.tool_timeout_sec: it is not a number of seconds",
		"[mcp_servers.a]\nurl = \"http://x\"\nbearer_token_env_var = \"NOT1\"\n": "f.toml:3:24: " +
			"mcp_servers.a.bearer_token_env_var: the environment has no NOT1",
		"model = \"x\"\n": "f.toml:1:1: there are no upstreams",
		"a = " + strings.Repeat("[", 40) + strings.Repeat("]", 40): "nested more than",
		"": "there are no upstreams",
	} {
		_, problems := parse(t, "f.toml", text)
		if !strings.Contains(problems, want) || strings.Contains(problems, "s3cr3t") {
			t.Errorf("%s\n\t%s\n\t%s", text, problems, want)
		}
	}
}

// Whatever is a TOML document for the library is one map here, with places that are in the file.
func TestTOMLPlaces(t *testing.T) {
	t.Parallel()
	text := "a.b.c = 1\n[t]\nx = [ # none\n 1, {y = 2}]\n[[l]]\nn = 'é' \n[[l]]\n[l.m]\n" +
		"k = 2020-01-01\n[t.u]\n"
	n, err := readTOML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]spot{
		"a": {1, 1}, "a.b": {1, 3}, "t": {2, 2}, "t.x": {3, 1},
		"l": {5, 3}, "t.u": {10, 4},
	} {
		at := n
		for key := range strings.SplitSeq(path, ".") {
			if at = at.get(key); at == nil {
				t.Fatalf("there is no %s", path)
			}
		}
		if at.at != want {
			t.Errorf("%s is at %v, want %v", path, at.at, want)
		}
	}
	if l := n.get("l"); len(l.list) != 2 || l.list[1].get("m").get("k").text != "2020-01-01" ||
		l.list[0].get("n").text != "é" {
		t.Errorf("%+v", l)
	}
	// Many tables cost no more than the file is long.
	var many strings.Builder
	tables := race.Fewer(20_000)
	for i := range tables {
		fmt.Fprintf(&many, "[a%d]\n", i)
	}
	if n, err = readTOML([]byte(many.String())); err != nil || len(n.members) != tables {
		t.Errorf("%d members, %v", len(n.members), err)
	}
}

func FuzzTOML(f *testing.F) {
	f.Add([]byte(
		"[mcp_servers.a]\ncommand = \"x\"\nargs = [\"y\", '''z''']\nenv = {A.b = 1}\n[[x]]\n[[x.y]]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := readTOML(data)
		if err == nil && n.kind != mapNode {
			t.Errorf("%+v", n)
		}
		if !strings.Contains(string(data), "file") { // it would read any file
			_, _ = Parse("f.toml", data)
		}
	})
}
