package mcp_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)\n```go\n(.*?)\n```")

// TestDocuments wants all Go code of the documents to be, word for word, in a
// test: so it compiles, and most of it runs.
func TestDocuments(t *testing.T) {
	names, err := filepath.Glob("example*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tested strings.Builder
	for _, name := range append(names, "../example_jsonrpc_test.go", "../guard/example_test.go",
		"mcpauth/example_test.go", "mcptest/example_test.go", "skills/example_test.go",
		"apps/apps_test.go", "registry/example_test.go", "../gateway/example_test.go") {
		tested.WriteString(unindented(t, name))
	}
	for document, least := range map[string]int{
		"../README.md": 2, "../docs/jsonrpc.md": 2,
		"../docs/mcp.md": 10, "../docs/compose.md": 3,
	} {
		blocks := goBlock.FindAllStringSubmatch(readDocument(t, document), -1)
		if len(blocks) < least {
			t.Errorf("%s: %d blocks of Go found, want %d at least", document, len(blocks), least)
		}
		for _, block := range blocks {
			if !strings.Contains(tested.String(), trimLines(block[1])) {
				t.Errorf("%s: this is in no example:\n%s", document, block[1])
			}
		}
	}
}

// TestNewcomersCost counts the lines of the first example.
func TestNewcomersCost(t *testing.T) {
	var server, client string
	for _, block := range goBlock.FindAllStringSubmatch(readDocument(t, "../README.md"), -1) {
		if strings.Contains(block[1], "mcp.AddTool") && server == "" {
			server = block[1]
		}
		if strings.Contains(block[1], "mcp.CallTool[") && client == "" {
			client = block[1]
		}
	}
	for what, c := range map[string]struct {
		code string
		most int
	}{"a typed tool served over HTTP": {server, 15}, "a client with a typed result": {client, 10}} {
		n := 0
		for line := range strings.Lines(c.code) {
			if strings.TrimSpace(line) != "" {
				n++
			}
		}
		if n == 0 || n > c.most {
			t.Errorf("%s takes %d lines, at most %d are allowed:\n%s", what, n, c.most, c.code)
		}
	}
	if !strings.Contains(server, "ListenAndServe") {
		t.Error("the server does not serve over HTTP")
	}
}

func readDocument(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func unindented(t *testing.T, name string) string { return trimLines(readDocument(t, name)) + "\n" }

// trimLines takes the indentation away, which is another one in a document.
func trimLines(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
