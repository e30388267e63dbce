package raw

import (
	"context"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/backoff"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
	// steadyTime is how long a shared connection must have lived for its end not
	// to count as a failure to connect.
	steadyTime = 10 * time.Second
	// retryWait is how long a call waits for the next attempt. When that is further
	// away, the call fails at once.
	retryWait = time.Second
)

// reconnect says when the next attempt to connect may be made.
type reconnect struct {
	mu       sync.Mutex
	failures int
	until    time.Time
	err      error
}

// failed notes that an attempt has failed, or that what came of it did not last.
// The next one is made after that time, when it is not 0.
func (r *reconnect) failed(err error, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures++
	d := backoff.Delay(r.failures, minBackoff, maxBackoff)
	if after > 0 {
		d = after
	}
	r.until, r.err = time.Now().Add(d), err
}

// reset forgets the failures.
func (r *reconnect) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures, r.until, r.err = 0, time.Time{}, nil
}

// wait waits until an attempt may be made. It fails when that is too far away.
func (r *reconnect) wait(ctx context.Context) error {
	r.mu.Lock()
	d, err := time.Until(r.until), r.err
	r.mu.Unlock()
	switch {
	case d <= 0:
		return nil
	case d > retryWait:
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
