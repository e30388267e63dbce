// Package backoff answers one question: how long does the next attempt wait?
package backoff

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// maxRetryAfter bounds what RetryAfter returns.
const maxRetryAfter = time.Hour

// RetryAfter reads the value of the header Retry-After, which is a number of seconds or a date (RFC
// 9110, section 10.2.3). It returns the time from now on, between a millisecond and an hour, or 0
// for a value that is missing or malformed.
func RetryAfter(value string, now time.Time) time.Duration {
	var d time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		d = date.Sub(now)
	} else {
		return 0
	}
	return min(max(d, time.Millisecond), maxRetryAfter)
}

// Delay returns how long to wait after a number of failures in a row: first after one of them,
// twice as long after each further one, and most at most; less up to half of it, at random, so that
// those who failed together do not come again together. first and most are positive.
func Delay(failures int, first, most time.Duration) time.Duration {
	d := most
	if n := max(0, failures-1); n < 62 && first<<n>>n == first {
		d = min(d, first<<n)
	}
	return d/2 + rand.N(d-d/2+1) //nolint:gosec // spreads attempts, guards nothing
}

// Sleep waits, unless the context ends first: then it returns the error of that.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
