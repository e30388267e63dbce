package openapi

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocs wants the Go code of the guide to be in the examples, and the tests that it names to be
// there.
func TestDocs(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	guide, examples := read("../../docs/openapi.md"), read("example_test.go")
	blocks := regexp.MustCompile("(?s)\n```go\n(.*?)\n```").FindAllStringSubmatch(guide, -1)
	for _, block := range blocks {
		if !strings.Contains(examples, block[1]) {
			t.Errorf("this is in no example:\n%s", block[1])
		}
	}
	if len(blocks) == 0 {
		t.Error("there is no code in the guide")
	}
	tests := read("load_test.go") + read("client_test.go") + read("request_test.go")
	for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(guide, -1) {
		if !strings.Contains(tests, "func "+name[1]+"(") {
			t.Errorf("there is no %s", name[1])
		}
	}
}
