package natsstore

import (
	"flag"
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most wait for elections and leases; -parallel replaces it
	os.Exit(leak.Main(m))
}
