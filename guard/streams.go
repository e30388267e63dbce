package guard

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	revalidateEvery = 10 * time.Second
	revalidateTime  = 10 * time.Second // that one pass may take

	maxStreams  = 1 << 16
	streamRatio = 7 // one caller alone gets seven eighths
)

// activeStreams are the connections, streamed answers and subscriptions that outlive a call. They
// are closed when their credentials are no longer valid: revalidate looks at all of them, each
// revalidateEvery and after each change of the configuration, and at subscriptions after those
// only.
type activeStreams struct {
	g *Guard

	mu      sync.Mutex
	answers map[*stream]struct{}
	shares  *share.Ledger                        // of answers, by owner
	conns   map[weak.Pointer[connected]]struct{} // they do not report when they end
	holds   map[*hold]struct{}                   // subscriptions
	timer   *time.Timer
	closed  bool
	wg      sync.WaitGroup // revalidate
}

// A stream is a request with an answer that is a stream.
type stream struct {
	who *session
	at  *Conn // as which it is checked
	end func()
}

// add registers a request until leave is called. It reports false when its caller has too many.
func (g *activeStreams) add(
	who *session, r *http.Request, w http.ResponseWriter,
) (leave func(), ok bool) {
	in := &stream{who: who, at: ConnOf(r, "http"), end: func() {
		who.http.cut.Store(true)
		ctl := http.NewResponseController(w)
		past := time.Unix(1, 0)
		// what cannot be ended so has no connection
		_, _ = ctl.SetWriteDeadline(past), ctl.SetReadDeadline(past)
	}}
	in.at.Principal = who.principal
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.answers == nil {
		g.answers, g.shares = map[*stream]struct{}{},
			share.NewLedger(share.Bounds{Total: maxStreams, Ratio: streamRatio})
	}
	if !g.shares.Take(who.owner, 1) {
		return nil, false
	}
	g.answers[in] = struct{}{}
	g.wake(revalidateEvery)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if _, there := g.answers[in]; there {
			delete(g.answers, in)
			g.shares.Give(who.owner, 1)
		}
	}, true
}

// tooManyStreams refuses a request with a caller that has too many.
func tooManyStreams() *refusal {
	const reason = "the caller has as many open streams as its share allows"
	return refuse(jsonrpc.RateLimited, reason).later(time.Second)
}

// addConn registers a connection that can be ended.
func (g *activeStreams) addConn(c *connected) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns == nil {
		g.conns = map[weak.Pointer[connected]]struct{}{}
	}
	g.conns[weak.Make(c)] = struct{}{}
	g.wake(revalidateEvery)
}

// wake lets revalidate run after a time, unless it is going to run already.
func (g *activeStreams) wake(after time.Duration) {
	if g.closed || g.timer != nil {
		return
	}
	g.wg.Add(1)
	g.timer = time.AfterFunc(after, func() {
		defer g.wg.Done()
		g.revalidate()
	})
}

// soon lets revalidate run now, as the configuration has changed.
func (g *activeStreams) soon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil && g.timer.Stop() {
		g.wg.Done()
		g.timer = nil
	}
	if len(g.answers)+len(g.conns)+len(g.holds) > 0 {
		g.wake(0)
	}
}

// revalidate closes streams and connections with credentials that are no longer valid.
func (g *activeStreams) revalidate() {
	//nolint:forbidigo // it has its own limit
	ctx, cancel := context.WithTimeout(context.Background(), revalidateTime)
	defer cancel()
	g.mu.Lock()
	g.timer = nil // a change of the configuration from now on lets it run again
	s, now := g.g.state.Load(), g.g.now()
	answers, conns := slices.Collect(maps.Keys(g.answers)), slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, in := range answers {
		if _, refused := s.again(ctx, in.at); refused != nil &&
			refused.status == http.StatusUnauthorized || in.who.expired(now) || s.locked(in.who) != nil {
			g.mu.Lock()
			if _, still := g.answers[in]; still { // otherwise the connection serves another request
				in.end()
			}
			g.mu.Unlock()
		}
	}
	for _, p := range conns {
		c := p.Value()
		if c == nil {
			g.mu.Lock()
			delete(g.conns, p)
			g.mu.Unlock()
			continue
		}
		who, refused := c.session(ctx, s)
		if refused != nil && refused.status == http.StatusUnauthorized || who.expired(now) ||
			s.locked(who) != nil || s.revoked(ctx, c.c) {
			_ = c.c.Close() // it is closed already
		}
	}
	g.endHolds(ctx, s)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.answers)+len(g.conns)+len(g.holds) > 0 {
		g.wake(revalidateEvery)
	}
}

// close waits for revalidate, which does not run again.
func (g *activeStreams) close() {
	g.mu.Lock()
	g.closed = true
	if g.timer != nil && g.timer.Stop() {
		g.wg.Done()
	}
	g.mu.Unlock()
	g.wg.Wait()
}

// expired reports whether the credentials of a session have come to their end.
func (w *session) expired(now time.Time) bool {
	if w == nil || w.principal == nil {
		return false
	}
	e := w.principal.Expires
	return !e.IsZero() && now.After(e)
}
