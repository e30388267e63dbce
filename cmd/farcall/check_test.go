package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestCheckScripts runs the scripts of farcall check.
func TestCheckScripts(t *testing.T) {
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
	files, err := filepath.Glob(filepath.Join("testdata", "gateway", "check*.txt*"))
	if err != nil || len(files) == 0 {
		t.Fatal("there are no scripts", err)
	}
	testscript.Run(t, testscript.Params{
		Files: files,
		Setup: func(e *testscript.Env) error {
			e.Setenv(execVar, "1")
			e.Setenv("GORACE", noLinger)
			e.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			e.Setenv("GITHUB_TOKEN", "ghp_s3cr3t")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}
