package upstream

import (
	"slices"
	"time"

	"github.com/farcall-dev/farcall/mcp"
)

// arrived takes a connection that has started, or has not. It reports whether the connection
// is to be used.
func (u *Upstream) arrived(l *conn, client *mcp.Client, err error) bool {
	now := time.Now()
	u.mu.Lock()
	wanted := l.state == dialing
	changed, first := false, !u.pool.known || u.pool.stale
	switch {
	case err == nil && wanted:
		l.settle(client, now)
		u.pool.move(l, ready)
		turned := !u.pool.known || u.pool.modern != l.modern
		u.pool.known, u.pool.modern, u.pool.info = true, l.modern, l.info
		if turned {
			u.rekeyQueue()
		}
		u.pool.rekey(l)
		changed, u.pool.stale = u.pool.stale && u.opts.Lifetime != lifetimeCall, false
	case wanted:
		u.unstarted(l, err, now)
	}
	u.pool.turn()
	u.dispatch()
	u.drained()
	u.mu.Unlock()
	if err == nil && wanted && first {
		u.opts.Logger.Info("connected", "server", l.info.Name+" "+l.info.Version, "revision", l.info.Revision)
	}
	if err != nil {
		u.opts.Logger.Debug("a connection could not be started", "error", textOf(err))
	} else {
		u.opts.Logger.Debug("a connection has started")
	}
	if changed {
		u.listsChanged() // it is unknown what happened while it was down
	}
	return err == nil && wanted
}

// unstarted ends the waiting of those who have no other connection to hope for.
func (u *Upstream) unstarted(l *conn, err error, now time.Time) {
	u.pool.breaker.fail(now, l.age, comeBack(err))
	u.pool.stale, u.pool.cool = true, now.Add(coolTime)
	u.pool.failed(err)
	u.pool.retire(l)
	for item := range u.queue.All() {
		if pc := item.Value; (pc.holder == l.holder || !u.pool.known) && !u.pool.hopeful(pc) {
			u.refuse(pc, u.unreached(err))
		}
	}
}

// died removes a connection that has ended without being closed.
func (u *Upstream) died(l *conn, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.ctx.Err() != nil || !l.state.live() {
		return // we have done it, or know
	}
	u.lost(l, l.age, err, time.Now())
	u.dispatch()
	u.drained()
}

// closed notes that a connection is closed.
func (u *Upstream) closed(l *conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.state < closing { // with all others: the upstream is closed
		u.pool.move(l, closing)
	}
	u.pool.move(l, closed)
	u.dispatch()
}

// sweep closes unused connections.
func (u *Upstream) sweep() {
	if u.opts.IdleStop > 0 && !u.sweeping && !u.over {
		u.sweeping = true
		u.tasks.Go(func() {
			for wait := u.opts.IdleStop; wait > 0; {
				timer := time.NewTimer(wait)
				select {
				case <-timer.C:
				case <-u.ctx.Done():
					timer.Stop()
					return
				}
				wait = u.swept()
			}
		})
	}
}

// swept closes the connections whose time has come, and returns when the next one's may.
// 0: there is none left.
func (u *Upstream) swept() (next time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pool.places() == 0 {
		u.sweeping = false
		return 0
	}
	next = u.opts.IdleStop
	now := time.Now()
	for _, h := range u.pool.holders {
		for _, l := range slices.Clone(h.conns) {
			if !l.idle() {
				continue
			}
			if left := u.opts.IdleStop - now.Sub(l.used); left > 0 {
				next = min(next, left)
			} else {
				u.pool.retire(l)
			}
		}
	}
	return next
}

// drain refuses new calls. The channel is closed when none is under way.
func (u *Upstream) drain() <-chan struct{} {
	u.closing = true
	if u.idle == nil {
		u.idle = make(chan struct{})
	}
	u.drained()
	return u.idle
}

func (u *Upstream) drained() {
	if !u.closing || u.inFlight.Used() > 0 || u.queue.Len() > 0 || u.idle == nil {
		return
	}
	select {
	case <-u.idle:
	default:
		close(u.idle)
	}
}

// end ends what has not ended yet.
func (u *Upstream) end() {
	u.over = true
	for item := range u.queue.All() {
		u.refuse(item.Value, u.shuttingDown())
	}
	for _, h := range u.pool.holders {
		u.pool.release(h)
	}
}

// spawn runs do in a goroutine that Close waits for, unless that has begun.
func (u *Upstream) spawn(do func()) bool {
	if !u.over {
		u.tasks.Go(do)
	}
	return !u.over
}

// departed remembers the sessions that have ended, for as long as calls of theirs
// may come late: two lots of them.
type departed struct{ newer, older map[string]struct{} }

const maxDeparted = 1024 // of a lot

func (d *departed) add(session string) {
	if d.newer == nil || len(d.newer) >= maxDeparted {
		d.newer, d.older = map[string]struct{}{}, d.newer
	}
	d.newer[session] = struct{}{}
}

func (d *departed) has(session string) bool {
	_, newer := d.newer[session]
	_, older := d.older[session]
	return newer || older
}
