package limit

import (
	"strconv"
	"sync"
	"time"
)

const (
	// A refused caller is told to come back in about as long as a call takes.
	firstHint = 100 * time.Millisecond
	leastHint = 10 * time.Millisecond
	mostHint  = 10 * time.Second

	hintWeight = 16 // calls that the mean goes over, about

	lately  = time.Second // for how long a principal counts that calls no more
	maxIdle = 1024        // of those
)

// bounds are those of calls that are under way. 0: none.
type bounds struct {
	concurrent, total int
	// reserve and most are how many places of total only those take who have less than their share: at
	// least, and at most.
	reserve, most int
}

func newBounds(concurrent, total int) bounds {
	b := bounds{concurrent: max(concurrent, 0), total: max(total, 0)}
	if b.total >= 4 {
		b.reserve, b.most = (b.total+7)/8, b.total/2
	}
	return b
}

func (b bounds) any() bool { return b.concurrent > 0 || b.total > 0 }

func (b bounds) concurrentText() string {
	return strconv.Itoa(b.concurrent) + " at once for each principal"
}

func (b bounds) totalText() string { return strconv.Itoa(b.total) + " at once for all" }

// places are the calls under way. There is an entry for a principal as long as it has one, and for a
// while after.
type places struct {
	mu     sync.Mutex
	taken  int
	busy   int // principals with calls under way
	known  map[string]*known
	idle   []*known      // those of whom it is to be seen whether they can be forgotten, oldest first
	mean   time.Duration // of the calls that ended
	spare  []*place
	unused []*known
}

// A known principal is one with a call under way, or lately.
type known struct {
	who    string
	taken  int
	seen   int64 // when its last call ended
	queued bool  // in idle,
	since  int64 // from then on
}

// A place is that of a call. It is used again by others: turn tells whose it is.
type place struct {
	turn  uint64
	who   *known
	since int64
}

func newPlaces() *places { return &places{known: map[string]*known{}, mean: firstHint} }

// take finds a place. The rule for total: while more than a reserve is free, whoever comes gets in. What is left
// is for those who have less than their share, so that whoever floods leaves room for everybody
// else, and gives places back as his calls end. The reserve has room for those who called
// lately and do not now: they will.
func (p *places) take(b bounds, who string, c *clock, now int64) (release func(), refused *Exceeded) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(now)
	k := p.known[who]
	mine, others, waiting := 0, len(p.known), len(p.known)-p.busy
	if k != nil {
		mine = k.taken
		others--
		if mine == 0 {
			waiting--
		}
	}
	if b.concurrent > 0 && mine >= b.concurrent {
		return nil, exceeded(b.concurrentText(), clampHint(p.mean))
	}
	if b.total > 0 {
		free := b.total - p.taken
		share := max(1, (b.total-b.reserve)/(others+1))
		switch {
		case mine < share && free <= 0:
			// The next place that becomes free is his.
			return nil, exceeded(b.totalText(), clampHint(p.mean/time.Duration(b.total)))
		case mine >= share && free <= max(b.reserve, min(waiting, b.most)):
			return nil, exceeded(b.totalText(), clampHint(p.mean))
		}
	}
	if k == nil {
		k = p.meetLocked(who)
	}
	if k.taken++; k.taken == 1 {
		p.busy++
	}
	p.taken++
	t := p.placeLocked()
	t.who, t.since = k, now
	turn := t.turn
	return func() { p.release(t, turn, c) }, nil
}

func clampHint(d time.Duration) time.Duration { return min(max(d, leastHint), mostHint) }

func (p *places) meetLocked(who string) *known {
	k := new(known)
	if n := len(p.unused); n > 0 {
		k, p.unused = p.unused[n-1], p.unused[:n-1]
	}
	k.who = who
	p.known[who] = k
	return k
}

func (p *places) placeLocked() *place {
	n := len(p.spare)
	if n == 0 {
		return new(place)
	}
	t := p.spare[n-1]
	p.spare = p.spare[:n-1]
	return t
}

// forgetLocked forgets who has not called for a while.
func (p *places) forgetLocked(now int64) {
	for len(p.idle) > 0 && p.idle[0].since+int64(lately) <= now {
		k := p.idle[0]
		p.idle[0] = nil
		p.idle = p.idle[1:]
		switch {
		case k.taken > 0:
			k.queued = false
		case k.seen+int64(lately) > now:
			k.since = now
			p.idle = append(p.idle, k)
		default:
			p.dropLocked(k)
		}
	}
}

func (p *places) dropLocked(k *known) {
	delete(p.known, k.who)
	*k = known{}
	if len(p.unused) < maxIdle {
		p.unused = append(p.unused, k)
	}
}

func (p *places) release(t *place, turn uint64, c *clock) {
	now := c.read().at
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.turn != turn {
		return // it has been called before
	}
	t.turn++
	p.mean += (time.Duration(max(0, now-t.since)) - p.mean) / hintWeight
	p.taken--
	k := t.who
	t.who = nil
	p.spare = append(p.spare, t)
	if k.taken--; k.taken > 0 {
		return
	}
	p.busy--
	switch {
	case k.queued:
		k.seen = now
	case len(p.idle) < maxIdle:
		k.seen, k.since, k.queued = now, now, true
		p.idle = append(p.idle, k)
	default:
		p.dropLocked(k)
	}
}

// counts are the calls of a principal, and those of all.
func (p *places) counts(who string) (mine, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.known[who]; k != nil {
		mine = k.taken
	}
	return mine, p.taken
}
