package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/farcall-dev/farcall/internal/full"
)

// TestNewScripts writes projects, and builds, tests and runs them as a user
// would, against this checkout and without the network.
func TestNewScripts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("skipped: the scripts use sh")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(program, filepath.Join(dir, "farcall")); err != nil {
		t.Fatal(err)
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	caches := strings.Fields(string(out))
	if err != nil || len(caches) != 2 {
		t.Fatalf("go env: %q, %v", out, err)
	}
	scripts := []string{filepath.Join("testdata", "new", "new.txt")}
	if full.Wanted() { // what was made is built, tested and called
		scripts = append(scripts, filepath.Join("testdata", "new", "run.txt"))
	}
	testscript.Run(t, testscript.Params{
		Files: scripts,
		Setup: func(e *testscript.Env) error {
			for name, value := range map[string]string{
				execVar: "1", "GORACE": noLinger,
				"PATH": dir + string(os.PathListSeparator) + os.Getenv("PATH"), "REPO": repo,
				"GOCACHE": caches[0], "GOMODCACHE": caches[1], "GOFLAGS": "-mod=mod -trimpath",
				"CGO_ENABLED": "0", "GOPROXY": "off", "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOWORK": "off",
			} {
				e.Setenv(name, value)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}
