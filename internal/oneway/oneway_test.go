package oneway_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/oneway"
)

var (
	errSent   = errors.New("sent")
	errClosed = errors.New("closed")
)

// What is sent ends some time after the context of who waits for it, or with the life of the whole.
func TestSend(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes, limit, life time.Duration
		want               error
		returns, ends      time.Duration
	}{
		"it is sent": {
			takes: time.Second, limit: 5 * time.Second, life: time.Minute,
			want: errSent, returns: time.Second, ends: time.Second,
		},
		"sent after the context": {
			takes: 2 * time.Second, limit: time.Second, life: time.Minute,
			want: context.DeadlineExceeded, returns: time.Second, ends: 2 * time.Second,
		},
		"never sent": {
			takes: time.Hour, limit: time.Second, life: time.Minute,
			want: context.DeadlineExceeded, returns: time.Second, ends: 4 * time.Second,
		},
		"the whole ends meanwhile": {
			takes: time.Hour, limit: time.Minute, life: time.Second,
			want: context.Canceled, returns: time.Second, ends: time.Second,
		},
		"the whole ends afterwards": {
			takes: time.Hour, limit: time.Second, life: 2 * time.Second,
			want: context.DeadlineExceeded, returns: time.Second, ends: 2 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				life, end := context.WithCancel(t.Context())
				time.AfterFunc(c.life, end)
				began := time.Now()
				ended := make(chan time.Duration, 1)
				start := func(f func()) bool {
					go func() { f(); ended <- time.Since(began) }()
					return true
				}
				err := oneway.Send(ctx, life, 3*time.Second, start, errClosed, func(ctx context.Context) error {
					select {
					case <-time.After(c.takes):
						return errSent
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				if returned := time.Since(began); !errors.Is(err, c.want) || returned != c.returns {
					t.Errorf("after %v: %v", returned, err)
				}
				if took := <-ended; took != c.ends {
					t.Errorf("it ended after %v", took)
				}
			})
		})
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	err := oneway.Send(t.Context(), t.Context(), 0, func(func()) bool { return false }, errClosed, nil)
	if !errors.Is(err, errClosed) {
		t.Error(err)
	}
}
