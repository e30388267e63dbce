package upstream

import (
	"slices"
	"time"
)

// died removes a connection that has ended without being closed.
func (u *Upstream) died(l *connection, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.ctx.Err() != nil || !l.state.live() {
		return // we have done it, or know
	}
	u.lostLocked(l, l.age, err, time.Now())
	u.dispatchLocked()
	u.drainedLocked()
}

// sweepLocked closes unused connections.
func (u *Upstream) sweepLocked() {
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

// swept closes the connections with a time that has come, and returns when the next one's may.
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

// drainLocked refuses new calls. The channel is closed when none is under way.
func (u *Upstream) drainLocked() <-chan struct{} {
	u.closing = true
	if u.idle == nil {
		u.idle = make(chan struct{})
	}
	u.drainedLocked()
	return u.idle
}

func (u *Upstream) drainedLocked() {
	if u.idle == nil || !u.queue.idle() {
		return
	}
	select {
	case <-u.idle:
	default:
		close(u.idle)
	}
}

// endLocked ends what has not ended yet.
func (u *Upstream) endLocked() {
	u.over = true
	for item := range u.queue.all() {
		u.refuseLocked(item.Value, u.shuttingDown())
	}
	for _, h := range u.pool.holders {
		u.pool.release(h)
	}
}

// spawnLocked runs do in a goroutine that Close waits for, unless that has begun.
func (u *Upstream) spawnLocked(do func()) bool {
	if !u.over {
		u.tasks.Go(do)
	}
	return !u.over
}
