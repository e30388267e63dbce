package load

import (
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

// TestMain fails when a goroutine of ours is left at the end.
func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }
