package compare

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The second table of docs/examples.md has the lines of the MCP servers, and of the nearest
// examples of others.
func TestLinesMCP(t *testing.T) {
	page, err := os.ReadFile("../../docs/examples.md")
	if err != nil {
		t.Fatal(err)
	}
	sdk := moduleDir(t, "github.com/modelcontextprotocol/go-sdk")
	mcpGo := moduleDir(t, "github.com/mark3labs/mcp-go")
	// A number is that of an example in its own module, which is not downloaded: of August 2026.
	for _, row := range [][4]string{
		{"Hello", "hello", "server/hello", ""},
		{"Memory", "memory", "server/memory", ""},
		{"Everything", "everything", "server/everything", "everything"},
		{"Middleware", "middleware", "server/middleware", ""},
		{"Rate limit", "ratelimit", "69", ""},
		{"Custom transport", "transport", "server/custom-transport", ""},
		{"Elicitation", "elicitation", "server/elicitation", "elicitation"},
		{"Sampling loop", "sampling", "", "sampling_server"},
		{"Tasks", "tasks", "", "task_tool"},
		{"Distributed", "distributed", "server/distributed", ""},
		{"Authentication", "auth", "277", ""},
		{"OpenAPI", "openapi", "", ""},
		{"Host", "host", "", ""},
	} {
		want := "| " + row[0] + " | " + programLines(t, "../..", "mcp/"+row[1]) +
			" | " + programLines(t, sdk, row[2]) + " | " + programLines(t, mcpGo, row[3]) + " |"
		if !strings.Contains(string(page), "\n"+want+"\n") {
			t.Errorf("docs/examples.md has no row\n%s", want)
		}
	}
}

// moduleDir returns where the source of a module is.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(dir))
}

// programLines counts the lines of an example of a module, all files but tests.
func programLines(t *testing.T, module, example string) string {
	t.Helper()
	if example == "" {
		return "–"
	}
	if _, err := strconv.Atoi(example); err == nil {
		return example
	}
	files, err := filepath.Glob(filepath.Join(module, "examples", example, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files, %v", example, err)
	}
	n := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				n++
			}
		}
	}
	return strconv.Itoa(n)
}
