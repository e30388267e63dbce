package farcall_test

import (
	"fmt"
	"io"
	"log/slog"
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

func leftovers() (left string) {
	for range 100 {
		buf := make([]byte, 1<<20)
		left = ""
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "farcall") && !strings.Contains(g, "TestMain") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
		<-time.After(10 * time.Millisecond)
	}
	return left
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
