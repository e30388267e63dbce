// Package backoff answers one question: how long does the next attempt wait?
package backoff

import (
	"math/rand/v2"
	"time"
)

// Delay returns how long to wait after a number of failures in a row: first after one of them, twice as long after
// each further one, and most at most; less up to half of it, at random, so that those who failed together do
// not come again together. first and most are positive.
func Delay(failures int, first, most time.Duration) time.Duration {
	d := most
	if n := max(0, failures-1); n < 62 && first<<n>>n == first {
		d = min(d, first<<n)
	}
	return d/2 + rand.N(d-d/2+1) //nolint:gosec // spreads attempts, guards nothing
}
