package natsstore_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A program that does not import this package links nothing of NATS.
func TestImports(t *testing.T) {
	t.Parallel()
	const module = "github.com/farcall-dev/farcall"
	args := []string{"list", "-deps"}
	for _, path := range []string{"", "/store", "/rpc", "/mcp", "/mcp/host", "/guard", "/gateway"} {
		args = append(args, module+path)
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		if strings.Contains(path, "nats") {
			t.Errorf("a library imports %s", path)
		}
	}
	if !strings.Contains(string(out), module+"/store\n") {
		t.Error("the list of imports is not read")
	}
}
