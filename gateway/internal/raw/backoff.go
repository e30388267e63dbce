package raw

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
	// steadyTime is how long a shared connection must have lived for its end not
	// to count as a failure to connect.
	steadyTime = 10 * time.Second
	// patience is how long a call waits for the next attempt. When that is further
	// away, the call fails at once.
	patience = time.Second
)

// backoff says when the next attempt to connect may be made.
type backoff struct {
	mu       sync.Mutex
	failures int
	until    time.Time
	err      error
}

// failed notes that an attempt has failed, or that what came of it did not last.
// The next one is made after that time, when it is not 0.
func (b *backoff) failed(err error, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := min(minBackoff<<min(b.failures, 10), maxBackoff)
	b.failures++
	d = d/2 + rand.N(d/2+1) //nolint:gosec // spreads attempts, guards nothing
	if after > 0 {
		d = after
	}
	b.until, b.err = time.Now().Add(d), err
}

// reset forgets the failures.
func (b *backoff) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.until, b.err = 0, time.Time{}, nil
}

// wait waits until an attempt may be made. It fails when that is too far away.
func (b *backoff) wait(ctx context.Context) error {
	b.mu.Lock()
	d, err := time.Until(b.until), b.err
	b.mu.Unlock()
	switch {
	case d <= 0:
		return nil
	case d > patience:
		return &tooEarlyError{after: d, err: err}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
