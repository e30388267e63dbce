package load

import (
	"context"
	"time"
)

// near is what timers of Go may be late by, and more.
const near = 2 * time.Millisecond

// until waits until a time, to some microseconds, or until the context ends.
func until(ctx context.Context, at time.Time) {
	if d := time.Until(at) - near; d > 0 {
		timed(ctx, time.Now().Add(d))
	}
	if ctx.Err() == nil {
		nap(at)
	}
}

// timed waits until a time by a timer.
func timed(ctx context.Context, at time.Time) {
	d := time.Until(at)
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
