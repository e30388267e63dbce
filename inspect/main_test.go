package inspect

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
)

// childVar has the test binary be a child process.
const childVar = "FARCALL_INSPECT_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVar) {
	case "":
		os.Exit(leak.Main(m))
	case "crash":
		fmt.Fprintln(os.Stderr, "\x1b[31mno such file\x1b[0m \x1b]0;title\x07")
		os.Exit(3)
	case "playground":
		if err := playground().ServeStdio(context.Background()); err != nil {
			os.Exit(4)
		}
		os.Exit(0)
	case "serve":
		fmt.Fprintln(os.Stderr, "starting up")
		fmt.Println("a banner")
		s := mcp.NewServer("child", "1.0.0", nil)
		mcp.AddTool(
			s,
			mcp.Tool{Name: "pid"},
			func(context.Context, struct{}) (string, error) { return "hello", nil },
		)
		if err := s.ServeStdio(context.Background()); err != nil {
			os.Exit(1)
		}
	}
}
