package mcpauth

import (
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(storeVar); path != "" {
		os.Exit(rotateMain(path))
	}
	os.Exit(leak.Main(m))
}
