package guard

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
	"weak"
)

// sweepEvery is how often it is looked whether those inside may stay; sweepTime bounds how long that takes.
const (
	sweepEvery = 10 * time.Second
	sweepTime  = 10 * time.Second
)

// guests are the connections and streams that outlive a call, and would go on to deliver when their
// credentials count no more.
type guests struct {
	g *Guard

	mu     sync.Mutex
	inside map[*guest]struct{}
	conns  map[weak.Pointer[connected]]struct{} // nobody says when they end
	timer  *time.Timer
	ended  bool
	wg     sync.WaitGroup // the sweep
}

// A guest is a request whose answer is a stream.
type guest struct {
	who *session
	at  *Conn // as which it is checked
	end func()
}

// stream notes a request until leave is called.
func (g *guests) stream(who *session, r *http.Request, w http.ResponseWriter) (leave func()) {
	in := &guest{who: who, at: ConnOf(r, "http"), end: func() {
		who.http.cut.Store(true)
		ctl := http.NewResponseController(w)
		past := time.Unix(1, 0)
		_, _ = ctl.SetWriteDeadline(past), ctl.SetReadDeadline(past) // what cannot be ended so has no connection
	}}
	in.at.Principal = who.principal
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside == nil {
		g.inside = map[*guest]struct{}{}
	}
	g.inside[in] = struct{}{}
	g.wake(sweepEvery)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.inside, in)
	}
}

// conn notes a connection that can be ended.
func (g *guests) conn(c *connected) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns == nil {
		g.conns = map[weak.Pointer[connected]]struct{}{}
	}
	g.conns[weak.Make(c)] = struct{}{}
	g.wake(sweepEvery)
}

// wake has the next sweep begin after a time, unless it is to begin already.
func (g *guests) wake(after time.Duration) {
	if g.ended || g.timer != nil {
		return
	}
	g.wg.Add(1)
	g.timer = time.AfterFunc(after, func() {
		defer g.wg.Done()
		g.sweep()
	})
}

// soon has a sweep begin now, as the configuration has changed.
func (g *guests) soon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil && g.timer.Stop() {
		g.wg.Done()
		g.timer = nil
	}
	if len(g.inside)+len(g.conns) > 0 {
		g.wake(0)
	}
}

// sweep ends what may not stay.
func (g *guests) sweep() {
	//nolint:forbidigo // it has its own limit
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	g.mu.Lock()
	g.timer = nil // whoever changes the configuration from now on begins another sweep
	s, now := g.g.state.Load(), g.g.now()
	inside, conns := slices.Collect(maps.Keys(g.inside)), slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, in := range inside {
		if _, refused := s.again(ctx, in.at); refused != nil && refused.status == http.StatusUnauthorized || in.who.expired(now) || s.locked(in.who) != nil {
			g.mu.Lock()
			if _, still := g.inside[in]; still { // otherwise the connection serves another request
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
		if refused != nil && refused.status == http.StatusUnauthorized || who.expired(now) || s.locked(who) != nil {
			_ = c.c.Close() // it is closed already
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.inside)+len(g.conns) > 0 {
		g.wake(sweepEvery)
	}
}

// close ends the sweeps.
func (g *guests) close() {
	g.mu.Lock()
	g.ended = true
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
