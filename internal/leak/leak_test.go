package leak

import (
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestLeftovers(t *testing.T) {
	stop := make(chan struct{})
	go func() { <-stop }()
	if left := leftovers(); !strings.Contains(left, "leak.TestLeftovers") {
		t.Errorf("a goroutine that stays was not found: %q", left)
	}
	close(stop)
}
