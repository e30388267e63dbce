package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
)

// A client stays connected while the server is changed, broken and mended, and is not cut off.
func TestDev(t *testing.T) {
	needsScripts(t)
	t.Parallel()
	dir := t.TempDir()
	save := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool, err := os.ReadFile(filepath.Join("testdata", "tool.sh"))
	if err != nil {
		t.Fatal(err)
	}
	save("tool.sh", string(tool))
	save("tool.txt", "The weather.")
	s := serveProgram(t, program(t, "dev"), "--listen", "127.0.0.1:0", "--page", "127.0.0.1:0",
		"--watch", dir, "--ends", ".sh,.txt", "--cwd", dir, "--", "sh", "tool.sh")
	client, err := mcp.Dial(t.Context(), s.addrs[0]+"/mcp", &mcp.ClientOptions{NoCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	about := func(want string) {
		t.Helper()
		tools, err := client.Tools(t.Context())
		if err != nil || len(tools) != 1 || tools[0].Description != want {
			t.Fatalf("%v, %v; want %q", tools, err, want)
		}
	}
	s.logged(t, 1, "farcall: the server has 1 tool")
	s.logged(t, 1, "^farcall: the page is at http://127.0.0.1:")
	about("The weather.")

	save("tool.txt", "The weather of tomorrow.")
	s.logged(t, 1, "description-changed tools.weather.description")
	about("The weather of tomorrow.")

	save("tool.sh", "echo broken >&2; exit 3")
	s.logged(t, 1, "exit status 3")
	if _, err := client.CallTool(t.Context(), "weather", nil); err == nil ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a call while it is broken: %v", err)
	}

	save("tool.sh", string(tool)+"\n# mended\n")
	s.logged(t, 2, "farcall: the server has 1 tool")
	about("The weather of tomorrow.")
	if r, err := client.CallTool(t.Context(), "weather", nil); err != nil || r.IsError {
		t.Errorf("%v, %v", r, err)
	}
}

// What programs make, and what is hidden, is not watched.
func TestDevStamp(t *testing.T) {
	dir := t.TempDir()
	f := &devFlags{dirs: []string{dir}, ends: strings.Split(devEnds, ",")}
	before := f.stamp()
	for name, counts := range map[string]bool{
		"a.go": true, "sub/b.py": true, ".git/c.go": false, "sub/node_modules/d.js": false,
		"log.txt": false, "go.mod": true,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		now := f.stamp()
		if (now != before) != counts {
			t.Errorf("%s: changed is %v", name, now != before)
		}
		before = now
	}
}
