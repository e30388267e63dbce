package openapi

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
)

// TestPublicDocuments reads the public documents in the folder $OPENAPI_DOCS: `make openapi` says
// which. Each must load, with names and schemas that a server takes.
func TestPublicDocuments(t *testing.T) {
	dir := os.Getenv("OPENAPI_DOCS")
	if dir == "" {
		t.Skip("OPENAPI_DOCS names no folder of OpenAPI documents")
	}
	var files []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() &&
			slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(name)) {
			files = append(files, name)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no documents in %s: %v", dir, err)
	}
	t.Log("| document | kB | operations | tools | not mapped | partly | load | tokens a tool | " +
		"largest schema |")
	for _, name := range files {
		if name, err := filepath.Rel(dir, name); err == nil {
			t.Run(name, func(t *testing.T) { loadPublic(t, filepath.Join(dir, name)) })
		}
	}
}

func loadPublic(t *testing.T, name string) {
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	api, err := Open(name, &Options{BaseURL: "https://api.example.test", MaxTools: maxOperations})
	took := time.Since(start)
	if err != nil {
		if strings.Contains(err.Error(), "this is no OpenAPI document") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	s := mcp.NewServer("public", "1", nil)
	defer s.Close()
	api.AddTo(s) // panics when a schema or a name is not valid
	if inlined, err := Open(name,
		&Options{
			BaseURL: "https://api.example.test", MaxTools: maxOperations,
			InlineRefs: true,
		}); err != nil {
		t.Error(err)
	} else {
		inlined.AddTo(s)
	}
	size, largest := 0, 0
	for _, tool := range api.Tools() {
		size += tool.size()
		largest = max(largest, len(tool.InputSchema))
		if len(tool.Name) > 48 {
			t.Errorf("%s: the name %q", tool.Operation, tool.Name)
		}
	}
	reasons := map[string]int{}
	skipped, partly := 0, map[string]bool{}
	for _, p := range api.Problems() {
		why := digits.ReplaceAllString(p.Message, "N")
		switch {
		case p.Skipped:
			skipped++
			reasons["no tool: "+why]++
		case p.Operation != "":
			partly[p.Operation] = true
			reasons["partly: "+why]++
		}
	}
	n := len(api.Tools())
	t.Logf("| %s | %d | %d | %d | %d | %d | %v | %d | %d |", t.Name()[len("TestPublicDocuments/"):],
		info.Size()>>10, n+skipped, n, skipped, len(partly),
		took.Round(time.Millisecond), size/bytesPerToken/max(n, 1), largest)
	for _, r := range sortedCounts(reasons) {
		t.Log(r)
	}
}

var digits = regexp.MustCompile(`[0-9]+`)

func sortedCounts(counts map[string]int) (all []string) {
	for k, v := range counts {
		all = append(all, fmt.Sprintf("%5d %s", v, k))
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all[:min(len(all), 25)]
}
