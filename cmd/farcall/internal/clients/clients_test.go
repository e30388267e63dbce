package clients

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Each client's entry is in its file after it was added, in the form that the client reads, and
// nothing else has changed.
func TestText(t *testing.T) {
	want := map[string][2]string{
		"claude": {"", `"mcpServers": {|"x y": {|"command": "farcall",|"args": ["bridge"]|}|}`},
		"claude-code": {
			`"mcpServers": {|"x y": {|"type": "http",|"url": "http://h/mcp"|}|}`,
			`"mcpServers": {|"x y": {|"command": "farcall",|"args": ["bridge"]|}|}`,
		},
		"codex": {
			`[mcp_servers."x y"]|url = "http://h/mcp"`,
			`[mcp_servers."x y"]|command = "farcall"|args = ["bridge"]`,
		},
		"cursor": {
			`"mcpServers": {|"x y": {|"url": "http://h/mcp"|}|}`,
			`"mcpServers": {|"x y": {|"command": "farcall",|"args": ["bridge"]|}|}`,
		},
		"gemini": {
			`"mcpServers": {|"x y": {|"httpUrl": "http://h/mcp"|}|}`,
			`"mcpServers": {|"x y": {|"command": "farcall",|"args": ["bridge"]|}|}`,
		},
		"opencode": {
			`"mcp": {|"x y": {|"type": "remote",|"url": "http://h/mcp",|"enabled": true|}|}`,
			`"mcp": {|"x y": {|"type": "local",|"command": ["farcall","bridge"],|"enabled": true|}|}`,
		},
		"vscode": {
			`"servers": {|"x y": {|"type": "http",|"url": "http://h/mcp"|}|}`,
			`"servers": {|"x y": {|"command": "farcall",|"args": ["bridge"]|}|}`,
		},
		"windsurf": {
			`"mcpServers": {|"x y": {|"serverUrl": "http://h/mcp"|}|}`,
			`"mcpServers": {|"x y": {|"command": "farcall",|"args": ["bridge"]|}|}`,
		},
		"zed": {
			`"context_servers": {|"x y": {|"url": "http://h/mcp"|}|}`,
			`"context_servers": {|"x y": {|"command": "farcall",|"args": ["bridge"]|}|}`,
		},
	}
	for _, c := range All() {
		path, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		before := "{\n  \"theme\": \"dark\" // mine\n}\n"
		if strings.HasSuffix(path, ".toml") {
			before = "theme = \"dark\" # mine\n"
		}
		entries := []Entry{nil, c.CommandEntry([]string{"farcall", "bridge"})}
		if c.TakesURL() {
			entries[0] = c.URLEntry("http://h/mcp")
		}
		for i, entry := range entries {
			if entry == nil {
				continue
			}
			text, err := c.Text(path, []byte(before), "x y", entry, false)
			if err != nil {
				t.Errorf("%s: %v", c.Name, err)
				continue
			}
			var lines []string
			for line := range strings.Lines(string(text)) {
				lines = append(lines, strings.TrimSpace(line))
			}
			got := strings.Join(lines, "|")
			if w := want[c.Name][i]; w == "" || !strings.Contains(got, w) ||
				!strings.Contains(got, "dark") || !strings.Contains(got, " mine") {
				t.Errorf("%s:\n%s\nwant\n%s", c.Name, text, want[c.Name][i])
			}
			if _, err := c.Text(path, text, "x y", entry, false); !errors.Is(err, ErrExists) {
				t.Errorf("%s again: %v", c.Name, err)
			}
		}
	}
	if len(want) != len(All()) {
		t.Errorf("%d clients, %d tested", len(All()), len(want))
	}
}

func TestTOMLRefused(t *testing.T) {
	c := Find("codex")
	for text, want := range map[string]string{
		"mcp_servers = {a = {url = \"x\"}}\n": "in a form to which none can be added",
		"a = \n":                              "line 1 is not TOML",
	} {
		if _, err := c.Text("config.toml", []byte(text), "x", c.URLEntry("http://h"),
			false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := c.Text("config.toml", []byte("[mcp_servers.x]\n"), "x", c.URLEntry("http://h"),
		true); err == nil || !strings.Contains(err.Error(), "remove it first") {
		t.Error(err)
	}
}

// A file is replaced in one step, through links, with its mode, and what it was is kept.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	file := filepath.Join(dir, "kept", "mcp.json")
	if backup, err := Write(file, nil, []byte("{}"), now); err != nil || backup != "" {
		t.Fatal(backup, err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "mcp.json")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	if _, err := Write(link, []byte("other"), []byte("new"), now); err == nil ||
		!strings.Contains(err.Error(), "changed in the meantime") {
		t.Error(err)
	}
	backup, err := Write(link, []byte("{}"), []byte("new"), now.Add(time.Second))
	if err != nil || backup != file+".20260102-030406.bak" {
		t.Fatal(backup, err)
	}
	for path, want := range map[string]string{file: "new", backup: "{}"} {
		text, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || string(text) != want ||
			runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %s, %v, %v, %v", path, text, err, info.Mode(), statErr)
		}
	}
	second, err := Write(link, []byte("new"), []byte("newer"), now.Add(time.Second))
	if err != nil || second != file+".20260102-030406-1.bak" {
		t.Errorf("a second one in the same second: %s, %v", second, err)
	}
	if kept, _ := filepath.Glob(file + ".*.bak"); len(kept) != 2 {
		t.Errorf("of a refused and two good writes there are kept %v", kept)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link has become a file")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "kept", ".*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
