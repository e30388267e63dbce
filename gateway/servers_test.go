package gateway

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp/host"
)

// The files of desktop clients are servers of a host.
func TestServersOfDesktopFiles(t *testing.T) {
	t.Setenv("CONFIG_TEST_A", "from env")
	for _, file := range []string{
		"claude.json", "vscode.json", "cursor.json", "cline.json",
		"others.json",
	} {
		c, err := Load(filepath.Join("testdata", "config", file))
		if err != nil {
			t.Fatal(err)
		}
		servers, err := c.Servers()
		if err != nil || len(servers) != len(c.Upstreams) {
			t.Errorf("%s: %d servers, %v", file, len(servers), err)
		}
		for i := range servers {
			servers[i].Disabled = true // nothing of it is to run here
		}
		h, err := host.New(t.Context(), servers, nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	c, err := Load(filepath.Join("testdata", "config", "cline.json"))
	if err != nil {
		t.Fatal(err)
	}
	servers, err := c.Servers()
	if err != nil {
		t.Fatal(err)
	}
	a, b, sse := servers[0], servers[1], servers[2]
	if !slices.Equal(a.Command, []string{"node", "s.js"}) ||
		!slices.Equal(a.DenyTools, []string{"rm"}) || a.Timeout != time.Minute ||
		!b.Disabled || b.URL == "" || !sse.SSE {
		t.Errorf("%+v", servers)
	}
}

// What a host cannot do is not left out in silence.
func TestServersRefused(t *testing.T) {
	for _, key := range []string{
		"profile: raw", "framing: header", "era: legacy", "sandbox: strict", "tools: {rename: {a: b}}",
		"tools: {describe: {a: b}}",
		"resources: {deny: ['*']}", "prompts: {deny: ['*']}", "proxy: none", "tls: {server_name: b}",
		"forward_headers: [x-user]",
	} {
		of := "command: [x]"
		if strings.HasPrefix(key, "proxy") || strings.HasPrefix(key, "tls") ||
			strings.HasPrefix(key, "forward") {
			of = "url: https://h"
		}
		c, problems := parse(t, "f.yaml", "upstreams:\n  a:\n    "+of+"\n    "+key+"\n")
		if c == nil {
			t.Fatalf("%s: %s", key, problems)
		}
		if _, err := c.Servers(); err == nil || !strings.Contains(err.Error(), "f.yaml:4:") ||
			!strings.Contains(err.Error(), "needs a gateway") {
			t.Errorf("%s: %v", key, err)
		}
	}
	c, _ := parse(t, "f.yaml",
		"upstreams: {a: {command: [x], lifetime: session, pool: 3, tools: {allow: ['r*']}}}\n")
	if servers, err := c.Servers(); err != nil ||
		!slices.Equal(servers[0].AllowTools, []string{"r*"}) {
		t.Errorf("%+v, %v", servers, err)
	}
}
