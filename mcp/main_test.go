package mcp

import (
	"fmt"
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedDir); dir != "" { // see TestTasksSurviveKill
		if err := serveTasks(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(leak.Main(m))
}
