package playground

import (
	"context"
	"iter"
	"time"

	"github.com/farcall-dev/farcall"
)

const (
	defaultInterval = time.Second
	maxClocks       = 1000 // of all connections together
)

type clockParams struct {
	IntervalMS int `json:"interval_ms,omitzero" doc:"milliseconds between two ticks; 1000 when left out" min:"10" max:"3600000"`
	Count      int `json:"count,omitzero" doc:"how many ticks; without end when left out" min:"0"`
}

type clockStarted struct {
	Subscription int64 `json:"subscription"`
	IntervalMS   int   `json:"interval_ms"`
	Count        int   `json:"count,omitzero"`
}

type clockRef struct {
	Subscription int64 `json:"subscription" doc:"the number that clock/subscribe answered"`
}

type tick struct {
	Subscription int64     `json:"subscription"`
	Tick         int       `json:"tick"`
	Time         time.Time `json:"time"`
}

type clock struct {
	id       int64
	conn     farcall.Caller
	interval time.Duration
	count    int
	stop     context.CancelFunc
}

func (s *Service) registerClock(mux *farcall.Mux) {
	farcall.Handle(mux, "clock/subscribe", s.subscribe,
		"Push onTick notifications until the connection ends",
		"This needs a connection that goes both ways: WebSocket, TCP, a unix socket or stdio.")
	farcall.Handle(mux, "clock/unsubscribe", s.unsubscribe,
		"Stop a clock",
		"The answer is whether there was one.")
}

func (s *Service) subscribe(ctx context.Context, p clockParams) (clockStarted, error) {
	interval := time.Duration(p.IntervalMS) * time.Millisecond
	if p.IntervalMS == 0 {
		interval = defaultInterval
	}
	conn := farcall.CallerFrom(ctx)
	if conn.Done() == nil {
		return clockStarted{}, farcall.ErrNoCallback
	}
	//nolint:forbidigo // not derived from the call's context: the clock outlives the call, and its memory
	clockCtx, stop := context.WithCancel(context.Background())
	c := &clock{conn: conn, interval: interval, count: p.Count, stop: stop}
	if !s.start(clockCtx, c) { //nolint:contextcheck // as above
		stop()
		return clockStarted{}, fault(errFailed, "Too many clocks", "details", "Unsubscribe from one, or try again later.")
	}
	return clockStarted{Subscription: c.id, IntervalMS: int(interval / time.Millisecond), Count: c.count}, nil
}

func (s *Service) start(ctx context.Context, c *clock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.clocks) >= maxClocks {
		return false
	}
	s.lastID++
	c.id = s.lastID
	s.clocks[c.id] = c
	s.wg.Go(func() {
		s.run(ctx, c)
		s.remove(c)
	})
	return true
}

// run pushes ticks until the count is reached, the subscription or the
// connection ends, or the service closes.
func (s *Service) run(ctx context.Context, c *clock) {
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	for n := 1; c.count == 0 || n <= c.count; n++ {
		select {
		case <-ctx.Done():
			return
		case <-c.conn.Done():
			return
		case <-s.quit:
			return
		case now := <-ticker.C:
			if c.conn.Notify(ctx, "onTick", tick{c.id, n, now.UTC().Truncate(time.Millisecond)}) != nil {
				return
			}
		}
	}
}

func (s *Service) remove(c *clock) {
	c.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clocks, c.id)
}

// unsubscribe answers whether there was such a subscription. One connection
// cannot end another one's.
func (s *Service) unsubscribe(ctx context.Context, p clockRef) (bool, error) {
	conn := farcall.CallerFrom(ctx)
	if conn.Done() == nil {
		return false, farcall.ErrNoCallback
	}
	s.mu.Lock()
	c := s.clocks[p.Subscription]
	s.mu.Unlock()
	if c == nil || c.conn.Done() != conn.Done() {
		return false, nil
	}
	s.remove(c)
	return true, nil
}

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
