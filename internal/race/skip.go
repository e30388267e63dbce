package race

import (
	"testing"

	"github.com/farcall-dev/farcall/internal/full"
)

// Skip skips a test where the race detector is on and finds nothing that it does not find in
// other tests: one that measures, runs the program many times, or does one thing after the other
// for long. make race-full runs it.
func Skip(tb testing.TB, why string) {
	tb.Helper()
	if Enabled && !full.Wanted() {
		tb.Skip(why + "; it runs without the race detector, and with it by make race-full")
	}
}
