package main

import (
	"flag"
	"os"
	"os/exec"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

// execVar makes the test binary be farcall, so that tests run the real program
// in its own process, with the race detector when the tests have it.
const execVar = "FARCALL_TEST_EXEC"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(mcpServerVar) == "1":
		os.Exit(mcpStdioMain())
	case os.Getenv(mcpServerVar) == "cluster":
		os.Exit(clusterChildMain())
	case os.Getenv(execVar) == "1", len(os.Args) > 1 && os.Args[1] == "sandbox":
		// the launcher of children, with a clean environment
		main()
	}
	_ = flag.Set("test.parallel", "12") // most wait for other processes; -parallel replaces it
	os.Exit(leak.Main(m))
}

// program is a farcall process that is ready to be started.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), execVar+"=1")
	return cmd
}
