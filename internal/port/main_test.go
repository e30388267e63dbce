package port

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails when a goroutine of ours is left at the end.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftovers(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

func leftovers() string {
	var left strings.Builder
	for range 100 {
		buf := make([]byte, 1<<20)
		left.Reset()
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "farcall") && !strings.Contains(g, "TestMain") {
				left.WriteString(g + "\n\n")
			}
		}
		if left.Len() == 0 {
			return ""
		}
		<-time.After(10 * time.Millisecond)
	}
	return left.String()
}
