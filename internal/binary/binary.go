// Package binary finds the program farcall for tests that run it as a process.
package binary

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// variable names a program that stands built, so that the tests of several packages share it.
const variable = "FARCALL_BINARY"

// Given reports whether FARCALL_BINARY names a program.
func Given() bool { return os.Getenv(variable) != "" }

// Path returns the path of farcall, the file that FARCALL_BINARY names, else one that it builds as
// make build does, for this test.
func Path(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		if !filepath.IsAbs(path) {
			t.Fatalf("%s is %q, not an absolute path: tests run in the folders of packages", variable, path)
		}
		return path
	}
	path := filepath.Join(t.TempDir(), "farcall")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path,
		"github.com/farcall-dev/farcall/cmd/farcall")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}
