// Package compare has the programs of examples/ written with other libraries. They are compiled and
// counted, not run.
package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table of docs/examples.md has the lines of each program that are neither empty nor comments.
func TestLines(t *testing.T) {
	page, err := os.ReadFile("../../docs/examples.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range [][5]string{
		{"Language server", "examples/lsp", "interop/compare/lspjrpc2", "", ""},
		{
			"Service", "examples/service", "", "interop/compare/servicegeth",
			"interop/compare/serviceconnect",
		},
		{
			"Subscriber", "examples/pubsub", "interop/compare/pubsubjrpc2",
			"interop/compare/pubsubgeth", "",
		},
	} {
		var want strings.Builder
		want.WriteString("| " + row[0])
		for _, dir := range row[1:] {
			want.WriteString(" | " + lines(t, dir))
		}
		if !strings.Contains(string(page), "\n"+want.String()+" |\n") {
			t.Errorf("docs/examples.md has no row\n%s |", want.String())
		}
	}
}

// lines counts the lines of the program in a directory.
func lines(t *testing.T, dir string) string {
	t.Helper()
	if dir == "" {
		return "–"
	}
	text, err := os.ReadFile(filepath.Join("../..", dir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return fmt.Sprint(n)
}
