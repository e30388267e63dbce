package limit

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// A Counter counts for several processes, as store.Counter does.
type Counter interface {
	Take(ctx context.Context, key string, n, limit int64, until time.Time) (granted int64, err error)
}

// Shared lets several limiters with the same rates count together.
//
// A limiter takes several calls from the Counter at once, a lease, and makes them without asking:
// 3 % of the calls of a second of a rate, 0.1 % of a quota up to 100, and one for each call that
// waits. A lease of a rate ends after a second. So a quota is never exceeded, and a rate by no more
// than one lease for each limiter, and by Burst where a period of its sum begins (see rateTake).
type Shared struct {
	Counter Counter
	// Nodes returns how many limiters there are. While the Counter does not answer, each one lets its
	// share of a rate pass, and no call of a quota. Nil is 1.
	Nodes func() int
}

const (
	leaseTime   = time.Second
	counterTime = time.Second          // for one question
	lostTime    = time.Second          // until the Counter is asked again
	leastPause  = 5 * time.Millisecond // after a refusal
	fullPause   = time.Minute          // after that of a quota: another process may give calls back
	leasePart   = 100 / 3              // of a second
	quotaPart   = 1000
	quotaMost   = 100
	attempts    = 32
	leastPeriod = 10 * time.Minute
	mostPeriod  = 30 * day
	periodParts = 100 // Burst is at most this part of what a rate lets pass in a period
)

// A lease is what one limiter may let pass of a bucket that it shares. Times are instants.
//
//	       fetch: granted                used up, or its time is over
//	asked ───────────────> has calls ─────────────────────────────> to be asked
//	  │ none is left  ───> empty: refused until a time ────────────>
//	  └ no answer     ───> lost: its share, or refused, until a time >
type lease struct {
	mu       sync.Mutex
	left     int64
	end      int64         // of left
	epoch    int64         // the day of left, of a quota
	empty    int64         // no call is let pass before
	lost     int64         // the Counter is not asked before
	fullAt   int64         // as that of a bucket, of the share
	waiting  int64         // calls that wait for the Counter
	fetching chan struct{} // closed when the answer is there; nil: the Counter is not asked now
}

// A want is a lease that has no call left.
type want struct {
	*lease

	rate *rate
	name string
}

// TakeShared is [Limiter.Take] of all limiters with the same Shared together. It may wait for the
// Counter, a second at most for each limit that counts the call.
func (l *Limiter) TakeShared(
	ctx context.Context, c *Caller, call string,
) (release func(), err error) {
	if l.shared == nil {
		return l.Take(c, call)
	}
	var w *want
	for range attempts {
		if release, w, err = l.take(c, call, true); w == nil {
			return release, err
		}
		if err := l.fetch(ctx, w); err != nil {
			return nil, err
		}
	}
	return nil, exceeded(w.rate.text, leastPause) // others were faster each time
}

// leased takes a call from each lease, or from none: then it returns the lease to be fetched, or
// the refusal.
func (l *Limiter) leased(claims []claim, c *Caller, call string, now instant) (*want, *Exceeded) {
	for i := range claims {
		k := &claims[i]
		if k.rate.limit < 1 || k.ownLimit(c) {
			continue
		}
		s := k.bucket.lease
		if s == nil {
			s = &lease{epoch: now.epoch}
			k.bucket.lease = s
		}
		s.mu.Lock()
		wait, ask := s.room(k.rate, now, l.nodes())
		s.mu.Unlock()
		switch {
		case ask:
			return &want{s, k.rate, k.name(c, call)}, nil
		case wait > 0:
			return nil, exceeded(k.rate.text, wait)
		}
	}
	for i := range claims {
		k := &claims[i]
		if k.bucket.lease == nil || k.rate.limit < 1 || k.ownLimit(c) {
			continue
		}
		k.bucket.lease.use(k.rate, now, l.nodes())
	}
	return nil, nil
}

// ownLimit reports whether a bucket is of one connection, which no other process has.
func (k *claim) ownLimit(c *Caller) bool {
	return k.rate.per == perPrincipal && many(c.Owner) && !c.Owner.Returns() &&
		k.bucket.key != k.parent
}

// name names a bucket for all processes.
func (k *claim) name(c *Caller, call string) string {
	name, b := k.rate.definition+"\x00", k.bucket
	switch {
	case b.key == k.instead && k.instead != 0:
		return name + "instead\x00" + c.Owner.Text()
	case b.key != k.key && b.key != k.parent:
		return name + "others\x00" + strconv.FormatBool(k.open)
	}
	switch k.rate.per {
	case perAddress:
		name += c.Address
		if a, ok := parseAddress(c.Address); ok {
			name = k.rate.definition + "\x00" + a.String()
		}
	case perGroup:
		name += c.Owner.Group().Text()
	case perPrincipal:
		name += c.Owner.Group().Text()
		if b.key == k.key {
			name += "\x00" + c.Owner.Text()
		}
	}
	if k.rate.each && b.key == k.key {
		name += "\x00" + call
	}
	return name
}

// nodes returns how many limiters share the Counter.
func (l *Limiter) nodes() int64 {
	if l.shared.Nodes == nil {
		return 1
	}
	return int64(max(l.shared.Nodes(), 1))
}

// room reports whether there is a call left: else how long to wait, or that the Counter is to be
// asked.
func (s *lease) room(r *rate, now instant, nodes int64) (wait time.Duration, ask bool) {
	if r.quota && s.epoch != now.epoch {
		s.left, s.empty, s.epoch = 0, 0, now.epoch
	}
	if !r.quota && now.at >= s.end {
		s.left = 0
	}
	switch {
	case s.left > 0:
		return 0, false
	case now.at < s.lost && r.quota:
		return time.Duration(s.lost - now.at), false
	case now.at < s.lost:
		return time.Duration(max(0, s.fullAt-now.at-r.depth/nodes)), false
	case now.at < s.empty:
		return time.Duration(s.empty - now.at), false
	}
	return 0, true
}

// use takes one call.
func (s *lease) use(r *rate, now instant, nodes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left > 0 {
		s.left--
		return
	}
	const most = int64(1) << 60
	s.fullAt = max(s.fullAt, now.at) + min(r.interval, most/nodes)*nodes
}

// fetch asks the Counter for a lease, unless another call does: then it waits for that. The error
// is that of ctx.
func (l *Limiter) fetch(ctx context.Context, w *want) error {
	s := w.lease
	s.mu.Lock()
	s.waiting++
	if others := s.fetching; others != nil {
		s.mu.Unlock()
		var err error
		select {
		case <-others:
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
		return err
	}
	done := make(chan struct{})
	s.fetching = done
	n := w.rate.lease() + s.waiting - 1
	s.mu.Unlock()

	// The calls that wait do not depend on this one's caller.
	ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), counterTime)
	began := l.store.clock.read()
	granted, pause, err := l.ask(ask, w, n, began)
	cancel()

	now := l.store.clock.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	s.fetching = nil
	close(done)
	switch {
	case err != nil:
		s.lost = now.at + int64(lostTime)
	case w.rate.quota && began.epoch != now.epoch: // they are of yesterday
	case granted == 0:
		s.empty = now.at + int64(pause)
	default:
		s.left += granted
		s.end = now.at + int64(leaseTime)
	}
	return ctx.Err()
}

// lease returns how many calls a lease has.
func (r *rate) lease() int64 {
	if r.quota {
		return min(max(int64(r.limit)/quotaPart, 1), quotaMost)
	}
	return max(int64(time.Second)/r.interval/leasePart, 1)
}

// ask takes up to n calls. pause is when there may be more.
func (l *Limiter) ask(
	ctx context.Context, w *want, n int64, now instant,
) (granted int64, pause time.Duration, err error) {
	at := l.store.clock.now()
	if w.rate.quota {
		today := at.UTC().Truncate(day)
		key := w.name + "\x00" + strconv.FormatInt(today.Unix(), 10)
		granted, err = l.shared.Counter.Take(ctx, key, n, int64(w.rate.limit), today.Add(day))
		return granted, min(now.left, fullPause), err
	}
	return l.rateTake(ctx, w, n, at)
}

// rateTake is a token bucket as a sum: that of all calls since a period began. The sum is first
// raised to what the rate has let pass until now, because what is not used is lost; then it may be
// ahead of that by Burst. A period is so long that Burst is at most 1 % of it: where one begins,
// Burst may be granted twice.
func (l *Limiter) rateTake(
	ctx context.Context, w *want, n int64, at time.Time,
) (granted int64, pause time.Duration, err error) {
	r := w.rate
	const most = int64(mostPeriod / periodParts)
	burst := min(r.depth, most) + min(r.interval, most) // as a time
	period := max(leastPeriod, periodParts*time.Duration(min(burst, most)))
	start := at.Truncate(period)
	passed := int64(at.Sub(start)) / r.interval
	key, until := w.name+"\x00"+strconv.FormatInt(start.Unix(), 10), start.Add(period)
	if passed > 0 {
		if _, err := l.shared.Counter.Take(ctx, key, passed, passed, until); err != nil {
			return 0, 0, err
		}
	}
	granted, err = l.shared.Counter.Take(ctx, key, n, passed+r.depth/r.interval+1, until)
	next := start.Add(time.Duration(passed+1) * time.Duration(r.interval))
	return granted, max(next.Sub(at), leastPause), err
}
