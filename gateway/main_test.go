package gateway_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/farcall-dev/farcall/gateway/internal/faulty"
	"github.com/farcall-dev/farcall/internal/leak"
)

// TestMain fails when a goroutine or a process is left at the end.
func TestMain(m *testing.M) {
	faulty.Main()
	if os.Getenv(caselessChild) != "" {
		os.Exit(caselessServer())
	}
	if revision := os.Getenv(stageRevision); revision != "" {
		os.Exit(playServer(revision))
	}
	_ = flag.Set("test.parallel", "12") // most wait for a process or a deadline; -parallel replaces it
	code := leak.Main(m)
	if left := faulty.NoneLeft(); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes are left:", left)
		code = 1
	}
	os.Exit(code)
}
