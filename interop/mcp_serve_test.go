package interop

import (
	"os/exec"
	"strings"
	"testing"
)

// Foreign clients use what "farcall serve" serves.
func TestMCPServe(t *testing.T) {
	address := "http://" + serve(t)
	p := &place{address + "/mcp", address + "/sse", func() *exec.Cmd {
		return exec.Command(farcallPath, "serve", "--stdio", "--log", "off")
	}}
	clients := map[string]func(t *testing.T, way, revision string) user{
		"farcall": func(t *testing.T, way, revision string) user { return useAs(t, p, way, revision) },
		"go-sdk":  func(t *testing.T, way, revision string) user { return useGoSDK(t, p, way, revision) },
		"mcp-go":  func(t *testing.T, way, revision string) user { return useMCPGo(t, p, way, revision) },
	}
	for name, use := range clients {
		for _, where := range []string{
			"http 2026-07-28", "http 2025-11-25", "sse 2025-11-25",
			"sse 2024-11-05", "stdio 2026-07-28", "stdio 2025-11-25",
		} {
			way, revision, _ := strings.Cut(where, " ")
			if name == "farcall" && where == "sse 2025-11-25" {
				continue // it finds the other transport first
			}
			t.Run(name+" "+where, func(t *testing.T) {
				u := use(t, way, revision)
				if got := u.revision(); got != revision {
					t.Errorf("the revision is %s", got)
				}
				// which does not answer
				checkServe(t, u, way == "sse" && name == "mcp-go" || revision == "2024-11-05")
			})
		}
	}
}

func checkServe(t *testing.T, u user, silent bool) {
	t.Helper()
	tools, resources, templates, prompts, err := u.lists(within(t))
	if err != nil || len(tools) < 20 || len(resources) != 4 || len(templates) != 1 ||
		len(prompts) != 3 {
		t.Errorf("lists: %q %q %q %q, %v", tools, resources, templates, prompts, err)
	}
	for _, one := range []struct {
		tool string
		args map[string]any
		want string
		asks bool
	}{
		{"math_add", map[string]any{"a": 2, "b": 3}, "5", false},
		{"sum", map[string]any{"numbers": []int{1, 2, 3}}, "6", false},
		{"demo_progress", map[string]any{"steps": 3, "ms": 1}, "Took 3 steps.", false},
		{"demo_log", nil, "Sent 8 messages", false},
		{"demo_task", map[string]any{"ms": 1}, "Worked for 1 ms.", false},
		{"demo_form", nil, `"name":"Ada"`, true},
		{"demo_url", nil, "accept", true},
		{"demo_sampling", nil, "Paris", true},
		{"demo_roots", nil, root, true},
	} {
		if one.asks && silent {
			continue
		}
		if got, err := u.call(within(t), one.tool, one.args); err != nil ||
			!strings.Contains(got, one.want) {
			t.Errorf("%s = %s, %v; want %q", one.tool, got, err, one.want)
		}
	}
	if got, err := u.read(within(t), "playground://guide"); err != nil ||
		!strings.Contains(got, "# The playground") {
		t.Errorf("read = %s, %v", got, err)
	}
	arguments := map[string]string{"operation": "add", "a": "1", "b": "2"}
	if got, err := u.prompt(within(t), "calculate", arguments); err != nil ||
		!strings.Contains(got, "math_add") {
		t.Errorf("calculate = %s, %v", got, err)
	}
	if got, err := u.complete(within(t), "calculate", "operation", "m"); err != nil || len(got) != 1 ||
		got[0] != "multiply" {
		t.Errorf("complete = %q, %v", got, err)
	}
}
