package host

import (
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
)

func TestMain(m *testing.M) {
	if behaviour := os.Getenv("HOST_TEST_CHILD"); behaviour != "" {
		os.Exit(child(behaviour))
	}
	os.Exit(leak.Main(m))
}

// newServer returns a server that is called name with tools that say which server and tool they
// are.
func newServer(name string, tools ...string) *mcp.Server {
	s := mcp.NewServer(name, "1", nil)
	for _, tool := range tools {
		addTool(s, name, tool)
	}
	return s
}
