package interop

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// "farcall mcp" against foreign servers.
func TestMCPCommand(t *testing.T) {
	goSDK := serveGoSDK(t, &gosdk.StreamableHTTPOptions{Stateless: true})
	mcpGo := serveMCPGo(t)
	for name, where := range map[string][2][]string{
		// the target, before and after the other arguments
		"go-sdk http":  {{goSDK.http}, nil},
		"go-sdk sse":   {{goSDK.sse}, nil},
		"go-sdk stdio": {nil, command(child(t, "go-sdk"))},
		"mcp-go http":  {{mcpGo.http}, nil},
		"mcp-go stdio": {nil, command(child(t, "mcp-go"))},
	} {
		for args, want := range map[string]string{
			"discover":                           "speaks        202",
			"tools":                              "cancelled",
			"call @ add A=2 B=3":                 "5",
			`call @ ask --answer {"name":"Ada"}`: "Hello, Ada!",
			"call @ think --sample Paris":        "Paris",
			"resources":                          "note://bytes",
			"read @ note://numbered/7":           "Note 7.",
			"templates":                          "note://numbered/{n}",
			"prompts":                            "greet",
			"prompt @ greet name=Bob":            "Please greet Bob.",
			"complete @ prompt greet name=B":     "Bob",
		} {
			t.Run(name+"/"+args, func(t *testing.T) {
				t.Parallel()
				verb, rest, _ := strings.Cut(args, " ")
				rest = strings.TrimPrefix(rest, "@ ")
				all := append([]string{"mcp", verb}, where[0]...)
				all = append(append(all, strings.Fields(rest)...), where[1]...)
				if got := mustFarcall(t, all...); !strings.Contains(strings.ToLower(got),
					strings.ToLower(want)) {
					t.Errorf("%s\nwant %q", got, want)
				}
			})
		}
	}
}

// command returns the arguments that make farcall run a command.
func command(cmd *exec.Cmd) []string {
	words := []string{"--", "env"}
	for _, variable := range cmd.Env {
		if strings.HasPrefix(variable, childVariable) {
			words = append(words, variable)
		}
	}
	return append(words, cmd.Args...)
}

func TestMCPCommandEverything(t *testing.T) {
	t.Parallel()
	target := everything(t, "http").http
	if got := mustFarcall(t, "mcp", "call", target, "echo", "message=hello"); got != "Echo: hello" {
		t.Errorf("echo: %s", got)
	}
	if got := mustFarcall(t, "mcp", "call", target, "trigger-elicitation-request", "--answer",
		`{"name":"Ada"}`); !strings.Contains(got, "Name: Ada") {
		t.Errorf("trigger-elicitation-request: %s", got)
	}
	dir := t.TempDir()
	mustFarcall(t, "mcp", "call", target, "get-tiny-image", "--output", dir)
	if files, err := filepath.Glob(filepath.Join(dir, "*.png")); err != nil || len(files) != 1 {
		t.Errorf("get-tiny-image: %q, %v", files, err)
	}
	if _, stderr, code := program(t, "mcp", "call", target, "no-such-tool"); code == 0 ||
		stderr == "" {
		t.Errorf("a tool that does not exist: exit status %d, %s", code, stderr)
	}
}
