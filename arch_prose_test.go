package farcall_test

import (
	"os/exec"
	"testing"
)

// TestArchitectureProse runs the check of tools/prose on the tree: it has no findings, and no lines
// of more than 100 columns.
func TestArchitectureProse(t *testing.T) {
	readsSource(t)
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "-C", "tools", "run", "./prose", "-root",
		"..").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
