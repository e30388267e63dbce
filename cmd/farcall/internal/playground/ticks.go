package playground

import (
	"context"
	"iter"
	"time"

	"github.com/farcall-dev/farcall"
)

// A moment is an event of time/ticks.
type moment struct {
	Tick int       `json:"tick"`
	Time time.Time `json:"time"`
}

// registerTicks adds what can be subscribed to.
func (s *Service) registerTicks(mux *farcall.Mux) {
	farcall.HandleSubscription(mux, "time/ticks", s.ticks,
		"Get the time, again and again",
		"Subscribe with time/subscribe and [\"ticks\", {\"interval_ms\": 1000}] over WebSocket, TCP, a unix socket or stdio; or stream it.")
}

func (s *Service) ticks(ctx context.Context, p clockParams) (iter.Seq2[moment, error], error) {
	interval := time.Duration(p.IntervalMS) * time.Millisecond
	if interval == 0 {
		interval = defaultInterval
	}
	return func(yield func(moment, error) bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for n := 1; p.Count == 0 || n <= p.Count; n++ {
			select {
			case <-ctx.Done():
				return
			case <-s.quit:
				return
			case now := <-ticker.C:
				if !yield(moment{n, now.UTC().Truncate(time.Millisecond)}, nil) {
					return
				}
			}
		}
	}, nil
}
