package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMCPScripts runs the scripts of farcall mcp against servers of package mcp.
func TestMCPScripts(t *testing.T) {
	needsScripts(t)
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(program, filepath.Join(dir, "farcall")); err != nil {
		t.Fatal(err)
	}
	vars := mcpHosts(t)
	vars["HOST"] = strings.TrimPrefix(serve(t, "--listen", "127.0.0.1:0", "--log", "off").addrs[0],
		"http://")
	vars[execVar], vars["GORACE"], vars["EXE"] = "1", noLinger, program
	vars["PATH"] = dir + string(os.PathListSeparator) + os.Getenv("PATH")
	vars["REFUSED"], vars["HTML"] = refusedAddress(t), htmlServer(t)
	for _, name := range []string{"mute", "closing", "humble", "alert", "web", "half"} {
		vars[strings.ToUpper(name)] = fakeServer(t, fakes[name])
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "mcp"),
		Setup: func(e *testscript.Env) error {
			for name, value := range vars {
				e.Setenv(name, value)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}
