package gateway_test

import (
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
	code := leak.Main(m)
	if left := faulty.NoneLeft(); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes are left:", left)
		code = 1
	}
	os.Exit(code)
}
