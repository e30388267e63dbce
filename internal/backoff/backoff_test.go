package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/backoff"
)

func TestDelay(t *testing.T) {
	for _, c := range []struct {
		failures          int
		first, most, want time.Duration
	}{
		{0, time.Second, time.Minute, time.Second},
		{1, time.Second, time.Minute, time.Second},
		{2, time.Second, time.Minute, 2 * time.Second},
		{6, time.Second, time.Minute, 32 * time.Second},
		{7, time.Second, time.Minute, time.Minute},
		{40, time.Second, time.Minute, time.Minute}, // 1 s << 39 is more than 64 bits have
		{math.MaxInt, 1, time.Minute, time.Minute},
		{1, time.Minute, time.Second, time.Second},
		{1, 1, 1, 1},
	} {
		for range 100 {
			if d := backoff.Delay(c.failures, c.first, c.most); d < c.want/2 || d > c.want {
				t.Fatalf("Delay(%d, %v, %v) = %v, want %v to %v", c.failures, c.first, c.most, d,
					c.want/2, c.want)
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-1": 0, "1.5": 0, "99999999999999999999": 0, "1 ": 0,
		"0": time.Millisecond, "2": 2 * time.Second, "2147483647": time.Hour,
		"Sun, 01 Mar 2026 12:00:30 GMT": 30 * time.Second,
		"Sun, 01 Mar 2026 11:00:00 GMT": time.Millisecond,
		"Mon, 01 Mar 2027 12:00:00 GMT": time.Hour,
	} {
		if got := backoff.RetryAfter(value, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
