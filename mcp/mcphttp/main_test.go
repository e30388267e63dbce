package mcphttp_test

import (
	"flag"
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

// TestMain fails when a goroutine of ours is left at the end.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16") // most of those that are parallel wait; -parallel replaces it
	os.Exit(leak.Main(m))
}
