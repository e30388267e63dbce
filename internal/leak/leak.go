// Package leak answers one question: did the tests leave a goroutine behind?
package leak

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Main runs the tests and returns the code to exit with: 1 also when a
// goroutine of this module, or of net/http, is left a second after they ended.
//
//	func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }
func Main(m *testing.M) int {
	// what handlers fail with in tests is of no interest
	slog.SetDefault(slog.New(slog.DiscardHandler))
	code := m.Run()
	if left := leftovers(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n\n%s\n", left)
		return 1
	}
	return code
}

func leftovers() (report string) {
	for range 100 {
		buf := make([]byte, 1<<20)
		var left []string
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if (strings.Contains(g, "farcall") || strings.Contains(g, "net/http")) &&
				!strings.Contains(g, "TestMain") {
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return ""
		}
		http.DefaultClient.CloseIdleConnections()
		report = strings.Join(left, "\n\n")
		<-time.After(10 * time.Millisecond)
	}
	return report
}
